"""A call on the same contents again over one on new ones, on a clock that a test moves by hand."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
import torch
from clocks import WORKLOADS, Clock, LikeAGPU, content_of, contents

from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.repeated import repeated_over_new


def test_the_last_of_a_random_number_of_calls_on_the_same_contents_is_compared_with_those_on_new_ones(
    clock: Clock,
) -> None:
    """The median counts of five rounds; one is enough where it tells nothing. The untimed call is on other contents."""
    stopwatch, seen, fresh = LikeAGPU(), list[Any](), itertools.count(100)
    shares = {"small": iter([0.5, 1.0, 0.6, 1.0, 0.4, 1.0, 2.0, 1.0, 2.0, 1.0]), "smaller": itertools.repeat(1.0)}

    def on(workload: str) -> Bound:
        contents_of = dict[float, float]()

        def call(given: Tensors) -> dict[str, torch.Tensor]:
            value = float(given["q"].double().sum())
            clock.now += 0.01 * contents_of.get(value, 1.0)
            if value not in contents_of:
                contents_of[value] = next(shares[workload]) if value > 0 else 1.0
            seen.append((workload, value))
            return {"out": given["q"]}

        return Bound(call)

    def new(workload: str) -> Tensors:
        shape = content_of(WORKLOADS[workload == "smaller"], 0).inputs
        return {name: torch.full_like(x, next(fresh)) for name, x in shape.items()}

    def quotients(call_s: float = 0.01, **calls: Bound) -> dict[str, float]:
        given = contents(1)
        for each in given.values():
            each.inputs["q"].fill_(-1)
        launch_s = dict.fromkeys(calls, 1e-4)
        return repeated_over_new(stopwatch, calls, given, new, launch_s, random.Random(3))

    assert quotients(small=on("small"), smaller=on("smaller")) == {
        "small": pytest.approx(0.6), "smaller": pytest.approx(1.0),
    }  # fmt: skip
    of_small = [*Counter(value for workload, value in seen if workload == "small").values()]
    assert set(of_small[1::2]) <= {*range(2, 7)}
    assert len(set(of_small[1::2])) > 2
    assert of_small[::2] == [1, 2, 2, 2, 2, 1]  # timed once, and then the warm call of the next round
    assert len({value for workload, value in seen if workload == "smaller"}) == 3
    stopwatch.spins.clear()
    quotients(small=clock.bound(0.01))
    assert len(stopwatch.spins) == 1


@pytest.mark.parametrize("change", [0.97, 1.03])
def test_calls_in_succession_whose_clock_changes_skip_no_work(clock: Clock, change: float) -> None:
    call_s = itertools.accumulate(itertools.repeat(change), lambda seconds, by: seconds * by, initial=0.01)

    def call(given: Tensors) -> dict[str, torch.Tensor]:
        clock.now += next(call_s)
        return {}

    stopwatch = LikeAGPU()
    found = repeated_over_new(
        stopwatch, {"small": Bound(call)}, contents(1), lambda _: content_of(WORKLOADS[0], 7).inputs, {"small": 0.01},
        random.Random(4),
    )  # fmt: skip
    assert found == {"small": pytest.approx(1.0, abs=0.01)}
    assert stopwatch.spins == [pytest.approx(0.08)]


def test_a_host_that_is_late_with_one_call_makes_no_kernel_skip_work(clock: Clock) -> None:
    late_s = itertools.chain([0.0, 0.02], itertools.repeat(0.0))  # the first call that is timed

    def call(given: Tensors) -> dict[str, torch.Tensor]:
        clock.now += 0.01 + next(late_s)
        return {}

    stopwatch = LikeAGPU()
    found = repeated_over_new(
        stopwatch, {"small": Bound(call)}, contents(1), lambda _: content_of(WORKLOADS[0], 7).inputs, {"small": 1e-4},
        random.Random(4),
    )  # fmt: skip
    assert found == {"small": pytest.approx(1.0)}
    assert stopwatch.spins[0] == pytest.approx(8e-4)
    assert min(stopwatch.spins[1:]) >= 0.05  # as long as the host took


def test_a_backward_pass_that_keeps_its_result_with_the_graph_of_its_forward_pass_is_reported(clock: Clock) -> None:
    def call(graph: set[str]) -> dict[str, torch.Tensor]:
        clock.now += 0.001 if graph else 0.01
        graph.add("result")
        return {}

    bound = Bound(call, lambda tensors: set())
    found = repeated_over_new(
        LikeAGPU(), {"small": bound}, contents(1), lambda _: content_of(WORKLOADS[0], 7).inputs, {"small": 0.01},
        random.Random(3),
    )  # fmt: skip
    assert found == {"small": pytest.approx(0.1)}
