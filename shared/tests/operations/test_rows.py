"""Rows of the reference at a few tokens are those of the whole, in every precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fakes import tokens

from fluxbench import operations
from fluxbench.operations import rows

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"heads": 6, "kv_heads": 2, "head_dim_qk": 32, "head_dim_v": 16, "batch": 2},
    "causal": {"heads": 2, "causal": True},
    "fewer queries": {"heads": 2, "causal": True, "seq_len_q": 20},
    "causal and grouped": {"heads": 4, "kv_heads": 2, "causal": True, "seq_len_q": 33, "batch": 2},
}
# Of float32 alone the sums of the pass over all scores matter.
PRECISIONS = [
    *(("bfloat16", "exact", 0.01), ("bfloat16", "rounded", 0.01)),
    *(("float32", "exact", 0.7), ("float32", "tf32", 0.25)),
]


@pytest.mark.parametrize("operation", ["attention", "attention_backward", "attention_training"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_the_whole_reference(operation: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_SCORES_BYTES", 1 << 12)  # several blocks of heads and of queries
    for dtype, precision, within in PRECISIONS:
        of = tokens("small", 36, operation, **{"dtype": dtype, **SHAPES[shape]})
        known: Any = operations.find(operation)
        inputs = known.inputs(of.shape, "normal" if dtype == "float32" else "flux", 1, "cpu")
        answer = known.reference(of.shape, inputs, torch.float64)
        positions = {name: torch.tensor([0, 7, x.shape[1] - 1]) for name, x in answer.items()}
        found = known.reference_rows(of.shape, inputs, positions, torch.float64)
        yardstick = known.reference(of.shape, inputs, getattr(torch, dtype), precision)
        rounded = known.reference_rows(of.shape, inputs, positions, getattr(torch, dtype), precision)
        assert found.keys() == rounded.keys() == answer.keys()
        for name, whole in answer.items():
            exact = whole.index_select(1, positions[name])
            torch.testing.assert_close(found[name], exact, rtol=1e-12, atol=1e-12)
            assert rounded[name].dtype == yardstick[name].dtype
            errors = [
                float((x.double() - exact).norm() / exact.norm())
                for x in (rounded[name], yardstick[name].index_select(1, positions[name]))
            ]
            assert errors[0] == pytest.approx(errors[1], rel=within), (name, dtype, precision)
