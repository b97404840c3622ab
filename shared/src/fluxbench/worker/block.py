"""The sustained block of one variant on a GPU, in three steps.

What it needs is made, then it is taken, then what it gave is looked at. Only the second needs the device alone, so the
blocks of several variants can follow one another without a rest.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from fluxbench.operations.protocol import Bound
from fluxbench.timing.graph import CapturedCalls, GraphPool, GraphRefused, captured_by_name
from fluxbench.timing.plan import Plan
from fluxbench.timing.rotation import Rotation
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import Block, calls_in_a_window, launched_ms, sustain
from fluxbench.timing.windows import Lead
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.returned import Returned
from fluxbench.worker.rows import by_memory


class LeadingCall(NamedTuple):
    """The call of a variant that needs least memory, which takes so many seconds."""

    workload: str
    bound: Bound
    seconds: float

    def made(self, workloads: Mapping[str, PreparedWorkload]) -> Lead:
        """Return it with inputs of its own workload."""
        contents = workloads[self.workload].contents
        inputs = self.bound.prepared(contents.put(contents.pool[0]))
        return Lead(functools.partial(self.bound.call, inputs), 1e3 * self.seconds)


class TrialBlock:
    """A block at the workloads of a trial, which may be some of a variant's; calls take `call_s` seconds."""

    def __init__(
        self,
        calls: Mapping[str, Bound],
        workloads: Mapping[str, PreparedWorkload],
        returned: Returned,
        stopwatch: Stopwatch,
        plan: Plan,
        rng: random.Random,
        call_s: Mapping[str, float],
        replays: bool | None,
        lead: LeadingCall,
    ) -> None:
        """`returned` gets what calls return. `replays`: as `Trial` has it. `lead`: before windows of graphs."""
        self._idle = any(bound.idle for bound in calls.values())
        self._by_memory = by_memory(calls, workloads)
        names = self._by_memory if self._idle else list(calls)
        self._calls = {name: calls[name] for name in names}
        self._timed = {name: calls[name].call for name in names}
        self._workloads, self._returned, self._stopwatch = workloads, returned, stopwatch
        self._plan, self._rng, self._call_s, self._replays, self._lead = plan, rng, call_s, replays, lead
        self._graphs: Mapping[str, CapturedCalls] | None = None
        self._given: dict[str, Rotation] = {}
        self._refused: str | None = None
        self._block: Block | None = None

    def prepare(self, pool: GraphPool | None = None, *, beside_others: bool = False) -> None:
        """Capture the calls of a window as CUDA graphs where they can be; note why they are refused.

        `pool`: memory that they share with those of other blocks, of which none is taken at the same time. Raises
        `GraphRefused` where the processes before had graphs, and `torch.OutOfMemoryError` where there is too little
        memory: `beside_others`, which keep theirs meanwhile, and of short calls at all. Of long ones a graph may be
        what does not fit.
        """
        if self._replays is False or not all(bound.can_be_captured for bound in self._calls.values()):
            return
        try:
            given = self._rotations(1)
            counts = {name: calls_in_a_window(self._call_s[name], self._plan) for name in self._calls}
            turns = {name: given[name].turn(1 + counts[name])[1:] for name in self._calls}
            ascending = {name: self._timed[name] for name in self._by_memory}
            within = {name: self._workloads[name].replays_within for name in ascending}
            pool = pool or GraphPool(self._stopwatch.device)
            graphs = captured_by_name(ascending, turns, pool, long=self._idle, within=within)
            self._graphs = {name: graphs[name] for name in self._calls}
            self._given = given
        except GraphRefused as error:
            if error.lack and (beside_others or not self._idle):
                raise error.lack from error
            if self._replays:
                raise
            self._refused = str(error)

    def take(self, loaded_until: float = -math.inf) -> Block:
        """Take the block. Until `loaded_until` (monotonic seconds) the device is as another variant's block left it."""
        if self._graphs is None:
            window_s = sum(max(self._plan.chunk_s, call_s) for call_s in self._call_s.values())
            longest_s = self._plan.max_warm_up_s + self._plan.max_block_s
            self._given = self._rotations(1 + math.ceil(longest_s / window_s))
        else:
            self._fill()
        plan = self._plan.loaded if time.monotonic() < loaded_until else self._plan
        launched = self._graphs is None
        lead = None if launched or self._lead.workload in self._calls else self._lead.made(self._workloads)
        self._block = sustain(
            self._stopwatch, self._timed, self._call_s, self._given, plan, self._graphs,
            idle=self._idle and launched, replays=self._idle and not launched,
            leads=() if launched else self._by_memory[:1], lead=lead,  # beside graphs of as much memory
        )  # fmt: skip
        if lead:
            self._returned.see_change(next(iter(self._calls)), self._workloads[self._lead.workload].contents)
        self._see_changes()
        return self._block

    def finish(self) -> dict[str, Any]:
        """Time launched calls where graphs were replayed; return what `bench.events.BlockSamples` has.

        Not in later processes: it is no time that ranks. What the calls returned is kept, with a whole output of one
        call after the block.
        """
        assert self._block
        launched: Mapping[str, float] = {}
        replayed, self._graphs = self._graphs is not None, None
        if replayed and self._idle:  # what the graphs hold is what launched calls need
            torch.cuda.empty_cache()
        if replayed and self._replays is None:  # the first process here
            self._fill()
            rest = self._call_s, self._given, self._plan
            launched = launched_ms(self._stopwatch, self._timed, *rest, idle=self._idle)
            self._see_changes()
        for workload, bound in self._calls.items():
            self._returned.take_in(workload, self._given[workload])
            # Else one of the burst round is enough.
            if self._plan.max_rounds > 1 or not self._returned.has_whole(workload):
                self._returned.keep_whole(workload, bound, self._workloads[workload].contents)
        return {**vars(self._block), "replayed": replayed, "refused": self._refused, "launched_ms": launched}

    def _fill(self) -> None:
        """Put new contents into all slots: calls of another variant may have been given them since."""
        for given in self._given.values():
            given.fill()

    def _see_changes(self) -> None:
        """Note what the calls have changed of what they got, before those of another variant get it."""
        for workload, given in self._given.items():
            self._returned.watch(workload, given)
        self._returned.see_changes()

    def _rotations(self, windows: int) -> dict[str, Rotation]:
        """Return what calls get in a block, drawn for so many windows, after which it comes again."""
        return {
            workload: Rotation(
                bound, self._workloads[workload].contents, self._workloads[workload].case,
                windows * (1 + calls_in_a_window(self._call_s[workload], self._plan)), self._rng,
            )
            for workload, bound in self._calls.items()
        }  # fmt: skip
