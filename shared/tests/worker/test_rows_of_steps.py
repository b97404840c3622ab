"""Steps of whole models that are replayed as CUDA graphs however long they are, on a clock that a test moves."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from clocks import ON_CPU, Clock, LikeAGPU
from row_trials import IN_ROWS, LONG, SHORT, Graph, bound, graphs_made_here, paced, trial

from fluxbench import operations, variants
from fluxbench.operations import held, sets
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.plan import Plan
from fluxbench.worker import rows

OF_STEPS = dataclasses.replace(IN_ROWS, row_below_s=math.inf)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with graphs_made_here(monkeypatch):
        yield


def test_a_model_s_step_is_replayed_twice_however_long_and_one_that_is_never_captured_is_launched(clock: Clock) -> None:
    assert Plan.on(ON_CPU, replayed=True) == Plan.on(ON_CPU)
    assert Plan.on(torch.device("cuda"), replayed=True).row_below_s == OF_STEPS.row_below_s
    [step] = sets.named(["decode-model-small-512"])
    inner = operations.find(step.operation).bind(variants.find("torch_flash"), step.shape)
    made, paced_call = [], paced(clock, 0.03, inner, launch_s=0.05)

    def call(prepared: Any) -> Mapping[str, object]:
        made.append("replayed" if Graph.replays else "launched")
        return paced_call.call(prepared)

    one = trial({step: Bound(call, paced_call.prepare)}, plan=OF_STEPS)
    stopwatch = one.stopwatch
    assert isinstance(stopwatch, LikeAGPU)
    launched = trial({SHORT: dataclasses.replace(paced(clock, 1e-5, bound(SHORT)), captured=False)}, plan=OF_STEPS)
    with torch.no_grad():
        taken = one.burst()
        one.check()
        assert launched.burst()["calls"] == {}
    held.release()
    assert (one.wrong, taken["calls"]) == ({}, {step.name: 2})
    assert taken["samples_ms"] == {step.name: pytest.approx([30.0] * 3)}
    assert taken["launched_ms"] == {step.name: pytest.approx(50.0)}
    # A replay right after a launched call takes less time: one before the rounds and one in each are not timed.
    replayed = [kind for kind, _ in itertools.groupby(made)].count("replayed"), made.count("replayed") // 2
    assert replayed == (1, 2 * rows._REPLAYS + 2 + 3 * (1 + 2))  # of two rows, in three rounds
    assert max(stopwatch.spins) == 1e-3  # rows take less to launch than to run, but the host has to wake up


def test_beside_launched_calls_a_replay_of_a_model_s_step_follows_one_that_is_not_timed_on_other_contents(
    clock: Clock,
) -> None:
    step, read = dataclasses.replace(LONG, name="step"), list[float]()
    own, beside = paced(clock, 0.03, bound(step)), paced(clock, 0.02, bound(step))

    def call(tensors: Tensors) -> Mapping[str, object]:
        if Graph.replays:
            read.append(float(tensors["q"].sum()))
        return own.call(tensors)

    one = trial({step: Bound(call, own.prepare)}, {step: dataclasses.replace(beside, captured=False)}, OF_STEPS)
    with torch.inference_mode():
        assert one.make_rows().own.keys() == {"step"}
        read.clear()
        taken = one.burst()
        one.check()
    assert one.wrong == {}
    assert (taken["calls"], taken["samples_ms"]) == ({"step": 2}, {"step": pytest.approx([30.0] * 3)})
    last = read[1::2]  # of each replay, the call that is judged where it is timed
    assert len(last) == 1 + 3 * 2  # one before the rounds, two in each
    assert all(not_timed != timed for not_timed, timed in zip(last[1::2], last[2::2], strict=True))
    assert all(timed == not_timed for timed, not_timed in zip(last[::2], last[1::2], strict=False))


@pytest.mark.parametrize(("step_s", "rounds"), [(0.008, 5), (0.03, 3)])
def test_the_rounds_of_a_model_s_step_follow_from_its_replay_and_one_of_them_is_judged_whole(
    clock: Clock, step_s: float, rounds: int
) -> None:
    step, plan = dataclasses.replace(LONG, name="step"), dataclasses.replace(OF_STEPS, min_rounds=5, max_rounds=9)
    for seed in range(8):
        one = trial({step: paced(clock, step_s, bound(step), launch_s=0.05)}, plan=plan)
        one.rng = random.Random(seed)
        with torch.inference_mode():
            taken = one.burst()
            assert len(one.returned._whole["step"]) == 1
            one.check()
        assert one.wrong == {}
        assert taken["samples_ms"]["step"] == pytest.approx([1e3 * step_s] * rounds)
