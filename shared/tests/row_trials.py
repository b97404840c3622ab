"""Trials whose short calls are in rows on a clock that a test moves; a fake stands in for the CUDA graph of a row."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from clocks import ON_CPU, Clock, LikeAGPU, small_cache
from fakes import tokens
from workers import QUICK, honest, variant

from fluxbench import operations
from fluxbench.operations.protocol import Bound
from fluxbench.operations.workload import Workload
from fluxbench.timing.plan import Plan
from fluxbench.variants.forms import EAGER, FormedVariant
from fluxbench.worker import rows
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.trial import Trial

SHORT, LONG = tokens("short", 16), tokens("long", 24)
IN_ROWS = dataclasses.replace(QUICK, row_s=5e-4, row_below_s=1e-3, min_rounds=3, max_rounds=3)
VARIANT = variant("flex")


class Graph:
    """Makes a captured row's calls each time, as a graph does on the device; `calls` are those of all replays."""

    made: ClassVar[list[Graph]] = []
    replays: ClassVar[bool] = False  # now

    def __init__(self, call: Any, inputs: Sequence[Any], _pool: None = None, **_: Any) -> None:
        self._call, self._inputs = call, list(inputs)
        self.calls = 0
        Graph.made.append(self)

    def __call__(self, _: Sequence[Any]) -> Mapping[str, object]:
        self.calls += len(self._inputs)
        Graph.replays = True
        outputs: list[Mapping[str, object]] = [self._call(inputs) for inputs in self._inputs]
        Graph.replays = False
        return outputs[-1]


@contextlib.contextmanager
def graphs_made_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a fake make the rows, in one thread."""
    small_cache(monkeypatch)
    monkeypatch.setattr(rows, "CapturedCalls", Graph)
    Graph.made.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several wait for each other where the machine does something else
    yield
    torch.set_num_threads(threads)


def bound(workload: Workload) -> Bound:
    """Return honest attention on a workload."""
    formed = FormedVariant(variant("right", honest), EAGER)
    return operations.find(workload.operation).bind(formed, workload.shape)


def paced(clock: Clock, seconds: float, inner: Bound, launch_s: float = 0.0) -> Bound:
    """Return an honest call that takes so long, and alone no less than the host takes to launch it."""

    def call(prepared: Any) -> Mapping[str, object]:
        clock.now += seconds if Graph.replays else max(seconds, launch_s)
        return inner.call(prepared)

    return Bound(call, inner.prepare)


def trial(
    calls: Mapping[Workload, Bound], reference: Mapping[Workload, Bound] | None = None, plan: Plan = IN_ROWS
) -> Trial:
    """Return the trial of a variant beside a reference, or beside itself."""
    workloads = {one.name: PreparedWorkload.make(one, ON_CPU, 1) for one in calls}
    beside = {one.name: call for one, call in (reference or calls).items()}
    own = {one.name: call for one, call in calls.items()}
    return Trial("flex", VARIANT, own, ("torch_flash", beside), workloads, None, LikeAGPU(), plan, random.Random(1))
