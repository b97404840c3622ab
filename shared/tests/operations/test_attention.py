"""Attention, its gradient and decoding: the right answers, their inputs, and rescaled inputs."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from calls import close, shape

from fluxbench import operations
from fluxbench.operations.protocol import Tensors

SHAPES: dict[str, dict[str, Any]] = {
    "square": shape(batch=2, tokens=33),
    "causal": shape(tokens=33, causal=True),
    "fewer queries, causal": shape(seq_len_q=20, seq_len_k=33, causal=True),
    "more queries": shape(seq_len_q=40, seq_len_k=33),
    "grouped": shape(tokens=33, heads=6, kv_heads=2),
    "grouped, causal": shape(batch=2, tokens=33, heads=6, kv_heads=3, causal=True),
    "two head dims": shape(tokens=33, head_dim_qk=48, head_dim_v=32),
    "float16": shape(tokens=33, dtype="float16"),
    # More scores than are computed at once: some batch entries, then some heads of one.
    "many heads": shape(batch=3, tokens=128, heads=50, head_dim_qk=8, head_dim_v=8),
    "long heads, causal": shape(tokens=256, heads=35, head_dim_qk=8, head_dim_v=8, causal=True),
}
CASES = [
    *(pytest.param("attention", each, id=f"attention-{name}") for name, each in SHAPES.items()),
    *(pytest.param("attention_backward", each, id=f"attention_backward-{name}") for name, each in SHAPES.items()),
    pytest.param("decode", shape(seq_len_q=1, seq_len_k=33, heads=6, kv_heads=2), id="decode"),
]


def naive(inputs: Tensors, *, causal: bool) -> Tensors:
    """Return attention and its gradients by einsum in float64: query i of n sees keys 0 to m - n + i of m."""
    q, k, v = (inputs[name].double().requires_grad_() for name in "qkv")
    group = q.shape[2] // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) / q.shape[-1] ** 0.5
    if causal:
        offset = k.shape[1] - q.shape[1]
        hidden = torch.ones(q.shape[1], k.shape[1]).triu(offset + 1).bool()
        scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values)
    if "dout" not in inputs:
        return {"out": out.detach()}
    gradients = torch.autograd.grad(out, (q, k, v), inputs["dout"].double())
    return dict(zip(("dq", "dk", "dv"), gradients, strict=True))


@pytest.mark.parametrize(("name", "of"), CASES)
def test_the_reference_is_naive_attention_in_float64(name: str, of: dict[str, Any]) -> None:
    operation = operations.find(name)
    for kind in operation.input_kinds:
        inputs = operation.inputs(of, kind, 0, "cpu")
        reference = operation.reference(of, inputs, torch.float64)
        close(reference, naive(inputs, causal=of["causal"]), 1e-12)
        assert {x.dtype for x in reference.values()} == {torch.float64}


@pytest.mark.parametrize(("name", "of"), CASES)
def test_unfused_attention_of_the_inputs_precision_errs_by_its_rounding(name: str, of: dict[str, Any]) -> None:
    operation = operations.find(name)
    dtype = getattr(torch, of["dtype"])
    inputs = operation.inputs(of, "normal", 0, "cpu")
    unfused = operation.reference(of, inputs, dtype)
    assert {x.dtype for x in unfused.values()} == {dtype}
    rounding = torch.finfo(dtype).eps / 2
    exact = operation.reference(of, inputs, torch.float64)
    for output, want in exact.items():
        error = float((unfused[output].double() - want).norm() / want.norm())
        assert 0.2 * rounding < error < 2 * rounding, output


@pytest.mark.parametrize("precision", ["exact", "rounded"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_heads_that_are_computed_together_are_those_computed_by_themselves(dtype: str, precision: str) -> None:
    if (dtype, precision) == ("float32", "rounded"):
        precision = "tf32"
    operation, whole = operations.find("attention_training"), shape(batch=2, tokens=24, heads=3, dtype=dtype)
    inputs = operation.inputs(whole, "normal", 0, "cpu")
    together = operation.reference(whole, inputs, getattr(torch, dtype), precision)
    for batch, head in ((0, 0), (1, 2)):
        one = {name: x[batch : batch + 1, :, head : head + 1] for name, x in inputs.items()}
        alone = operation.reference(shape(tokens=24, heads=1, dtype=dtype), one, getattr(torch, dtype), precision)
        for name, x in alone.items():
            torch.testing.assert_close(together[name][batch : batch + 1, :, head : head + 1], x)


def test_queries_of_a_later_block_see_the_keys_that_they_should() -> None:
    """Of 60,000 keys, 559 queries fill one block of scores."""
    of = shape(heads=1, seq_len_q=565, seq_len_k=60_000, dim=1, causal=True)
    operation = operations.find("attention")
    inputs = operation.inputs(of, "normal", 0, "cpu")
    last = {**inputs, "q": inputs["q"][:, -5:]}
    found = operation.reference(of, inputs, torch.float64)["out"][:, -5:]
    close({"out": found}, naive(last, causal=True), 1e-12)


@pytest.mark.parametrize(("name", "of"), CASES)
def test_inputs_are_those_of_their_seed_and_kind(name: str, of: dict[str, Any]) -> None:
    operation = operations.find(name)
    normal, again, other, flux = (
        operation.inputs(of, kind, seed, "cpu")
        for kind, seed in (("normal", 3), ("normal", 3), ("normal", 4), ("flux", 3))
    )
    for key, x in normal.items():
        assert x.equal(again[key])
        assert not x.equal(other[key])
        assert not x.equal(flux[key])
        assert x.is_contiguous()
        assert str(x.dtype) == f"torch.{of['dtype']}"
    batch, heads, kv_heads = of.get("batch", 1), of["heads"], of["kv_heads"]
    assert list(normal["q"].shape) == [batch, of["seq_len_q"], heads, of["head_dim_qk"]]
    assert list(normal["k"].shape) == [batch, of["seq_len_k"], kv_heads, of["head_dim_qk"]]
    assert list(normal["v"].shape) == [batch, of["seq_len_k"], kv_heads, of["head_dim_v"]]
    assert ("dout" in normal) == (name == "attention_backward")
    if "dout" in normal:
        assert list(normal["dout"].shape) == [batch, of["seq_len_q"], heads, of["head_dim_v"]]


def test_flux_inputs_have_outlier_channels_in_k_and_a_bias_in_v() -> None:
    inputs = operations.find("attention").inputs(shape(tokens=4000), "flux", 0, "cpu")
    means = {name: inputs[name].double().mean((0, 1)) for name in "qkv"}  # [heads, head_dim]
    outliers = means["k"].abs() > 4
    assert outliers.sum(1).tolist() == [4] * 4
    assert torch.allclose(means["k"][outliers].abs(), torch.tensor(8.0).double(), atol=0.1)
    assert float(means["q"].abs().max()) < 0.1
    assert float(means["v"].std()) == pytest.approx(0.5, rel=0.2)
    with pytest.raises(ValueError, match="must be one of normal, flux, peaked, tailed, got 'uniform'"):
        operations.find("attention").inputs(shape(), "uniform", 0, "cpu")


def scores_of(inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores, `[batch, heads, queries, keys]`, and values, `[batch, heads, keys, head_dim]`, in float64."""
    q, k, v = (inputs[name].double().transpose(1, 2) for name in "qkv")
    return q @ k.mT * q.shape[-1] ** -0.5, v


@pytest.mark.parametrize("of", [shape(tokens=512), shape(tokens=333, dim=128, causal=True, dtype="float16")])
def test_peaked_inputs_have_few_keys_for_each_query_whose_scores_are_beyond_50(of: dict[str, Any]) -> None:
    inputs = operations.find("attention").inputs(of, "peaked", 0, "cpu")
    scores, _ = scores_of(inputs)
    if of["causal"]:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -math.inf)
    assert float(scores.amax(-1).min()) > 50  # of every query
    assert float(scores.max()) < 75
    keys = 1 / scores.softmax(-1).square().sum(-1)
    assert 1.5 < float(keys.mean()) < 5
    assert all(bool(x.half().isfinite().all()) for x in inputs.values())


def test_on_tailed_inputs_each_tenth_of_the_keys_contributes_alike() -> None:
    inputs = operations.find("attention").inputs(shape(tokens=2000, heads=1), "tailed", 0, "cpu")
    scores, values = scores_of(inputs)
    order = scores.argsort(-1)
    weights = scores.softmax(-1)
    whole = (weights @ values).norm()
    shares = []
    for tenth in order.chunk(10, -1):
        part = torch.zeros_like(weights).scatter(-1, tenth, weights.gather(-1, tenth))
        shares.append(float((part @ values).norm() / whole))
    assert min(shares) > 0.15
    assert max(shares) < 0.6  # all equal: sqrt(1/10) each
    lowest = torch.zeros_like(weights).scatter(-1, order[..., :20], weights.gather(-1, order[..., :20]))
    assert 0.05 < float((lowest @ values).norm() / whole) < 0.15
    assert float(inputs["v"].abs().max()) < 60_000


@pytest.mark.parametrize(("name", "of"), CASES)
def test_rows_at_positions_are_those_of_the_whole_answer(name: str, of: dict[str, Any]) -> None:
    operation = operations.find(name)
    inputs = operation.inputs(of, "flux", 0, "cpu")
    whole = operation.reference(of, inputs, torch.float64)
    positions = {key: torch.tensor(sorted({0, x.shape[1] // 3, x.shape[1] - 1})) for key, x in whole.items()}
    rows = operation.reference_at(of, inputs, positions)
    if name == "attention_backward":
        assert rows is None
    else:
        assert rows is not None
        close(rows, {key: x.index_select(1, positions[key]) for key, x in whole.items()}, 1e-12)


@pytest.mark.parametrize(("name", "of"), CASES)
def test_rescaled_inputs_have_the_answer_and_the_error_of_the_first_times_powers_of_two(
    name: str, of: dict[str, Any]
) -> None:
    """So a budget holds for any of them, and magnitudes that were kept of others are wrong."""
    operation = operations.find(name)
    inputs = operation.inputs(of, "normal", 0, "cpu")
    first = {dtype: operation.reference(of, inputs, dtype) for dtype in (torch.float64, getattr(torch, of["dtype"]))}
    factors = set()
    for seed in range(6):
        scaled = {key: x.clone() for key, x in inputs.items()}
        operation.rescale(of, scaled, random.Random(seed))
        factors.add(tuple(float(scaled[key].abs().max() / inputs[key].abs().max()) for key in "qkv"))
        for dtype, before in first.items():
            for key, x in operation.reference(of, scaled, dtype).items():
                factor = 2.0 ** round(math.log2(float(x.double().norm() / before[key].double().norm())))
                close({key: x / factor}, {key: before[key].double()}, 1e-12 if dtype == torch.float64 else 2e-4)
    assert len(factors) > 2


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [("bfloat16", {0.25, 0.5, 1.0, 2.0, 4.0}), ("float32", {0.25, 0.5, 1.0, 2.0, 4.0}), ("float16", {1.0})],
)
def test_small_numbers_of_float16_lose_no_bits(dtype: str, scales: set[float]) -> None:
    of = shape(tokens=8, dtype=dtype)
    operation = operations.find("attention")
    inputs = operation.inputs(of, "normal", 0, "cpu")
    made = [{key: x.clone() for key, x in inputs.items()} for _ in range(60)]
    for seed, each in enumerate(made):
        operation.rescale(of, each, random.Random(seed))
    found = {key: {float(each[key].abs().max() / inputs[key].abs().max()) for each in made} for key in "qv"}
    assert found == {"q": scales, "v": {1.0, 2.0, 4.0, 8.0, 16.0}}
