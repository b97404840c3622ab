"""The FlashAttention family without a GPU: what is declared, why it will not run, and how the packages are called."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import signatures
import torch
from fakes import CPU, GPU

from fluxbench.correctness.judging import Case, judge
from fluxbench.device.detection import Device
from fluxbench.operations import inputs
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import INPUTS
from fluxbench.variants import flash_attn_2, flash_attn_3, flash_attn_4, flex_flash, torch_fa
from fluxbench.variants._base import Variant

GROUPED = replace(signatures.SMALL, kv_heads=2)
FLUX = Workload(name="flux", seq_len=4608, heads=24)
COMPILED = ("", "_compile_d", "_compile_ma")
# name, its forms, a package that its records must name, its class of precision
DECLARED = [
    (flash_attn_2.VARIANT, "flash_attn_2", COMPILED, "flash-attn", "exact"),
    (flash_attn_3.VARIANT, "flash_attn_3", COMPILED, "fa3-fwd", "exact"),
    (flash_attn_3.FLOAT8, "flash_attn_3_fp8", COMPILED, "fa3-fwd", "quantized"),
    (flash_attn_4.VARIANT, "flash_attn_4", ("",), "flash-attn-4", "exact"),
    (torch_fa.FA3, "torch_fa3", ("",), "flash-attn-3", "exact"),
    (torch_fa.FA4, "torch_fa4", ("",), "flash-attn-4", "exact"),
    (flex_flash.VARIANT, "flex_flash", ("",), "flash-attn-4", "exact"),
]
VARIANTS = [declared[0] for declared in DECLARED]
FUNCTIONS = {
    "flash_attn_2": "flash_attn.flash_attn_func",
    "flash_attn_3": "fa3_fwd_interface.flash_attn_func",
    "flash_attn_3_fp8": "fa3_fwd_interface.flash_attn_func",
    "flash_attn_4": "flash_attn.cute.flash_attn_func",
}
MISSING = {
    "flash_attn_2": "flash_attn",
    "flash_attn_3": "fa3_fwd_interface",
    "flash_attn_3_fp8": "fa3_fwd_interface",
    "flash_attn_4": "flash_attn",
    "torch_fa3": "flash_attn_interface",
    "torch_fa4": "flash_attn",
    "flex_flash": "flash_attn",
}
# Names of kernels as the profiler gives them: torch's own from the published records, the others' from the symbols of
# the packages' binaries, and FlashAttention-4's as CuTe DSL makes them from a class.
TORCH_FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false"
FA2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t"
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2"
)
FA3_FLOAT8 = FA3 + ", cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, 128, cutlass::float_e4m3_t, float"
FA4 = "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__tensor"
FLEX = "triton_tem_fused_flex_attention_0"
KERNELS = {
    "flash_attn_2": {FA2},
    "flash_attn_3": {FA3, FA3_FLOAT8},
    "flash_attn_3_fp8": {FA3_FLOAT8},
    "flash_attn_4": {FA4},
    "torch_fa3": {FA3, FA3_FLOAT8},
    "torch_fa4": {FA4},
    "flex_flash": {FA4},
}


@pytest.fixture(autouse=True)
def _loaded_anew() -> Iterator[None]:
    def forget() -> None:
        flash_attn_3.load.cache_clear()
        flash_attn_3._interface.cache_clear()

    forget()
    yield
    forget()


def called(variant: Variant) -> pytest.MarkDecorator:
    needs_triton = variant.precision_class == "quantized" and importlib.util.find_spec("triton") is None
    return pytest.mark.skipif(needs_triton, reason="quantization needs triton")


CALLED = [pytest.param(variant, marks=called(variant), id=variant.name) for variant in VARIANTS[:4]]


def dequantized(q: Any, k: Any, v: Any, descales: list[Any], **options: Any) -> Any:
    """Return attention as the library has it in float8: descales are [batch, kv_heads], float32; bfloat16 comes out."""
    batch, _, kv_heads, _ = k.shape
    assert [x.dtype for x in (q, k, v)] == [torch.float8_e4m3fn] * 3
    assert [(list(x.shape), x.dtype) for x in descales] == [([batch, kv_heads], torch.float32)] * 3
    of_heads = [x.repeat_interleave(y.shape[2] // kv_heads, 1) for x, y in zip(descales, (q, k, v), strict=True)]
    wide = [x.float() * d[:, None, :, None] for x, d in zip((q, k, v), of_heads, strict=True)]
    return signatures.attention(*wide, **options).bfloat16()


def answer(q: Any, k: Any, v: Any, *, causal: bool = False, **rest: Any) -> Any:
    """Return what a library returns of keywords that a variant may pass."""
    descales = [rest.pop(f"{name}_descale", None) for name in "qkv"]
    assert not rest
    if any(x is not None for x in descales):
        return dequantized(q, k, v, descales, causal=causal)
    return signatures.attention(q, k, v, causal=causal)


def with_lse(**arguments: Any) -> Any:
    return answer(**arguments), None


@pytest.mark.parametrize(("variant", "name", "forms", "package", "precision"), DECLARED, ids=lambda x: str(x)[:20])
def test_it_declares(variant: Variant, name: str, forms: tuple[str, ...], package: str, precision: str) -> None:
    assert variant.names == tuple(name + form for form in forms)
    assert package in variant.packages
    assert (variant.precision_class, variant.fullgraph) == (precision, True)
    assert variant.capabilities
    assert variant.capabilities.minimum == ((8, 0) if name == "flash_attn_2" else (9, 0))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_its_pattern_matches_its_kernels_and_no_other_s(variant: Variant) -> None:
    kernels = {TORCH_FLASH, FA2, FA3, FA3_FLOAT8, FA4, FLEX}
    assert variant.kernel_pattern is not None
    assert {name for name in kernels if re.search(variant.kernel_pattern, name)} == KERNELS[variant.name]


def test_the_quantization_is_told_from_the_attention() -> None:
    pytest.importorskip("triton")
    from fluxbench.kernels import float8

    pattern = flash_attn_3.FLOAT8.quantization_pattern
    assert pattern is not None
    for kernel in (float8.quantize_per_head_amax_kernel, float8.quantize_per_head_cast_kernel):
        assert re.search(pattern, kernel.__name__)
    assert not re.search(pattern, FA3_FLOAT8)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize(
    ("device", "workload", "reason"),
    [
        (GPU, FLUX, None),
        (CPU, FLUX, "needs an NVIDIA GPU of compute capability"),
        (Device(kind="rocm", name="MI300X"), FLUX, "no variant has been checked on AMD GPUs"),
        (replace(GPU, compute_capability=(7, 5)), FLUX, "NVIDIA Made Up has 7.5"),
        (GPU, replace(FLUX, dtype="float32"), "got float32"),
        (GPU, replace(FLUX, direction="backward"), "only the forward pass is measured, got backward"),
    ],
)
def test_it_says_why_not(variant: Variant, device: Device, workload: Workload, reason: str | None) -> None:
    said = variant.supports(device, workload)
    assert said is None if reason is None else said is not None and reason in said


@pytest.mark.parametrize(
    ("capability", "running"),
    [
        ((8, 0), {"flash_attn_2"}),
        ((8, 9), {"flash_attn_2"}),
        ((10, 0), {"flash_attn_2", "flash_attn_4", "torch_fa4", "flex_flash"}),
        ((12, 0), {"flash_attn_2", "flash_attn_4", "flex_flash"}),
    ],
)
def test_a_gpu_runs_those_that_have_kernels_for_it(capability: tuple[int, int], running: set[str]) -> None:
    device = replace(GPU, compute_capability=capability)
    assert {variant.name for variant in VARIANTS if variant.supports(device, FLUX) is None} == running


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_missing_package_is_named(variant: Variant) -> None:
    name = MISSING[variant.name]
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(ImportError, match=rf"No module named '{name}(\.cute)?'"):
        variant.load()


@pytest.mark.parametrize("variant", CALLED)
@pytest.mark.parametrize("returned", [answer, with_lse], ids=["out", "out and lse"])
def test_it_calls_the_package_as_the_package_is_called(
    variant: Variant, returned: signatures.Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variant is flash_attn_2.VARIANT and returned is with_lse:
        pytest.skip("no version of it returns two")
    calls = signatures.install(monkeypatch, FUNCTIONS[variant.name], returned)
    assert signatures.wrong(variant.load(), variant) is None
    assert signatures.wrong(variant.load(), variant, GROUPED) is None  # loaded again, as for each workload
    assert len(calls) == 4


@pytest.mark.parametrize("variant", CALLED)
def test_its_causal_mask_is_the_usual_one(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, FUNCTIONS[variant.name], answer)
    assert variant.capabilities
    assert callable(variant.capabilities.causal)
    assert signatures.wrong(variant.capabilities.causal(), variant, causal=True) is None


@pytest.mark.parametrize("variant", VARIANTS[:2] + VARIANTS[3:4], ids=lambda variant: variant.name)
def test_sequences_of_several_lengths_do_not_see_each_other(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    def each_apart(**arguments: Any) -> Any:
        assert arguments["cu_seqlens_k"].dtype == torch.int32
        assert (arguments["max_seqlen_q"], arguments["max_seqlen_k"]) == (70, 70)
        out = signatures.varlen(*(arguments[name] for name in ("q", "k", "v", "cu_seqlens_q")))
        return (out, None) if variant.name == "flash_attn_4" else out

    function = FUNCTIONS[variant.name].replace("flash_attn_func", "flash_attn_varlen_func")
    signatures.install(monkeypatch, function, each_apart)
    assert variant.capabilities
    assert callable(variant.capabilities.varlen)
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    out = variant.capabilities.varlen((53, 70))(q, k, v)
    apart = [signatures.attention(*(x[:, part] for x in (q, k, v))) for part in (slice(53), slice(53, None))]
    torch.testing.assert_close(out, torch.cat(apart, 1))


def test_a_call_that_the_package_would_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, "flash_attn.flash_attn_func", answer)
    from flash_attn import flash_attn_func

    with pytest.raises(TypeError, match="unexpected keyword argument 'is_causal'"):
        flash_attn_func(1, 2, 3, is_causal=True)


@pytest.mark.parametrize("name", signatures.RECORDED)
def test_a_recorded_signature_is_that_of_the_installed_package(name: str) -> None:
    module, _, function = name.rpartition(".")
    real = inspect.signature(getattr(pytest.importorskip(module, exc_type=ImportError), function))
    assert list(real.parameters) == list(signatures.signature(name).parameters)


def test_flash_attn_3_prefers_its_own_interface_and_says_which_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = flash_attn_3.VARIANT
    assert variant.detail
    rebuild = signatures.install(monkeypatch, "fa3_fwd_interface.flash_attn_func", answer)
    assert signatures.wrong(variant.load(), variant) is None
    assert variant.detail() == "fa3_fwd_interface"
    flash_attn_3.load.cache_clear()
    flash_attn_3._interface.cache_clear()
    own = signatures.install(monkeypatch, "flash_attn_interface.flash_attn_func", with_lse)
    assert signatures.wrong(variant.load(), variant) is None
    assert (variant.detail(), len(rebuild), len(own)) == ("flash_attn_interface", 2, 2)


@pytest.mark.parametrize("variant", CALLED[1:3])
def test_flash_attn_3_compiles_in_one_graph(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = signatures.install(monkeypatch, FUNCTIONS[variant.name], answer)
    attention = torch.compile(variant.load(), fullgraph=True, dynamic=False, backend="aot_eager")
    with torch.inference_mode():
        assert signatures.wrong(attention, variant, GROUPED) is None
    assert len(calls) == 2  # the fake is traced, the package is not
    torch.compiler.reset()


def test_float8_values_of_one_scale_for_all_heads_are_over_the_budget_where_heads_differ() -> None:
    """What per-head scales are for: a head that is far smaller than another keeps its digits."""
    float8 = pytest.importorskip("fluxbench.kernels.float8")
    v = (
        inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")[2]
        * torch.tensor([1, 1e-5, 1, 1])[:, None].bfloat16()
    )
    errors = []
    for groups in (4, 1):
        (_, _, v8), (_, _, descale) = float8.quantize_per_head(v, v, v, groups=groups)
        back = v8.float() * descale.repeat_interleave(4 // groups, 1)[:, None, :, None]
        errors.append(float((back - v)[:, :, 1].norm() / v[:, :, 1].norm()))
    budget = flash_attn_3.FLOAT8.quantized_budget_rel_l2
    assert budget
    assert errors[0] < budget < errors[1]


def test_the_budget_of_float8_is_what_rounding_to_float8_makes() -> None:
    budget = flash_attn_3.FLOAT8.quantized_budget_rel_l2
    assert budget
    errors = {kind: rounded_error(kind) for kind in INPUTS}
    assert 0.8 * budget < max(errors.values()) < budget, errors


def rounded_error(kind: str) -> float:
    """Return the error of attention whose q, k, v and probabilities are rounded to float8, one scale a head."""
    workload = Workload(name="rounded", seq_len=1152, heads=1)
    case = Case.of(inputs.make(workload, kind, seed=0, device="cpu"))

    def rounded(x: Any, largest: Any) -> Any:
        return (x * (448 / largest)).to(torch.float8_e4m3fn).float() * (largest / 448)

    q, k, v = (rounded(x.float(), x.abs().max().float())[0, :, 0] for x in case.inputs)
    scores = q @ k.T * q.shape[-1] ** -0.5
    weights = torch.exp(scores - scores.amax(1, keepdim=True))
    out = rounded(weights, torch.tensor(448 / 256)) @ v / weights.sum(1, keepdim=True)
    errors, _ = judge(out[None, :, None].bfloat16(), case, precision_class="quantized", quantized_budget=1.0)
    assert errors
    assert errors.rel_l2
    return errors.rel_l2
