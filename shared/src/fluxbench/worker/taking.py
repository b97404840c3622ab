"""What is taken of a trial on the device: samples, and what tells whether they can be believed.

A trial whose memory does not last is tried once more in this process where others take memory too: as soon as they
leave it as much as it lacked. Then it goes on without its largest workload. Trials whose sustained blocks follow one
another are in `worker.succession`.
"""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from fluxbench.operations.protocol import Bound
from fluxbench.records.status import Status
from fluxbench.timing.rows import Row
from fluxbench.timing.stopwatch import slept_s
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong, is_fatal, wrong_of
from fluxbench.worker.prepared import release
from fluxbench.worker.request import Request
from fluxbench.worker.state import ProcessState
from fluxbench.worker.trial import Trial

REPEATED_IN = 2  # processes in which calls are also repeated on the same contents: two must agree


class Taker:
    """Measures the trials of one worker, and writes what they gave.

    `emit` writes an event, `fail` that a variant failed at a workload, `say_rows` how many calls there are in rows.
    `was_timed` gets the calls of a variant that were timed and are profiled later, by workload, and which are in rows.
    """

    def __init__(
        self,
        request: Request,
        device: torch.device,
        use: DeviceUse,
        emit: Callable[..., None],
        fail: Callable[[str, str, Wrong], None],
        say_rows: Callable[[Mapping[tuple[str, str], Row | None]], None],
        was_timed: Callable[[str, Mapping[str, Bound], Collection[str]], None],
    ) -> None:
        self._request, self._device, self._use = request, device, use
        self._emit, self._fail, self._say_rows, self._was_timed = emit, fail, say_rows, was_timed

    def take(self, trial: Trial, *, burst: bool, sustained: bool) -> list[str]:
        """Measure one trial and write what it gave; return the workloads at which it counts.

        Of a grid, rows are made and outputs judged while others do so too: both together take ten times as long as the
        rows themselves.
        """
        grid = self._request.effort.grid
        with contextlib.nullcontext() if grid else self._use.step("measuring", short=False):
            return self._take(trial, burst=burst, sustained=sustained)

    def tell(self, trial: Trial, taken: Mapping[str, Any] | None, among: Collection[str]) -> list[str]:
        """Write where a trial is wrong, and what it gave if it did; return at which of some workloads it counts."""
        request = self._request
        for workload, wrong in trial.wrong.items():
            self._fail(trial.name, workload, wrong)
        is_clock = trial.name == trial.reference  # whose output may be wrong, see `worker.references`
        wrong_at = {name for name, of in trial.wrong.items() if not (is_clock and of.is_of_output)}
        left = [one for one in trial.calls if one in among and one not in wrong_at]
        if left and taken is not None:
            place = {"reference": trial.reference, "process": request.process, "workloads": left}
            calls = {one: trial.calls[one] for one in left if "burst" in taken and request.profiles(trial.name, one)}
            self._emit("timed", variant=trial.name, profiles=[*calls], **place, **taken)
            self._was_timed(trial.name, calls, taken["burst"]["calls"] if calls else ())
        return left

    def _take(self, trial: Trial, *, burst: bool, sustained: bool) -> list[str]:
        has_waited = False
        while True:
            self._emit("trial", variant=trial.name)
            taken, lack = self._attempt(trial, burst=burst, sustained=sustained)
            waits = lack is not None and not has_waited and self._use.shares_memory
            given_up = trial.largest if lack and not waits else None
            if lack and given_up:
                trial.wrong.setdefault(given_up, lack)
            some = [name for name in trial.calls if name != given_up]
            left = self.tell(trial, None if lack else taken, some)
            if lack is None:
                return left
            trial.forget()
            release()
            if not left:
                return []
            if waits:
                has_waited = True
                self._emit("lacked", variant=trial.name, workload=trial.largest, reason=lack.reason)
                self._use.make_room(lack.shortage)
            trial = trial.at(left)

    def _attempt(self, trial: Trial, *, burst: bool, sustained: bool) -> tuple[dict[str, Any], Wrong | None]:
        """Measure and judge one trial; return what it gave, and why where memory was out. Other failures it notes."""
        taken: dict[str, Any] = {}

        def attempt() -> None:
            nonlocal taken
            if burst:
                with self._of_grid("preparing"):
                    trial.make_rows(self._use.pause)
            with self._of_grid("measuring", short=False):
                taken, in_blocks = _taken(trial, self._request, burst=burst, sustained=sustained)
            if burst:
                self._say_rows(trial.rows)
            with self._of_grid("checking"):
                judge(trial, in_blocks)

        with without_collections():
            tried = try_step(trial, self._device, attempt)
        if tried.wrong:
            trial.wrong |= dict.fromkeys(trial.calls, tried.wrong) | trial.wrong  # what is known already stands
        if tried.changed:
            trial.wrong |= dict.fromkeys(trial.calls, tried.changed)
        return taken, tried.lack

    def _of_grid(self, name: str, *, short: bool = True) -> contextlib.AbstractContextManager[None]:
        """Return a step of a grid's trial; any other trial is one step, which has begun."""
        return self._use.step(name, short=short) if self._request.effort.grid else contextlib.nullcontext()


class Tried(NamedTuple):
    """What came of a step of a trial: why memory was out, why it failed else, and what it changed of the process."""

    lack: Wrong | None = None
    wrong: Wrong | None = None
    changed: Wrong | None = None


def try_step(trial: Trial, device: torch.device, step: Callable[[], None]) -> Tried:
    """Take a step of a trial, and put back what it changed of the process. Raises what leaves the process no device."""
    state, tried = ProcessState(device), Tried()
    trial.stopwatch.discard()
    try:
        step()
    except Exception as error:
        if is_fatal(error):
            raise
        traceback.print_exc()
        wrong = wrong_of(error, "while it was timed: ")
        tried = Tried(lack=wrong) if wrong.status is Status.OUT_OF_MEMORY else Tried(wrong=wrong)
    changed = state.restore()
    return tried._replace(changed=Wrong(Status.ERROR, changed)) if changed else tried


def _taken(trial: Trial, request: Request, *, burst: bool, sustained: bool) -> tuple[dict[str, Any], list[Trial]]:
    """Return fields of the event "timed", and the trials with the sustained calls, see `of_blocks`."""
    taken: dict[str, Any] = {"began": time.monotonic()}
    asleep = slept_s()
    if burst:
        taken["burst"] = trial.burst()
        taken |= looked_at(trial, request, taken["burst"])
    in_blocks = [*of_blocks(trial, request).values()] if sustained else []
    if in_blocks:
        trial.returned.see_changes()  # of rows, before others get something else in that place
        taken["blocks"] = [one.sustain() for one in in_blocks]
    return {**taken, "took_s": time.monotonic() - taken["began"], "slept_s": slept_s() - asleep}, in_blocks


def looked_at(trial: Trial, request: Request, burst: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells whether burst times can be believed, of the event "timed"; `burst` is what `Trial.burst` gave.

    Nothing of a reference that is here for the others alone.
    """
    looked: dict[str, Any] = {}
    if trial.name not in request.variants:
        return looked
    full = [name for name in trial.calls if request.is_full(name)]
    if request.process < REPEATED_IN and not trial.plan.row_s:
        looked["repeated_over_new"] = trial.at(full[:1] if request.effort.long else full).repeat()
    if not request.process:
        looked["unprofiled"] = [name for name in trial.calls if name not in full or name in burst["calls"]]
    return looked


def of_blocks(trial: Trial, request: Request) -> dict[int, Trial]:
    """Return by sustained block a trial at its workloads: the same one where the block is of all of them."""
    found = {}
    in_blocks = request.in_blocks(trial.calls)
    trial.time_calls([name for workloads in in_blocks.values() for name in workloads])
    for block, workloads in in_blocks.items():
        if len(workloads) == len(trial.calls):
            if trial.replays is None:  # of more workloads it was not decided
                trial.replays = request.replays_at(trial.name, workloads)
            return {block: trial}
        found[block] = trial.at(workloads)
        found[block].replays = request.replays_at(trial.name, workloads)
        found[block].leading = trial.least()
    return found


def judge(trial: Trial, in_blocks: Iterable[Trial]) -> None:
    """Judge what a trial's calls have returned so far, in its blocks too."""
    trial.check()
    for one in in_blocks:
        if one is not trial:
            one.check()
            trial.wrong |= one.wrong


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage: in the midst of a call that would take as long as several calls."""
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
