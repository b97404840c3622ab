"""A row's calls where the host launches them one by one: what a program without CUDA graphs gets."""

from __future__ import annotations

from typing import Any

import pytest
from clocks import Clock, InTurn, LikeAGPU

from fluxbench.timing.rows import LAUNCHED, Row, launched


@pytest.mark.parametrize("calls", [2, 40])
def test_the_last_few_calls_of_a_row_are_timed_after_one_that_is_not(clock: Clock, calls: int) -> None:
    given, made = InTurn(*range(calls)), list[int]()

    def call(inputs: int) -> dict[str, Any]:
        clock.now += 0.5 if not made else 0.001  # the first one wakes the host
        made.append(inputs)
        return {"out": inputs}

    times_ms = launched(LikeAGPU(), call, Row(calls, given, lambda turn: {}))  # type: ignore[arg-type]
    assert len(made) == min(calls, LAUNCHED + 1)
    assert times_ms == pytest.approx((1.0, 1.0))
    assert given.kept == [{"out": calls - 1}]
