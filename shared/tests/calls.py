"""Small attentions: their shapes, calls and workloads, and whether a variant computes them right."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.device.model import Device
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.variants._base import Variant
from fluxbench.variants.forms import EAGER, FormedVariant

# What variants are asked for, as changes of `shape`.
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batches": {"batch": 2},
    "float16": {"dtype": "float16"},
    "causal": {"causal": True},
    "grouped": {"kv_heads": 2},
    "grouped causal batches": {"kv_heads": 2, "causal": True, "batch": 2},
    "fewer queries": {"seq_len_q": 50},
    "fewer queries, causal": {"seq_len_q": 50, "causal": True},
    "one query": {"seq_len_q": 1, "kv_heads": 2},
    "float32": {"dtype": "float32"},
    "two head dims": {"head_dim_v": 32},
}


def shape(**changes: Any) -> dict[str, Any]:
    """Return the shape of 123 tokens, 4 heads of 64, with these changes; `tokens` are queries and keys."""
    tokens, heads, head_dim = (changes.pop(key, usual) for key, usual in (("tokens", 123), ("heads", 4), ("dim", 64)))
    return {
        "seq_len_q": tokens, "seq_len_k": tokens, "heads": heads, "kv_heads": heads, "head_dim_qk": head_dim,
        "head_dim_v": head_dim, "dtype": "bfloat16", "causal": False, **changes,
    }  # fmt: skip


def call(
    *, backward: bool = False, retain_graph: bool = False, lengths: tuple[int, ...] = (), **changes: Any
) -> AttentionCall:
    return AttentionCall.of(shape(**changes), backward=backward, retain_graph=retain_graph, lengths=lengths)


def workload(operation: str = "attention", **changes: Any) -> Workload:
    whole = shape(**changes)
    return operations.workload(operation, "small", whole, group="small", x=whole["seq_len_k"], x_unit="tokens")


def wrong(
    variant: Variant, operation: str = "attention", device: str = "cpu", kinds: int | None = None, **changes: Any
) -> str | None:
    """Return why an operation by a variant is wrong, or None, on the kinds of inputs that count: the first `kinds`."""
    found = operations.find(operation)
    for kind in variant.gated_kinds(found.input_kinds)[:kinds]:
        case = _case(operation, kind, device, tuple(changes.items()))
        bound = found.bind(FormedVariant(variant, EAGER), shape(**changes))
        outputs = bound({name: x.clone() for name, x in case.inputs.items()})
        if reason := judge(outputs, case, variant.quantized_budget_rel_l2, variant.precision_class)[1]:
            return f"{kind}: {reason}"
    return None


def wrong_calls(variant: Variant, device: Device, operation: str = "attention") -> dict[str, str]:
    """Return which of `CALLS` that a variant supports on a device are wrong on the CPU, and why."""
    backward: dict[str, Any] = {"backward": operation != "attention", "retain_graph": operation == "attention_backward"}
    reasons = {
        name: wrong(variant, operation, **asked)
        for name, asked in CALLS.items()
        if variant.supports(device, call(**asked, **backward)) is None
    }
    return {name: reason for name, reason in reasons.items() if reason}


@functools.cache
def _case(operation: str, kind: str, device: str, changes: tuple[tuple[str, Any], ...]) -> Case:
    with torch.inference_mode(False):
        return Case.make(workload(operation, **dict(changes)), kind, 0, torch.device(device))


def tensors(**changes: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return normal q, k and v of a shape."""
    whole = shape(**changes)
    made = operations.find("attention").inputs(whole, "normal", 0, "cpu")
    return made["q"], made["k"], made["v"]


def close(found: Tensors, expected: Tensors, tolerance: float) -> None:
    """Fail where outputs differ by more than a tolerance of relative L2."""
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        assert found[name].shape == want.shape
        assert float((found[name].double() - want).norm() / want.norm()) <= tolerance, name
