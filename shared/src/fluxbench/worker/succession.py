"""Trials of one process whose sustained blocks follow one another.

A block right after another one needs a third of its warm-up, since the device is under load already. So burst samples
of all variants come first. Then these are judged and blocks are prepared, while other workers may use the device too.
Then all blocks are taken. What that is based on: docs/methodology.md, "Blocks back to back".
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fluxbench.records.status import Status
from fluxbench.timing.stopwatch import slept_s
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong, is_fatal, wrong_of
from fluxbench.worker.prepared import release
from fluxbench.worker.request import Request
from fluxbench.worker.state import ProcessState
from fluxbench.worker.taking import Taker, looked_at, of_sustained, without_collections
from fluxbench.worker.trial import Trial

_AT_ONCE_S = 0.1  # from the end of a block to the next one; after 0.25 s a card at its power limit has its full clock


def may_follow_others(formed: FormedVariant) -> bool:
    """Whether a variant is still what it was when others have been compiled after it.

    Not so where its graph breaks, and torch.compile also compiles parts of its library. On an H200 both compiled forms
    of Transformer Engine raised InternalTorchDynamoError when they were called again (six lengths, torch 2.11).
    """
    return formed.variant.fullgraph or not formed.compiles


class _UnderWay:
    """A trial of which some steps have been taken."""

    def __init__(self, trial: Trial, request: Request) -> None:
        self.trial = trial
        self.is_recorded = trial.name in request.variants  # else it is here for the others alone
        self.again = trial  # that of the block, which may be of fewer workloads
        self.block: TrialBlock | None = None
        self.taken: dict[str, Any] = {"took_s": 0.0, "slept_s": 0.0}
        self.lacks_memory = self.has_failed = False

    def judge(self) -> None:
        """Judge what calls have returned so far."""
        self.trial.check()
        if self.again is not self.trial:
            self.again.check()
            self.trial.wrong |= self.again.wrong


class Succession:
    """Takes trials of one process step by step; `taker` tells what they gave, `emit` writes an event."""

    def __init__(
        self, taker: Taker, request: Request, device: torch.device, use: DeviceUse, emit: Callable[..., None]
    ) -> None:
        self._taker, self._request, self._device, self._use, self._emit = taker, request, device, use, emit

    def take(self, trials: Sequence[Trial]) -> list[str]:
        """Measure a reference's trial, the first of these, and those beside it; return where it counts.

        The others count only at these workloads. What lacks memory beside what the others keep is measured by itself
        after them.
        """
        under_way = [_UnderWay(trial, self._request) for trial in trials]
        with self._use.step("measuring", short=False), without_collections():
            self._take_bursts(under_way)
        with self._use.step("preparing", short=True):
            for one in under_way:
                self._use.pause()
                self._do(one, self._prepare)
        with self._use.step("measuring", short=False), without_collections():
            self._take_blocks(under_way)
        with self._use.step("checking", short=True):
            for one in under_way:
                self._use.pause()
                self._do(one, _UnderWay.judge)
                one.block = None
        if any(one.lacks_memory for one in under_way):
            for one in under_way:
                one.trial.forget()
            release()
        reference, *others = under_way
        usable = self._tell(reference, [*reference.trial.calls])
        for one in others:
            self._tell(one, usable)
        return usable

    def _take_bursts(self, under_way: Sequence[_UnderWay]) -> None:
        """Take burst samples of all, and then what tells whether these can be believed."""
        rested = False

        def burst(one: _UnderWay) -> None:
            one.taken["began"] = time.monotonic()
            if one.is_recorded:
                one.taken["burst"] = one.trial.burst(rested=rested)

        def look(one: _UnderWay) -> None:
            if one.is_recorded:
                one.taken |= looked_at(one.trial, self._request, one.taken["burst"]["calls"])
            one.again = of_sustained(one.trial, self._request)
            one.block = one.again.block() if one.again.calls else None

        for one in under_way:
            self._do(one, burst, alone=True)
            rested = rested or one.is_recorded
        for one in under_way:
            self._do(one, look, alone=True)

    @staticmethod
    def _prepare(one: _UnderWay) -> None:
        one.judge()
        if one.block:
            one.block.prepare()

    def _take_blocks(self, under_way: Sequence[_UnderWay]) -> None:
        """Take the blocks of all, and then what is measured after them."""
        loaded_until = -math.inf

        def take(one: _UnderWay) -> None:
            nonlocal loaded_until
            if one.block:
                block = one.block.take(loaded=time.monotonic() < loaded_until)
                loaded_until = block.windows[-1][1] + _AT_ONCE_S if block.loads else -math.inf

        def finish(one: _UnderWay) -> None:
            if one.block:
                one.taken["block"] = one.block.finish()

        for one in under_way:
            self._do(one, take, alone=True)
        for one in under_way:
            self._do(one, finish, alone=True)

    def _do(self, one: _UnderWay, step: Callable[[_UnderWay], None], *, alone: bool = False) -> None:
        """Take a step of a trial that has not failed; `alone`: no other worker uses the device meanwhile."""
        if one.lacks_memory or one.has_failed:
            return
        trial, state = one.trial, ProcessState(self._device)
        self._emit("trial", variant=trial.name)
        trial.stopwatch.discard()
        began, asleep = time.monotonic(), slept_s()
        try:
            step(one)
        except Exception as error:
            if is_fatal(error):
                raise
            traceback.print_exc()
            wrong = wrong_of(error, "while it was timed: ")
            one.lacks_memory, one.block = wrong.status is Status.OUT_OF_MEMORY, None
            if not one.lacks_memory:
                self._fail(one, wrong)
        if alone:
            one.taken["took_s"] += time.monotonic() - began
            one.taken["slept_s"] += slept_s() - asleep
        if changed := state.restore():
            self._fail(one, Wrong(Status.ERROR, changed))

    @staticmethod
    def _fail(one: _UnderWay, wrong: Wrong) -> None:
        one.has_failed = True
        for workload in one.trial.calls:
            one.trial.wrong.setdefault(workload, wrong)

    def _tell(self, one: _UnderWay, usable: Sequence[str]) -> list[str]:
        """Write what a trial gave, or measure it by itself; return the workloads at which it counts."""
        if not one.lacks_memory:
            return self._taker.tell(one.trial, None if one.has_failed else one.taken, usable)
        calls = [name for name in one.trial.calls if name in usable and name not in one.trial.wrong]
        self._taker.tell(one.trial, None, usable)
        return self._taker.take(one.trial.at(calls), burst=one.is_recorded, sustained=True) if calls else []
