"""Scales of rows are those of the formulas, however scores are divided, and cost no scores that nobody sees."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fluxbench.operations import error_scales
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.shapes import AttentionCall

OUTPUTS = ("out", "dq", "dk", "dv")
CALLS = {
    "all see all": AttentionCall(seq_len_q=37, seq_len_k=37, heads=2, kv_heads=2, head_dim_qk=16, head_dim_v=24),
    "causal": AttentionCall(
        seq_len_q=37, seq_len_k=37, heads=2, kv_heads=2, head_dim_qk=16, head_dim_v=24, causal=True, dtype="float32"
    ),
    "fewer queries": AttentionCall(
        batch=2, seq_len_q=23, seq_len_k=37, heads=4, kv_heads=2, head_dim_qk=24, head_dim_v=16, causal=True
    ),
    "one head of keys": AttentionCall(
        seq_len_q=36, seq_len_k=37, heads=3, kv_heads=1, head_dim_qk=16, head_dim_v=16, causal=True, dtype="float32"
    ),
}
SCORES_BYTES = {"one block": 1 << 20, "two heads at once": 4 * 37 * 37 * 2, "seven queries at once": 4 * 37 * 7}


def inputs_of(call: AttentionCall) -> Tensors:
    rng, dtype = torch.Generator().manual_seed(0), getattr(torch, call.dtype)
    of_q, of_k = (call.batch, call.seq_len_q, call.heads), (call.batch, call.seq_len_k, call.kv_heads)
    shapes = {"q": (*of_q, call.head_dim_qk), "k": (*of_k, call.head_dim_qk)}
    shapes |= {"v": (*of_k, call.head_dim_v), "dout": (*of_q, call.head_dim_v)}
    return {name: torch.randn(shape, generator=rng).to(dtype) for name, shape in shapes.items()}


def by_formula(call: AttentionCall, inputs: Tensors) -> Tensors:
    """Return the scales of all rows as the module's first lines have them: in float64, of whole scores."""
    group = call.heads // call.kv_heads
    q, dout = (inputs[name].double().transpose(1, 2) for name in ("q", "dout"))  # [batch, heads, tokens, head_dim]
    k, v = (inputs[name].double().transpose(1, 2).repeat_interleave(group, dim=1) for name in "kv")
    scores = q @ k.mT / call.head_dim_qk**0.5
    seen = torch.ones(call.seq_len_q, call.seq_len_k, dtype=torch.bool)
    if call.causal:
        seen = seen.tril(call.seq_len_k - call.seq_len_q)
    p = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    of_p = 1 + q.square() @ k.square().mT / call.head_dim_qk
    if call.dtype == "float32":
        of_p = of_p + (scores - scores.masked_fill(~seen, -torch.inf).amax(dim=-1, keepdim=True)).square()
    of_p = p.square() * of_p
    out = p @ v
    of_delta = (dout * out).square().sum(-1, keepdim=True)
    cancelled = dout @ v.mT - (dout * out).sum(-1, keepdim=True)
    w = p.square() * (dout.square() @ v.square().mT) + of_p * cancelled.square()
    norms = {name: x.square().sum(-1, keepdim=True) for name, x in (("q", q), ("k", k), ("v", v), ("dout", dout))}
    of_k = (p @ k).square().sum(-1, keepdim=True)
    squares = {
        "out": of_p @ norms["v"] + out.square().sum(-1, keepdim=True),
        "dq": (w @ norms["k"] + of_delta * of_k) / call.head_dim_qk,
        "dk": (w + p.square() * of_delta).mT @ norms["q"] / call.head_dim_qk,
        "dv": of_p.mT @ norms["dout"],
    }
    for name in ("dk", "dv"):
        squares[name] = squares[name].unflatten(1, (call.kv_heads, group)).sum(2)
    return {name: x.squeeze(-1).transpose(1, 2).sqrt().float() for name, x in squares.items()}


@pytest.mark.parametrize("scores_bytes", SCORES_BYTES)
@pytest.mark.parametrize("name", CALLS)
def test_scales_of_all_and_of_some_rows_are_those_of_the_formulas(
    name: str, scores_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_scales, "_SCORES_BYTES", SCORES_BYTES[scores_bytes])
    call = CALLS[name]
    inputs = inputs_of(call)
    right = by_formula(call, inputs)
    last = call.seq_len_q - 1
    at = {"out": [0, 1, last], "dq": [0, 8], "dk": [0, 3, 20, 35, 36], "dv": [36]}
    positions = {output: torch.tensor(tokens) for output, tokens in at.items()}
    for outputs in (OUTPUTS, ("out",), ("dk",), ("dv", "dq")):
        found = error_scales.of(call, inputs, outputs)
        some = error_scales.of(call, inputs, outputs, positions)
        assert [*found] == [*some] == [*outputs]
        for output in outputs:
            torch.testing.assert_close(found[output], right[output])
            torch.testing.assert_close(some[output], right[output][:, at[output]])
    forward = {each: inputs[each] for each in "qkv"}
    torch.testing.assert_close(error_scales.of(call, forward, ("out",))["out"], right["out"])


def operations_of(call: AttentionCall, outputs: tuple[str, ...], positions: Tensors | None = None) -> int:
    """Return the operations of the matrix products."""
    inputs = inputs_of(call)
    with FlopCounterMode(display=False) as counter:
        error_scales.of(call, inputs, outputs, positions)
    return int(counter.get_total_flops())


def test_hidden_keys_and_rows_that_nobody_wants_cost_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_scales, "_SCORES_BYTES", 4 * 512 * 32)
    plain = AttentionCall(seq_len_q=512, seq_len_k=512, heads=1, kv_heads=1, head_dim_qk=64, head_dim_v=64)
    causal = dataclasses.replace(plain, causal=True)
    assert operations_of(causal, OUTPUTS) < 0.55 * operations_of(plain, OUTPUTS)
    positions = {name: torch.tensor([5, 400]) for name in OUTPUTS}
    of_all = operations_of(causal, OUTPUTS)
    assert operations_of(causal, OUTPUTS, positions) < 0.4 * of_all  # two products of six, and those of few rows
    assert operations_of(causal, ("out", "dq"), positions) < 0.02 * of_all
