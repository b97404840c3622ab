"""What is checked at some workloads alone, where a study names them: a ragged shape that all lengths share."""

from __future__ import annotations

import pytest
from fakes import TINIER, TINY
from workers import failures, given, wrapped

from fluxbench.worker.request import Effort


@pytest.mark.parametrize("full", [(), (TINY.name,), (TINIER.name,)])
def test_the_ragged_shape_is_checked_at_the_first_workload_that_is_checked_in_full(
    monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...]
) -> None:
    batches: list[int] = []
    load = wrapped(lambda attend, inputs: batches.append(len(inputs[0])) or attend(*inputs))  # type: ignore[func-returns-value]
    assert failures(given(monkeypatch, load, workloads=(TINY, TINIER), effort=Effort(fully=full))) == []
    assert batches.count(2) == 2
    wrong = wrapped(lambda attend, inputs: attend(*inputs) * (1 if len(inputs[0]) == 1 else 2))
    seen = given(monkeypatch, wrong, name="wrong", workloads=(TINY, TINIER), effort=Effort(fully=full))
    assert ("wrong", "INCORRECT") in [(name, status) for name, status, _ in failures(seen)]
