"""Short calls in rows that are one sample each; a fake stands in for the CUDA graph that makes a row's calls."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from clocks import ON_CPU, Clock, LikeAGPU
from fakes import tokens
from row_trials import IN_ROWS, LONG, SHORT, VARIANT, Graph, bound, graphs_made_here, paced, trial
from workers import QUICK

from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.graph import GraphRefused
from fluxbench.worker import rows
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.trial import Trial

BOTH_PASSES = tokens("both", 12, "attention_training")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with graphs_made_here(monkeypatch):
        yield


def test_a_short_call_is_timed_in_rows_and_a_long_one_by_itself(clock: Clock) -> None:
    calls = {SHORT: paced(clock, 1e-5, bound(SHORT)), LONG: paced(clock, 2e-3, bound(LONG))}
    reference = {SHORT: paced(clock, 5e-5, bound(SHORT)), LONG: paced(clock, 4e-3, bound(LONG))}
    one = trial(calls, reference)
    with torch.inference_mode():
        taken = one.burst()
        one.check()
    assert taken["calls"] == {"short": 50}
    assert [graph.calls // IN_ROWS.max_rounds for graph in Graph.made] >= [10, 50]  # the reference's row, and its own
    assert taken["samples_ms"] == {"short": pytest.approx([0.01] * 3), "long": pytest.approx([2.0] * 3)}
    assert taken["reference_ms"] == {"short": pytest.approx([0.05] * 3), "long": pytest.approx([4.0] * 3)}
    assert taken["launched_ms"] == {"short": pytest.approx(0.01)}
    assert taken["launch_ms"] == {"short": pytest.approx(0.01), "long": pytest.approx(2.0)}
    assert (one.wrong, taken["refused"]) == ({}, {})


def test_a_row_is_long_enough_where_the_host_takes_long_to_launch_a_call(clock: Clock) -> None:
    one = trial({SHORT: paced(clock, 1e-5, bound(SHORT), launch_s=4e-4)})
    with torch.inference_mode():
        taken = one.burst()
        one.check()
    assert taken["calls"] == {"short": 50}
    assert taken["samples_ms"] == {"short": pytest.approx([0.01] * 3)}
    assert taken["launched_ms"] == {"short": pytest.approx(0.4)}
    assert one.wrong == {}


@pytest.mark.parametrize("late", [1, 2])
def test_a_short_call_whose_first_ones_waited_for_their_host_has_a_row_all_the_same(clock: Clock, late: int) -> None:
    inner, waits = bound(SHORT), iter([5e-3] * late)

    def call(prepared: Any) -> Mapping[str, object]:
        clock.now += 1e-5 + next(waits, 0.0)
        return inner.call(prepared)

    one = trial({SHORT: Bound(call, inner.prepare)})
    with torch.inference_mode():
        rows = one.make_rows()
        assert len(rows.by_key) < 2  # the reference's, or both
        rows.settle(one.stopwatch)
    assert {name: row.calls for (name, _), row in rows.by_key.items()} == {"torch_flash": 50, "flex": 50}


def test_the_references_rows_are_captured_once_for_all_trials(clock: Clock) -> None:
    calls = {SHORT: paced(clock, 1e-4, bound(SHORT))}
    one = trial(calls)
    with torch.inference_mode():
        one.burst()
        assert len(Graph.made) == 2
        one.at(["short"]).burst()
    assert len(Graph.made) == 3


def test_a_later_process_makes_rows_as_long_as_the_first_and_captures_each_once(clock: Clock) -> None:
    calls = {SHORT: paced(clock, 1e-5, bound(SHORT)), LONG: paced(clock, 2e-3, bound(LONG))}
    one = trial(calls, {each: paced(clock, 1e-5, bound(each)) for each in calls})
    with torch.inference_mode():
        found = {key: row.calls if row else 0 for key, row in one.make_rows().found.items()}
        assert found == {("flex", "short"): 50, ("torch_flash", "short"): 50, ("flex", "long"): 0,
                         ("torch_flash", "long"): 50}  # fmt: skip
        Graph.made.clear()
        known = {"flex": {"short": 40, "long": 0}, "torch_flash": {"short": 30, "long": 0}}
        later = Trial(
            "flex", VARIANT, one.calls, (one.reference, one.reference_calls), one.workloads, None, LikeAGPU(), IN_ROWS,
            random.Random(1), known_rows=known,
        )  # fmt: skip
        for prepared in later.workloads.values():
            prepared.rows.clear()
        taken = later.burst()
        later.check()
    assert (taken["calls"], later.wrong, len(Graph.made)) == ({"short": 40}, {}, 2)


def test_the_reference_beside_a_variant_reads_its_slots(clock: Clock) -> None:
    inner, read = bound(SHORT), set()

    def call(inputs: Any) -> Mapping[str, object]:
        clock.now += 1e-4
        read.add(inputs["q"].data_ptr())
        return inner.call(inputs)

    one = trial({SHORT: paced(clock, 1e-4, bound(SHORT))}, {SHORT: Bound(call)})
    with torch.inference_mode():
        one.burst()
        one.check()
    assert read & {slot["q"].data_ptr() for slot in one.workloads["short"].contents.slots}
    assert one.wrong == {}


def test_both_passes_fit_into_a_row_and_a_backward_pass_alone_does_not(clock: Clock) -> None:
    backward = tokens("backward", 12, "attention_backward")
    calls = {one: paced(clock, 1e-4, bound(one)) for one in (BOTH_PASSES, backward)}
    with torch.no_grad():
        one = trial(calls)
        taken = one.burst()
        one.check()
    assert (taken["calls"], one.wrong) == ({"both": 5}, {})
    assert taken["refused"] == {"backward": "the forward pass before it is not in the graph"}


def test_a_call_that_cannot_be_captured_is_timed_by_itself_and_says_why(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise GraphRefused("RuntimeError: it waits for the device")

    monkeypatch.setattr(rows, "CapturedCalls", refuses)
    with torch.inference_mode():
        taken = trial({SHORT: paced(clock, 1e-5, bound(SHORT))}).burst()
    assert taken["samples_ms"] == {"short": pytest.approx([0.01] * 3)}
    assert (taken["calls"], taken["launched_ms"]) == ({}, {})
    assert taken["refused"] == {"short": "RuntimeError: it waits for the device"}


def test_a_call_that_lacks_memory_while_it_is_captured_lacks_memory(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is tried again: by itself it would have another time."""

    def refuses(*_: Any, **__: Any) -> None:
        raise GraphRefused("OutOfMemoryError: ...") from torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(rows, "CapturedCalls", refuses)
    with torch.inference_mode(), pytest.raises(torch.OutOfMemoryError):
        trial({SHORT: paced(clock, 1e-5, bound(SHORT))}).burst()


def by_address(inner: Bound) -> Bound:
    """Return a call that returns what it returned for the same tensors before."""
    kept: dict[int, Mapping[str, object]] = {}

    def call(tensors: Tensors) -> Mapping[str, object]:
        address = tensors["q"].data_ptr()
        return kept.setdefault(address, kept.get(address) or inner.call(tensors))

    return Bound(call)


def spoils(inner: Bound) -> Bound:
    """Return a call that changes q after it has read it."""

    def call(tensors: Tensors) -> Mapping[str, object]:
        out = inner.call(tensors)
        tensors["q"].mul_(1.5)
        return out

    return Bound(call)


def zeros(inner: Bound) -> Bound:
    return Bound(lambda tensors: {name: torch.zeros_like(out) for name, out in inner.call(tensors).items()})


@pytest.mark.parametrize("wrong", [by_address, spoils, zeros])
def test_what_a_row_returns_is_judged(clock: Clock, wrong: Any) -> None:
    one = trial({SHORT: paced(clock, 1e-4, wrong(bound(SHORT)))}, {SHORT: paced(clock, 1e-4, bound(SHORT))})
    with torch.inference_mode():
        one.burst()
        one.check()
    assert "short" in one.wrong


def test_a_row_whose_calls_change_what_they_get_by_little_is_found(clock: Clock) -> None:
    seen: set[int] = set()

    def changes(tensors: Tensors) -> Mapping[str, object]:
        out = bound(SHORT).call(tensors)
        if tensors["q"].data_ptr() not in seen:  # what later calls return stays within the budget
            seen.add(tensors["q"].data_ptr())
            tensors["q"].mul_(1.01)
        return out

    one = trial({SHORT: paced(clock, 1e-4, Bound(changes))}, {SHORT: paced(clock, 1e-4, bound(SHORT))})
    with torch.inference_mode():
        one.burst()
        one.check()
    assert "input" in one.wrong["short"].reason


@pytest.mark.parametrize(("first_s", "then_s", "calls"), [(0.03, 0.001, 2), (0.001, 0.03, 2), (0.2, 0.2, 1)])
def test_a_warm_call_in_which_the_host_was_late_does_not_decide_how_many_rounds_there_are(
    clock: Clock, first_s: float, then_s: float, calls: int
) -> None:
    """As where torch.compile records a CUDA graph; a long call is not made twice."""
    seen: list[Any] = []
    bounds = {"short": clock.bound(iter([first_s, then_s]), seen)}
    workloads = {"short": PreparedWorkload.make(SHORT, ON_CPU, 0)}
    pair = ("flex", bounds)
    took_s = rows.warm_up(pair, pair, "short", workloads, LikeAGPU(), dataclasses.replace(QUICK, max_rounds=9))
    assert took_s == pytest.approx(min(first_s, then_s))
    assert len(seen) == calls
