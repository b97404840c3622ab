"""Which calls a trial replays as CUDA graphs under load, and what it times where it has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from clocks import Clock, LikeAGPU, small_cache
from sample_trials import SMALL, SMALLER, bound, paced, prepared, trial

from fluxbench.timing.graph import GraphRefused
from fluxbench.worker import block as blocks


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small_cache(monkeypatch)
    with torch.inference_mode():
        yield


def test_calls_are_wanted_as_graphs_and_say_why_there_is_none(clock: Clock) -> None:
    call = paced(clock, 0.001)
    one = trial({"small": prepared()}, call, stopwatch=LikeAGPU())
    one.burst()  # there is no CUDA to capture calls
    block = one.sustain()
    assert block["replayed"] is False
    assert block["refused"]
    one = trial({"small": prepared()}, call, stopwatch=LikeAGPU(), replays=False)
    one.burst()
    assert one.sustain()["refused"] is None
    one = trial({"small": prepared()}, call, stopwatch=LikeAGPU(), replays=True)
    one.burst()
    with pytest.raises(GraphRefused):  # as the processes before had it
        one.sustain()
    one = trial({"small": prepared()}, dataclasses.replace(call, captured=False), stopwatch=LikeAGPU())
    one.burst()
    assert one.sustain()["refused"] is None  # a step that ranks share is launched as its user launches it


@pytest.mark.parametrize("replays", [None, True])
@pytest.mark.parametrize("idle", [True, False])
def test_what_can_be_captured_is_replayed_and_launched_in_the_first_process_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, *, idle: bool, replays: bool | None
) -> None:
    call_s = {"small": 0.004, "smaller": 0.001}
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    calls = {
        each.name: dataclasses.replace(paced(clock, call_s[each.name], bound(each)), idle=idle)
        for each in (SMALL, SMALLER)
    }
    called: list[str] = []

    def noted(name: str) -> Callable[[Any], Any]:
        def call(inputs: Any) -> Any:
            called.append(name)
            return calls[name].call(inputs)

        return call

    noting = {name: dataclasses.replace(one, call=noted(name)) for name, one in calls.items()}
    one = trial(workloads, noting, stopwatch=LikeAGPU(), replays=replays)
    one.burst()
    replayed: list[Any] = []

    def by_name(calls: Any, inputs: Any, device: Any, *, long: bool, **_: Any) -> Any:
        assert list(calls) == ["smaller", "small"]  # the last is captured first
        assert long is idle

        def graph(name: str) -> Callable[[Any], Any]:
            def replay(given: Any) -> Any:
                replayed.append(given)
                assert len(given) == len(inputs[name])
                for each in given:
                    out = captured[name](each)
                return out

            return replay

        return {name: graph(name) for name in reversed(calls)}

    monkeypatch.setattr(blocks, "captured_by_name", by_name)
    captured = {name: each.call for name, each in calls.items()}
    called.clear()
    block = one.sustain()
    if replays:  # after the block a whole output of each; in it, beside a graph of as much memory, none of the largest
        assert set(called[: -len(workloads)]) == (set() if idle else {"smaller"})
    assert block["replayed"] is True
    last = {name: samples[-1] for name, samples in block["samples_ms"].items()}
    of_call = {name: pytest.approx(1e3 * seconds) for name, seconds in call_s.items()}
    assert last == of_call
    assert block["launched_ms"] == (of_call if replays is None else {})
    assert len(replayed) == 2 * len(block["windows"])
    one.check()
    assert one.wrong == {}
