"""Which layers are measured: the published table's and those of models; and what is no layer."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from fluxbench import operations
from fluxbench.analysis.audit import published
from fluxbench.operations import layer_sets, sets

BASE = {"batch": 2, "seq_len": 33, "width": 48, "heads": 4, "kv_heads": 4, "head_dim": 16}


def test_the_published_configurations_are_those_of_the_table() -> None:
    columns = ("batch", "seq_len", "heads", "kv_heads", "head_dim")
    with published.MEASUREMENTS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "attention-layers" and row["unit"] == "ms"]
    theirs = {(row["table"], *(int(row[name]) for name in columns), int(row["latent_dim"] or 0)) for row in rows}
    ours = [one.shape for one in layer_sets.sets()["layers-published"] if one.operation == "layer"]
    assert len(ours) == len(theirs) == 15
    assert {(*(of[name] for name in columns), of.get("latent_dim", 0)) for of in ours} == {row[1:] for row in theirs}
    assert all(of["width"] == of["heads"] * of["head_dim"] and not of["causal"] for of in ours)  # type: ignore[operator]


def test_57_workloads_have_names_of_their_own() -> None:
    every = [*sets.named(["layers-models", "layers-published"])]
    assert len({workload.name for workload in every}) == len(every) == 57
    assert {workload.operation for workload in every} == {"layer", "layer_backward", "layer_training"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "sparse"}, "kind of a layer must be one of fused, separate, grouped, .* got 'sparse'"),
        ({"experts": 8}, "a layer has no experts"),
        ({"width": 0}, "width of a layer must be a positive integer, got 0"),
        ({"rotary": True}, "a layer of kind separate has no rotary"),
        ({"kv_heads": 2}, "kv_heads of a separate layer must be its heads, 4, got 2"),
        ({"kind": "multi_query", "kv_heads": 2}, "kv_heads of a multi-query layer must be 1, got 2"),
        ({"kind": "latent"}, "a layer of kind latent must have latent_dim"),
        ({"kind": "grouped", "kv_heads": 3}, "heads of an attention must be a multiple of kv_heads"),
        ({"kind": "grouped", "rotary": True, "head_dim": 15}, "a rotated head must have an even size, got 15"),
        ({"kind": "latent", "latent_dim": "wide"}, "latent_dim of a layer must be positive, got 'wide'"),
    ],
)
def test_a_shape_that_no_layer_has_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        operations.find("layer").cost({**BASE, "kind": "separate", **changes})
