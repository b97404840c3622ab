"""The lines that switch to a variant: each is run, by the real package on the CPU or by a fake of its signature."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import calls
import libraries
import pytest
import sample_records
import torch
from usages import VERSIONS, install, used, with_fa3

from fluxbench import variants
from fluxbench.operations import sets
from fluxbench.report import usage
from fluxbench.report.usage import Usage

EAGER = [each.name for each in variants.REGISTRY if not (each.deterministic_of or each.only_decodes)]
TRAINING = next(each for each in sets.by_name().values() if each.operation == "attention_training")
FLASH_3 = ("flash_attn_3", "flash_attn_3_fp8")


def trained(name: str) -> Usage | None:
    return usage.of(sample_records.record(name, TRAINING, versions={**VERSIONS, "fa3-fwd": "0.0.3"}))


TRAINED = {name: found for name in EAGER if (found := trained(name))}


@pytest.fixture(autouse=True)
def _switch() -> Iterator[None]:
    """Put torch's switch for TF32 back, which some lines set for good."""
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def inputs() -> tuple[Any, Any, Any]:
    return calls.tensors(tokens=64, heads=24, dim=128)


def plain(q: Any, k: Any, v: Any) -> Any:
    """Return attention of and in [batch, heads, seq_len, head_dim], in float32."""
    q, k, v = (x.float() for x in (q, k, v))
    return torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, -1) @ v


def error(out: Any) -> float:
    """Return the relative L2 error of an output for `inputs`."""
    expected = plain(*(x.transpose(1, 2) for x in inputs())).transpose(1, 2)
    assert out.shape == expected.shape
    return float((out.float() - expected).norm() / expected.norm())


def run(code: str, short: str = "", layout: str = "") -> tuple[float, float]:
    """Run lines that define `attention`, and the short ones after them; return the errors of both."""
    q, k, v = inputs()
    names: dict[str, Any] = {"q": q, "k": k, "v": v}
    with torch.inference_mode():
        exec(code, names)
        of_code = error(names["attention"](q.clone(), k.clone(), v.clone()))
        heads_first = layout == "[batch, heads, seq_len, head_dim]"
        for name in "qkv" if heads_first else "":
            names[name] = names[name].transpose(1, 2)
        exec(short, names)
        out = names.get("out")
        out = out.transpose(1, 2) if heads_first and out is not None else out
        return of_code, 0.0 if out is None else error(out.view(q.shape))


def budget(name: str) -> float:
    return variants.find(name).variant.quantized_budget_rel_l2 or 0.005


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let torch.compile trace and run what it traced as it is; return what it was asked for."""
    torch.compiler.reset()
    real, asked = torch.compile, list[dict[str, Any]]()

    def compiling(function: Any, **options: Any) -> Any:
        asked.append(options)
        return real(function, **{**options, "mode": None, "backend": "eager"})

    monkeypatch.setattr(torch, "compile", compiling)
    return asked


@pytest.mark.parametrize("name", EAGER)
def test_the_lines_of_a_variant_compute_attention(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, monkeypatch)
    found = with_fa3(name)
    assert max(run(found.code, found.short, found.layout)) < budget(name)
    assert len(found.short.splitlines()) <= 3


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_the_lines_of_a_training_step_have_the_gradients_of_attention(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(name, monkeypatch)
    names: dict[str, Any] = {}
    exec(TRAINED[name].code, names)
    given, expected = ([x.clone().requires_grad_() for x in inputs()] for _ in range(2))
    names["attention"](*given).float().square().sum().backward()
    plain(*(x.transpose(1, 2) for x in expected)).square().sum().backward()
    for one, other in zip(given, expected, strict=True):
        assert float((one.grad - other.grad).norm() / other.grad.norm()) < 0.02  # unfused attention rounds its weights


def test_lines_without_gradients_are_not_for_training() -> None:
    assert {"torch_native", "flash_attn_4", "gluon_flash"} <= TRAINED.keys()
    assert not {"te_fused", "cudnn_frontend", "flash_attn_3_fp8"} & TRAINED.keys()
    assert trained("flash_attn_2_compile_d")
    assert not trained("flash_attn_3_compile_d")
    assert (TRAINED["flash_attn_4"].diffusers.lines, TRAINED["flash_attn_4"].diffusers.note) == ("", "")


@pytest.mark.parametrize("name", ["torch_flash", "torch_math", "torch_native", "flex", "flex_eager"])
def test_torch_itself_runs_its_lines_on_a_cpu(name: str, traced: list[dict[str, Any]]) -> None:
    found = used(name)
    assert max(run(found.code, found.short, found.layout)) < 0.005


@pytest.mark.parametrize("form", ["compile_d", "compile_ma"])
@pytest.mark.parametrize("kernel", ["torch_flash", "torch_native", "flex", "flash_attn_2", *FLASH_3, "xformers"])
def test_compiled_lines_compile_in_their_mode(
    kernel: str, form: str, traced: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel.startswith(("torch_", "flex")):
        install(kernel, monkeypatch)
    found = with_fa3(f"{kernel}_{form}")
    assert run(found.short)[0] < budget(kernel)
    assert found.short == found.code
    assert traced[-1] == {**({"mode": "max-autotune"} if form == "compile_ma" else {}), "dynamic": False}


@pytest.mark.parametrize("name", ["flash_attn_3", "flash_attn_3_fp8"])
def test_flash_attn_3_is_one_graph_as_an_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, monkeypatch)
    torch.compiler.reset()
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: real(function, backend="eager", fullgraph=True))
    code = with_fa3(f"{name}_compile_d").code
    assert run(code)[0] < budget(name)
    torch.compiler.reset()
    without = "\n".join(line for line in code.splitlines() if "register_fake" not in line)
    with pytest.raises(Exception, match="fake"):
        run(without)


@pytest.mark.parametrize("name", ["torch_flash_copy", "torch_cudnn_copy", "torch_efficient_copy"])
def test_a_copy_form_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[bool] = []

    def noting(q: Any, k: Any, v: Any) -> Any:
        copied.extend(x.is_contiguous() for x in (q, k, v))
        return plain(q, k, v)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    for form, copies in ((name, True), (name.removesuffix("_copy"), False)):
        copied.clear()
        assert run(used(form).code)[0] < 0.005
        assert copied == [copies] * 3
        assert ("x.contiguous()" in used(form).short) == copies


def test_the_interface_of_flash_attn_3_is_that_which_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_flash_attn_3(monkeypatch, "flash_attn_interface", libraries.with_lse)
    assert run(used("flash_attn_3", flash_attn_3="3.0.0").code)[0] < 0.005
    assert "from fa3_fwd_interface" in with_fa3("flash_attn_3").short


def test_sageattention_2_has_another_name_for_its_triton_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_sage(monkeypatch, "sageattn_qk_int8_pv_fp16_triton")
    assert run(used("sage_int8_fp16_triton", sageattention="2.2.0").code)[0] < 0.005


@pytest.mark.parametrize("name", ["te_fused", "te_flash", "te_unfused"])
def test_variables_of_transformer_engine_are_those_that_were_measured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries.install_te(monkeypatch)
    monkeypatch.setattr(os, "environ", set_ := dict[str, str]())
    exec(used(name).code, {})
    assert len(set_) == 3
    assert set_.items() <= variants.find(name).variant.variables.items()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("torch_flash", "sdpa_kernel", "spda_kernel"),
        ("torch_cudnn", "CUDNN_ATTENTION", "FLASH_ATTENTION"),
        ("torch_native", ".transpose(1, 2) for x", " for x"),
        ("flex_eager", "flex_attention(q, k, v)", "flex_attention(q, k, v, causal=True)"),
        ("flex_flash", "FLASH", "TRITON"),
        ("flash_attn_2", "import flash_attn_func", "import flash_attention_func"),
        ("flash_attn_3_fp8", "q_descale=", "descale_q="),
        ("flash_attn_4", "flash_attn.cute", "flash_attn.cutlass"),
        ("torch_fa4", "activate_flash_attention_impl", "activate_flash_attention"),
        ("triton_flash", "import kernels", "import kernel"),
        ("gluon_flash", "forward=", "kernel="),
        ("gluon_int8_fp8", "quantized_forward(q, k, v)", "quantized_forward(q, k)"),
        ("triton_flash_tf32", "tf32=True", "tf32=False"),
        ("hf_local_flash", "build/fluxbench-attention", "build/attention"),
        ("sage_int8_fp8_sm90", "cuda_sm90", "cuda_sm100"),
        ("te_fused", ', qkv_format="bshd"', ""),
        ("te_fused", "no_mask", "none"),
        ("xformers", "(q, k, v)\n", "(q, k, v, mask=None)\n"),
        ("cudnn_frontend", "generate_stats", "return_stats"),
        ("hf_flash_attn2", "flash-attn2", "flash-attn-2"),
        ("hf_flash_attn3", "version=1", "version=2"),
        ("hf_sage", 'tensor_layout="NHD"', 'layout="NHD"'),
    ],
)
def test_a_wrong_name_or_argument_is_found(name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, monkeypatch)
    code = with_fa3(name).code + "\n"
    assert right in code
    caught = (AssertionError, AttributeError, ImportError, KeyError, NameError, TypeError)
    with pytest.raises(caught):
        assert run(code.replace(right, wrong))[0] < budget(name)
