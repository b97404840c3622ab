"""When a trial wants CUDA graphs under load, and what it times where it has them."""

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


def test_calls_that_take_long_to_launch_are_wanted_as_graphs_and_say_why_there_is_none(clock: Clock) -> None:
    call = paced(clock, 0.001)
    one = trial({"small": prepared()}, call, stopwatch=LikeAGPU())
    one.burst()  # here launching a call is the call, and there is no CUDA to capture it
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


@pytest.mark.parametrize(("least_ms", "wanted"), [(0.64, False), (0.66, True)])
def test_the_shortest_launch_decides_whether_calls_are_graphs_whatever_else_the_host_does(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, least_ms: float, *, wanted: bool
) -> None:
    one = trial({"small": prepared()}, paced(clock, 0.001, bound()), stopwatch=LikeAGPU())
    one.burst()
    one._launch_ms, one._least_launch_ms = {"small": 5.0}, {"small": least_ms}

    def refuse(*_: Any, **__: Any) -> Any:
        raise GraphRefused("no graph here")

    monkeypatch.setattr(blocks, "captured_by_name", refuse)
    assert one.sustain()["refused"] == ("no graph here" if wanted else None)


@pytest.mark.parametrize("idle", [True, False])
def test_calls_that_begin_on_an_idle_device_are_wanted_as_graphs_however_long_they_take_to_launch(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, *, idle: bool
) -> None:
    call_s = {"small": 0.004, "smaller": 0.001}
    workloads = {each.name: prepared(each) for each in (SMALL, SMALLER)}
    calls = {
        each.name: dataclasses.replace(paced(clock, call_s[each.name], bound(each)), idle=idle)
        for each in (SMALL, SMALLER)
    }
    one = trial(workloads, calls, stopwatch=LikeAGPU())
    one.burst()
    one._least_launch_ms = dict.fromkeys(calls, 0.1)  # of 4 and 1 ms
    replays: list[Any] = []

    def by_name(calls: Any, inputs: Any, device: Any, *, long: bool) -> Any:
        assert (list(calls), long) == (["smaller", "small"], True)

        def graph(name: str) -> Callable[[Any], Any]:
            def replay(given: Any) -> Any:
                replays.append(given)
                return calls[name](given[-1])

            return replay

        return {name: graph(name) for name in reversed(calls)}

    monkeypatch.setattr(blocks, "captured_by_name", by_name)
    block = one.sustain()
    assert block["replayed"] is idle
    last = {name: samples[-1] for name, samples in block["samples_ms"].items()}
    of_call = {name: pytest.approx(1e3 * seconds) for name, seconds in call_s.items()}
    assert last == of_call
    assert block["launched_ms"] == (of_call if idle else {})
    assert len(replays) == (2 * len(block["windows"]) if idle else 0)
    one.check()
    assert one.wrong == {}
