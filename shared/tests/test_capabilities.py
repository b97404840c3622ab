"""What a variant declares is tried, and judged: right ones are found right, and lies are found out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fluxbench import variants
from fluxbench.correctness.capabilities import LENGTHS, probe
from fluxbench.variants._base import Attention, Capabilities, Variant, sdpa

CPU = torch.device("cpu")


def tried(load: Callable[[], Attention] = lambda: sdpa(None), **declared: Any) -> dict[str, str]:
    """Return what is found of a made-up variant; keywords of `Variant` and of `Capabilities` are both taken."""
    own = {key: declared.pop(key) for key in ("precision_class", "quantized_budget_rel_l2", "jit") if key in declared}
    dtypes, head_dims = declared.pop("dtypes", ("bfloat16",)), declared.pop("head_dims", (128,))
    capabilities = Capabilities(dtypes=dtypes, head_dims=head_dims, minimum=None, **declared)
    return probe(Variant(name="made_up", load=load, capabilities=capabilities, **own), CPU)


def by_sequence(lengths: tuple[int, ...]) -> Attention:
    """Return an attention over sequences that lie one after the other."""
    attention = sdpa(None)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts = zip(*(x.split(lengths, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat([attention(*part) for part in parts], dim=1)

    return attend


def refusing(*_: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("Grouped heads are not supported. Please file an issue.\nTraceback")


def detached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sdpa(None)(q, k, v).detach()


def without_gradient_of_k(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sdpa(None)(q, k.detach(), v)


def half_the_gradient_of_v(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sdpa(None)(q, k, 0.5 * v + 0.5 * v.detach())


def zero_gradients(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sdpa(None)(q.detach(), k.detach(), v.detach()) + 0 * (q + k + v)


@pytest.mark.parametrize("name", ["torch_math", "torch_flash", "torch_native"])
def test_what_torch_declares_of_itself_is_so_on_a_cpu(name: str) -> None:
    variant, _ = variants.find(name)
    declared = variant.capabilities
    assert declared
    dtypes = [dtype for dtype in declared.dtypes if dtype != "float64"]
    heads = [f"head_dim {head_dim}" for head_dim in declared.head_dims]
    assert probe(variant, CPU) == dict.fromkeys([*dtypes, *heads, "causal", "gqa", "backward"], "yes")


def test_sequences_of_several_lengths_are_told_apart() -> None:
    assert tried(varlen=by_sequence)["varlen"] == "yes"
    assert tried(varlen=lambda lengths: sdpa(None))["varlen"].startswith("wrong: relative L2 error")
    assert sum(LENGTHS) == 256


def test_a_mask_that_is_ignored_is_wrong() -> None:
    assert tried(causal=lambda: sdpa(None))["causal"].startswith("wrong: relative L2 error")


def test_an_exception_is_its_first_sentence() -> None:
    assert tried(gqa=lambda: refusing)["gqa"] == "no: Grouped heads are not supported"


def test_a_long_exception_is_cut() -> None:
    def load() -> Attention:
        raise ImportError("x" * 500)

    assert len(tried(causal=load)["causal"]) == len("no: ") + 160


def test_a_wrapped_exception_is_what_it_came_of() -> None:
    def load() -> Attention:
        raise RuntimeError("Observed exception") from ValueError("head_dim is too large")

    assert tried(causal=load)["causal"] == "no: head_dim is too large"


def test_a_head_dim_that_is_not_kept_is_found_out() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.shape[-1] <= 128, "head_dim must be 128 at most"
        return sdpa(None)(q, k, v)

    found = tried(lambda: attend, head_dims=(64, 128, 256))
    assert [found[f"head_dim {size}"] for size in (64, 128, 256)] == ["yes", "yes", "no: head_dim must be 128 at most"]


def test_a_head_dim_whose_scale_is_fixed_is_wrong() -> None:
    found = tried(lambda: sdpa(None, scale=128**-0.5), head_dims=(64, 128))
    assert found["head_dim 128"] == "yes"
    assert found["head_dim 64"].startswith("wrong: ")


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (detached, "the output has no gradient with respect to q"),
        (without_gradient_of_k, "the output has no gradient with respect to k"),
        (zero_gradients, "gradient of q: relative L2 error 1.00e+00 is over the budget"),
        (half_the_gradient_of_v, "gradient of v: relative L2 error 5.00e-01 is over the budget"),
    ],
)
def test_wrong_gradients_are_found_out(attention: Attention, said: str) -> None:
    assert tried(backward=lambda: attention)["backward"].startswith(f"wrong: {said}")


def test_gradients_are_taken_and_modes_are_left_within_inference_mode() -> None:
    with torch.inference_mode():
        assert tried(backward=lambda: sdpa(None))["backward"] == "yes"
        assert torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_a_library_that_switches_gradients_off_does_not_switch_them_off_here() -> None:
    def load() -> Attention:
        torch.set_grad_enabled(False)
        return sdpa(None)

    tried(load, backward=load)
    assert torch.is_grad_enabled()


def test_what_is_by_documentation_only_is_not_tried() -> None:
    assert set(tried(causal=True, gqa=True, varlen=True)) == {"bfloat16", "head_dim 128"}


def test_a_dtype_that_is_not_declared_is_not_tried() -> None:
    assert set(tried(dtypes=("float16",))) == {"float16", "head_dim 128"}


def test_a_variant_that_compiles_has_one_more_head_dim_tried_and_no_dtype() -> None:
    found = tried(jit=True, head_dims=(64, 96, 128, 256), dtypes=("bfloat16", "float16"), causal=lambda: sdpa(None))
    assert set(found) == {"head_dim 64", "causal"}


def test_a_quantized_variant_is_given_16_bits_and_held_to_its_budget() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.dtype == torch.bfloat16
        narrow = (x.to(torch.float8_e4m3fn).to(x.dtype) for x in (q, k, v))
        return sdpa(None)(*narrow)

    def found(budget: float) -> str:
        quantized = {"precision_class": "quantized", "quantized_budget_rel_l2": budget}
        return tried(lambda: attend, dtypes=("float8_e4m3fn",), **quantized)["float8_e4m3fn"]

    assert found(0.1) == "yes"
    assert found(0.001).startswith("wrong: relative L2 error")


def test_what_is_never_written_is_wrong() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(q)
        out[:, :-1] = sdpa(None)(q, k, v)[:, :-1]
        return out

    assert tried(lambda: attend)["bfloat16"].startswith("wrong: ")


def test_an_error_of_cuda_is_the_callers() -> None:
    def load() -> Attention:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="CUDA error"):
        tried(causal=load)


def test_a_variant_that_declares_nothing_has_nothing_tried() -> None:
    variant, _ = variants.find("torch_math")
    assert probe(dataclasses.replace(variant, capabilities=None), CPU) == {}
