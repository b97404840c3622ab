"""What a variant declares is tried, and judged: right ones are found right, and lies are found out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from wrong.gradients import GRADIENTS
from wrong.right import attention_of

from fluxbench import variants
from fluxbench.correctness.capabilities import LENGTHS, ProbeResult, probe
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants._base import DOCUMENTED, YES, Capabilities, Variant, sdpa

CPU = torch.device("cpu")
RIGHT: ProbeResult = {"status": "yes", "reason": None, "rel_l2": None, "budget": None}
Load = Callable[[AttentionCall], Attention]


def by_sequence(call: AttentionCall) -> Attention:
    """Return torch's attention, over sequences that lie one after the other where there are several."""
    attention = sdpa(None, call)
    if not call.lengths:
        return attention

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts = zip(*(x.split(call.lengths, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat([attention(*part) for part in parts], dim=1)

    return attend


def deaf_to(**changes: Any) -> Load:
    """Return a load that takes some of what it is asked for to be something else."""
    return lambda call: by_sequence(replace(call, **changes))


def fixed(attention: Attention) -> Load:
    return lambda call: attention


def raising(error: Exception, cause: Exception | None = None) -> Load:
    def load(call: AttentionCall) -> Attention:
        if call.causal:
            raise error from cause
        return by_sequence(call)

    return load


@contextlib.contextmanager
def noted(keys: list[str], key: str) -> Iterator[None]:
    keys.append(key)
    yield


def tried(load: Load = by_sequence, **declared: Any) -> dict[str, ProbeResult]:
    """Return what came of a made-up variant; fields of `Variant` and of `Capabilities` are both taken."""
    own = {key: declared.pop(key) for key in ("quantized_budget_rel_l2", "jit", "compiles") if key in declared}
    capabilities = {"dtypes": ("bfloat16",), "head_dims": (128,), "minimum": (8, 0), **declared}
    return probe(Variant(name="made_up", label="", load=load, capabilities=Capabilities(**capabilities), **own), CPU)


@pytest.mark.parametrize("name", ["torch_math", "torch_flash", "torch_native"])
def test_what_torch_declares_of_itself_is_so_on_a_cpu(name: str) -> None:
    variant = variants.find(name).variant
    begun: list[str] = []
    found = probe(variant, CPU, functools.partial(noted, begun))
    heads = [f"head_dim {head_dim}" for head_dim in (64, 96, 128, 192, 256)]
    assert found == dict.fromkeys([*variant.capabilities.dtypes, *heads, "causal", "gqa", "backward"], RIGHT)
    assert begun == list(found)
    assert tried(varlen=YES)["varlen"] == RIGHT
    assert sum(LENGTHS) == 256


@pytest.mark.parametrize(
    ("load", "key"),
    [
        (deaf_to(causal=False), "causal"),
        (deaf_to(lengths=()), "varlen"),
        (deaf_to(causal=True), "bfloat16"),
        (fixed(GRADIENTS["half_of_v"]), "backward"),
    ],
)
def test_wrong_values_are_said_with_their_error_and_its_budget(load: Load, key: str) -> None:
    found = tried(load, causal=YES, varlen=YES, backward=YES)[key]
    assert (found["status"], str(found["reason"]).rpartition(": ")[2][:17]) == ("wrong", "relative L2 error")
    assert found["rel_l2"] is not None
    assert found["budget"] is not None
    assert found["rel_l2"] > 10 * found["budget"] > 0


@pytest.mark.parametrize(
    ("error", "cause", "reason"),
    [
        (NotImplementedError("It has no mask. Please file an issue.\nTraceback"), None, "It has no mask"),
        (RuntimeError("Observed exception"), ValueError("head_dim is too large"), "head_dim is too large"),
        (ValueError(), None, "ValueError"),
    ],
)
def test_an_exception_is_its_first_sentence(error: Exception, cause: Exception | None, reason: str) -> None:
    found = tried(raising(error, cause), causal=YES)
    assert found["causal"] == {"status": "no", "reason": reason, "rel_l2": None, "budget": None}
    assert found["bfloat16"] == RIGHT


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        (lambda q, k, v: attention_of(q, k, v).detach(), "no", "its output has no gradient with respect to q, k"),
        (lambda q, k, v: attention_of(q, k.detach(), v), "no", "its output has no gradient with respect to k"),
        (GRADIENTS["none_of_the_scores"], "wrong", "dq: relative L2 error 1.00e+00 is over the budget"),
    ],
)
def test_a_gradient_that_is_not_there_is_found_out(changed: Attention, status: str, reason: str) -> None:
    found = tried(fixed(changed), backward=YES)["backward"]
    assert found["status"] == status
    assert str(found["reason"]).startswith(reason)


def test_gradients_are_taken_within_inference_mode_and_an_error_of_cuda_is_the_callers() -> None:
    with torch.inference_mode():
        assert tried(backward=YES)["backward"] == RIGHT
        assert torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    with pytest.raises(RuntimeError, match="CUDA error"):
        tried(raising(RuntimeError("CUDA error: an illegal memory access was encountered")), causal=YES)


@pytest.mark.parametrize(
    ("declared", "keys"),
    [
        ({"causal": DOCUMENTED, "gqa": DOCUMENTED, "varlen": DOCUMENTED}, ["bfloat16", "head_dim 128"]),
        ({"dtypes": ("float16", "float32")}, ["float16", "float32", "head_dim 128"]),
        ({"jit": True, "head_dims": (64, 96, 128, 256), "causal": YES}, ["head_dim 64", "causal"]),
        ({"compiles": True, "head_dims": (96, 192), "gqa": YES}, ["head_dim 192", "gqa"]),
        ({"computes_in": ("int8", "float8_e4m3fn")}, ["int8", "float8_e4m3fn", "head_dim 128"]),
    ],
)
def test_what_is_declared_is_tried_and_of_what_compiles_less(declared: dict[str, Any], keys: list[str]) -> None:
    assert list(tried(**declared)) == keys


def test_what_is_asked_for_is_what_is_named() -> None:
    asked: list[AttentionCall] = []
    keys: list[str] = []

    def load(call: AttentionCall) -> Attention:
        asked.append(call)
        return by_sequence(call)

    declared = Capabilities(
        dtypes=("float16", "bfloat16"), head_dims=(96, 192), minimum=(8, 0), causal=YES, gqa=YES, backward=YES,
        varlen=YES,
    )  # fmt: skip
    probe(Variant(name="made_up", label="", load=load, capabilities=declared), CPU, functools.partial(noted, keys))
    plain = AttentionCall(
        seq_len_q=256, seq_len_k=256, heads=4, kv_heads=4, head_dim_qk=96, head_dim_v=96, dtype="float16"
    )
    assert dict(zip(keys, asked, strict=True)) == {
        "float16": plain,
        "bfloat16": replace(plain, dtype="bfloat16"),
        "head_dim 96": plain,
        "head_dim 192": replace(plain, head_dim_qk=192, head_dim_v=192),
        "causal": replace(plain, causal=True),
        "gqa": replace(plain, kv_heads=2),
        "backward": replace(plain, backward=True, retain_graph=True),
        "varlen": replace(plain, lengths=LENGTHS),
    }


def test_a_quantized_variant_is_given_16_bits_and_held_to_its_budget() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.dtype == torch.bfloat16
        return attention_of(*(x.to(torch.float8_e4m3fn).to(x.dtype) for x in (q, k, v)))

    for budget, status in ((0.1, "yes"), (0.001, "wrong")):
        found = tried(fixed(attend), computes_in=("float8_e4m3fn",), quantized_budget_rel_l2=budget)["float8_e4m3fn"]
        assert (found["status"], found["budget"]) == (status, None if status == "yes" else budget)
