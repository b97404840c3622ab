"""Trials of one process whose sustained blocks follow one another.

A block right after another one needs a third of its warm-up, since the device is under load already. So burst samples
of all variants come first. Then these are judged and blocks are prepared, while other workers may use the device too.
Then all blocks are taken. What that is based on: docs/methodology.md, "Blocks that follow one another".
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fluxbench.operations.protocol import Bound
from fluxbench.timing.burst import rest_between
from fluxbench.timing.graph import GraphPool
from fluxbench.timing.stopwatch import slept_s
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong
from fluxbench.worker.prepared import release
from fluxbench.worker.request import Request
from fluxbench.worker.taking import Taker, judge, looked_at, of_blocks, try_step, without_collections
from fluxbench.worker.trial import Trial

_FEW = 2  # trials that are judged while the device is held for their blocks: an early page waits for what they gave
_AT_ONCE_S = 0.1  # from the end of a block to the next one; after 0.25 s a card at its power limit has its full clock


def may_follow_others(formed: FormedVariant) -> bool:
    """Whether a variant is still what it was when others have been compiled after it.

    Not so where its graph breaks, and torch.compile also compiles parts of its library. On an H200 both compiled forms
    of Transformer Engine raised InternalTorchDynamoError when they were called again (six lengths, torch 2.11).
    """
    return formed.variant.fullgraph or not formed.compiles


class Taken(NamedTuple):
    """Where a reference counts, and so may others; None where it lacked memory. And which others lacked memory."""

    usable: list[str] | None
    lacking: list[str]


class _UnderWay:
    """A trial of which some steps have been taken."""

    def __init__(self, trial: Trial, request: Request) -> None:
        self.trial = trial
        self.is_recorded = trial.name in request.variants  # else it is here for the others alone
        self.in_blocks: dict[int, Trial] = {}  # which may be of fewer workloads each
        self.blocks: dict[int, TrialBlock] = {}
        self.taken: dict[str, Any] = {"took_s": 0.0, "slept_s": 0.0}
        self.lacks_memory = self.has_failed = False

    @property
    def is_over(self) -> bool:
        """Whether no further step of it is taken."""
        return self.lacks_memory or self.has_failed

    def fail(self, wrong: Wrong) -> None:
        """Let it fail at all workloads."""
        self.has_failed = True
        self.trial.wrong |= dict.fromkeys(self.trial.calls, wrong)

    def judge(self) -> None:
        """Judge what calls have returned so far."""
        judge(self.trial, self.in_blocks.values())

    def forget(self) -> None:
        """Forget what holds memory; what is wrong stays."""
        self.blocks = {}
        for one in (self.trial, *self.in_blocks.values()):
            one.forget()


class Succession:
    """Takes trials of one process step by step; `taker` tells what they gave, `emit` writes an event."""

    def __init__(
        self, taker: Taker, request: Request, device: torch.device, use: DeviceUse, emit: Callable[..., None]
    ) -> None:
        self._taker, self._request, self._device, self._use, self._emit = taker, request, device, use, emit

    def take(
        self,
        reference: tuple[str, Mapping[str, Bound]],
        names: Sequence[str],
        right_calls: Callable[[str], Mapping[str, Bound]],
        trial: Callable[[str, Mapping[str, Bound]], Trial],
    ) -> Taken:
        """Build and check variants, and measure them beside a reference; nothing where there are none.

        `right_calls` returns where a variant is right, and `trial` its trial. What lacks memory beside what the others
        keep is not measured. A process that dies, or whose time is up, has told nothing of any of them.
        """
        if not names:
            return Taken(None, [])
        right = {name: right_calls(name) for name in names}
        trials = [trial(*reference), *(trial(name, calls) for name, calls in right.items() if calls)]
        return self._take([_UnderWay(one, self._request) for one in trials])

    def _take(self, under_way: Sequence[_UnderWay]) -> Taken:
        reference, *others = under_way
        with self._use.step("measuring", short=False), without_collections():
            self._take_bursts(under_way)
        if not reference.is_over:
            with self._use.step("preparing", short=True):
                self._each(under_way, self._prepare, pause=self._use.pause)
            soon = self._request.process == 0 and len(under_way) <= _FEW
            with self._use.step("measuring", short=False), without_collections():
                self._take_blocks(under_way)
                if soon:
                    self._each(under_way, _UnderWay.judge)
            if not soon:
                with self._use.step("checking", short=True):
                    self._each(under_way, _UnderWay.judge, pause=self._use.pause)
        for one in under_way:
            one.forget()
        if any(one.lacks_memory for one in under_way):
            release()
        if reference.lacks_memory:
            return Taken(None, [])
        usable = self._tell(reference, [*reference.trial.calls])
        for one in others if usable else ():
            if not one.lacks_memory:
                self._tell(one, usable)
        return Taken(usable, [one.trial.name for one in others if one.lacks_memory])

    def _each(
        self,
        under_way: Sequence[_UnderWay],
        step: Callable[[_UnderWay], None],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a step of each trial; `pause` is called before each."""
        for one in under_way:
            pause()
            self._do(one, step)

    def _take_bursts(self, under_way: Sequence[_UnderWay]) -> None:
        """Take burst samples of all, and then what tells whether these can be believed.

        The reference comes first: where it fails no other is called, as all are timed beside it.
        """
        reference, rest_s = under_way[0], None

        def burst(one: _UnderWay) -> None:
            nonlocal rest_s
            one.taken["began"] = time.monotonic()
            if one.is_recorded:
                taken = one.taken["burst"] = one.trial.burst(rest_s)
                began, ended = taken["times"][-1]
                rest_s = rest_between(ended - began)
            one.in_blocks = of_blocks(one.trial, self._request)  # which know what calls took in burst
            # Without burst samples this times calls.
            one.blocks = {number: each.block() for number, each in one.in_blocks.items()}

        def look(one: _UnderWay) -> None:
            if one.is_recorded:
                one.taken |= looked_at(one.trial, self._request, one.taken["burst"])

        for step in (burst, look):
            for one in under_way:
                if not reference.is_over:
                    self._do(one, step, alone=True)

    @staticmethod
    def _prepare(one: _UnderWay) -> None:
        one.trial.check()
        pool = GraphPool(one.trial.stopwatch.device)
        for number in sorted(one.blocks, reverse=True):  # what needs most memory comes first, see `captured_by_name`
            one.blocks[number].prepare(pool, beside_others=True)

    def _take_blocks(self, under_way: Sequence[_UnderWay]) -> None:
        """Take the blocks of all, those of one length after the other, and then what is measured after them."""
        loaded_until = -math.inf

        def take(one: _UnderWay, number: int) -> None:
            nonlocal loaded_until
            block = one.blocks[number].take(loaded_until)
            loaded_until = block.windows[-1][1] + _AT_ONCE_S if block.loads else -math.inf

        def finish(one: _UnderWay) -> None:
            one.taken["blocks"] = [block.finish() for block in one.blocks.values()]

        for number in sorted({number for one in under_way for number in one.blocks}):
            for one in under_way:
                if number in one.blocks:
                    self._do(one, functools.partial(take, number=number), alone=True)
        for one in under_way:
            self._do(one, finish, alone=True)

    def _do(self, one: _UnderWay, step: Callable[[_UnderWay], None], *, alone: bool = False) -> None:
        """Take a step of a trial that is not over; `alone`: no other worker uses the device meanwhile."""
        if one.is_over:
            return
        self._emit("trial", variant=one.trial.name)
        began, asleep = time.monotonic(), slept_s()
        tried = try_step(one.trial, self._device, lambda: step(one))
        if alone:
            one.taken["took_s"] += time.monotonic() - began
            one.taken["slept_s"] += slept_s() - asleep
        one.lacks_memory = tried.lack is not None
        if wrong := tried.changed or tried.wrong:
            one.fail(wrong)
        if one.is_over:
            one.blocks = {}

    def _tell(self, one: _UnderWay, usable: Sequence[str]) -> list[str]:
        """Write what a trial gave, and that it is told now, for which a page may wait; return where it counts."""
        self._emit("trial", variant=one.trial.name)
        return self._taker.tell(one.trial, None if one.has_failed else one.taken, usable)
