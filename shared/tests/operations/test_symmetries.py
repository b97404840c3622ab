"""Inputs that follow from others: their outputs are the reference's, and nothing of the others is left in place."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fakes import tokens

from fluxbench import operations
from fluxbench.operations.protocol import KnowsSymmetries

SMALL = {"head_dim_qk": 16, "head_dim_v": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"heads": 6, "kv_heads": 2, "head_dim_qk": 32, "head_dim_v": 16},
    "causal": {"heads": 4, "kv_heads": 4, "causal": True, **SMALL},
    "float16, of a batch": {"heads": 4, "kv_heads": 2, "batch": 3, "dtype": "float16", **SMALL},
    "one head, causal": {"heads": 1, "kv_heads": 1, "causal": True, **SMALL},
    "fewer queries, causal": {"heads": 2, "kv_heads": 1, "seq_len_q": 9, "causal": True, **SMALL},
}


@pytest.mark.parametrize("name", ["attention_backward", "attention_training"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rows_are_those_of_the_reference_of_the_other_inputs(name: str, shape: dict[str, Any]) -> None:
    workload = tokens("varied", 24, name, **shape)
    operation = operations.find(name)
    assert isinstance(operation, KnowsSymmetries)
    inputs = operation.inputs(workload.shape, "normal", 0, "cpu")
    outputs = operation.reference(workload.shape, inputs, torch.float64)
    made = set()
    for seed in range(4):
        positions = {output: torch.tensor([0, 3, x.shape[1] - 1]) for output, x in outputs.items()}
        new, rows = operation.varied(workload.shape, inputs, outputs, positions, random.Random(seed))
        expected = operation.reference(workload.shape, new, torch.float64)
        assert new.keys() == inputs.keys()
        assert rows.keys() == expected.keys()
        for output, whole in expected.items():
            torch.testing.assert_close(rows[output], whole.index_select(1, positions[output]), rtol=1e-11, atol=1e-11)
        for one, other in zip(new.values(), inputs.values(), strict=True):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        made.add(tuple(float(x[0, 0, 0, 0]) for x in new.values()))
    assert len(made) == 4


def test_of_one_causal_head_no_two_are_alike_but_for_a_factor() -> None:
    operation = operations.find("attention_training")
    assert isinstance(operation, KnowsSymmetries)
    shape = tokens("varied", 5, "attention_training", heads=1, kv_heads=1, causal=True, **SMALL).shape
    inputs = operation.inputs(shape, "normal", 0, "cpu")
    outputs = operation.reference(shape, inputs, torch.float64)
    positions = {output: torch.tensor([0]) for output in outputs}
    made = [operation.varied(shape, inputs, outputs, positions, random.Random(seed))[0] for seed in range(100)]
    for name in inputs:
        whole = [new[name].float().flatten() for new in made]
        assert len({tuple((x / x.norm() * x[0].sign()).tolist()) for x in whole}) == len(made)


def test_every_head_may_come_from_any_other_and_without_a_mask_every_token_too() -> None:
    operation, seen = operations.find("attention_training"), set()
    assert isinstance(operation, KnowsSymmetries)
    shape = tokens("varied", 5, "attention_training", heads=4, kv_heads=2, head_dim_qk=8, head_dim_v=8).shape
    inputs = operation.inputs(shape, "normal", 0, "cpu")
    outputs = operation.reference(shape, inputs, torch.float64)
    positions = {output: torch.tensor([0]) for output in outputs}
    sizes = inputs["q"][0].float().norm(dim=-1)  # [tokens, heads], each its own
    for seed in range(200):
        new, _ = operation.varied(shape, inputs, outputs, positions, random.Random(seed))
        ratio = new["q"][0].float().norm(dim=-1)[0, 0] / sizes
        seen |= {tuple(place) for place in (torch.log2(ratio).frac() == 0).nonzero().tolist()}
    assert len(seen) == sizes.numel()
