"""Contents that follow from the case that is checked: one whole reference of a workload in a process."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fakes import tokens
from judged import verdict

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.contents import Contents
from fluxbench.operations.workload import Workload

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"heads": 4, "kv_heads": 4, "head_dim_qk": 16, "head_dim_v": 16, "batch": 3}
FORWARD = tokens("forward", 24, **SIZES)
TRAINING = tokens("training", 24, "attention_training", **{**SIZES, "dtype": "float16"})
BOTH = pytest.mark.parametrize("workload", [FORWARD, TRAINING], ids=lambda workload: workload.name)


def made(workload: Workload) -> tuple[Contents, Case]:
    case = Case.make(workload, "normal", 0, CPU)
    return Contents.make(workload, case, CPU, rotation=2, most=2, share=1.0, derived=True), case


def outputs(workload: Workload, inputs: Any, dtype: torch.dtype) -> Mapping[str, torch.Tensor]:
    return operations.find(workload.operation).reference(workload.shape, inputs, dtype)


@BOTH
def test_what_they_must_give_is_the_reference_of_their_own_inputs(workload: Workload) -> None:
    contents, case = made(workload)
    assert [content.expected is not None for content in contents.pool] == [True, False]
    for content in contents.pool:
        assert not content.inputs["q"].equal(case.inputs["q"])
        whole = outputs(workload, content.inputs, torch.float64)
        for name, rows in content.rows.items():
            right = whole[name].index_select(1, content.positions[name])
            torch.testing.assert_close(rows, right, rtol=1e-5, atol=1e-6)
        for name, expected in (content.expected or {}).items():
            torch.testing.assert_close(expected.double(), whole[name], rtol=1e-5, atol=1e-6)


@BOTH
def test_no_other_reference_is_computed(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.make(workload, "normal", 0, CPU)

    def computed(*_: Any) -> None:
        raise AssertionError

    for method in ("reference", "reference_at"):
        monkeypatch.setattr(type(case.operation), method, computed)
    contents = Contents.make(workload, case, CPU, rotation=2, most=2, share=1.0, derived=True)
    assert len(contents.pool) == 2


@BOTH
def test_no_two_processes_have_the_same(workload: Workload) -> None:
    firsts = [made(workload)[0].pool[0].inputs["q"] for _ in range(3)]
    assert not any(firsts[0].equal(other) for other in firsts[1:])


@BOTH
def test_an_output_is_judged_whole_by_what_follows(workload: Workload) -> None:
    contents, case = made(workload)
    content = contents.whole(random.Random(0))
    assert content.expected is not None
    right = dict(outputs(workload, content.inputs, case.dtype))
    judged = case.expecting(dict(content.expected))
    assert verdict(right, judged) is None
    for name, out in right.items():
        wrong = out.clone()
        wrong[-1, 5, -1] = 0.0
        assert "over the budget" in str(verdict({**right, name: wrong}, judged))
    assert verdict(dict(outputs(workload, case.inputs, case.dtype)), judged)  # the answer of the case that was checked


@BOTH
def test_known_yardsticks_are_not_computed_again(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Case.make(workload, "normal", 0, CPU)
    computed: list[torch.dtype] = []
    reference = type(first.operation).reference

    def counted(self: Any, shape: Any, inputs: Any, dtype: torch.dtype, *more: Any) -> Any:
        computed.append(dtype)
        return reference(self, shape, inputs, dtype, *more)

    monkeypatch.setattr(type(first.operation), "reference", counted)
    later = Case.make(workload, "normal", 1, CPU, first.yardsticks)
    assert computed == [torch.float64]
    assert all(later.budgets(name) == first.budgets(name) for name in first.expected)
