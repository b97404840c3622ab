"""Variants measured in several fresh processes; one that dies costs what it was at, and another goes on."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.bench import timings
from fluxbench.bench.collected import Collected, Pair
from fluxbench.bench.events import Failed, Lacked
from fluxbench.bench.pool import FIRST_COUNTS, Exit, Pool, run_worker
from fluxbench.bench.timings import LEAST, Width, is_slow
from fluxbench.core import device_lock, progress
from fluxbench.device.model import Device
from fluxbench.environments.prepare import Environment
from fluxbench.operations import whole_of
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Sampler
from fluxbench.worker.request import ALONE, USUAL, Effort, Request

POOLED = 3  # processes that start together; each further one starts while the one before it measures
_NEEDED = 1 / 3  # of the trials of further processes: 28 of 90 on an H200's page


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Variants that are measured in the same processes, at workloads of operations that share them."""

    folder: Path  # for requests, events and compiled kernels: the first process compiles and the others do not
    environment: Environment
    device: Device
    workloads: tuple[Workload, ...]
    variants: tuple[str, ...]
    references: tuple[str, ...]
    processes: int
    most: int  # processes
    saves: bool = True  # fewer of what is far slower than the reference
    sustained: bool  # False: burst samples alone
    burst_alone: tuple[str, ...] = ()  # workloads of which only burst samples are taken
    probe: bool  # whether the last process that measures all variants also tries capabilities
    lock: str | None  # the folder of the device lock
    compiled: str  # the folder where the times of first compilations are kept
    cases: str  # the folder where cases are kept
    contents: str = ""  # that where contents of timed calls are kept, for all cells of a build; empty: `folder`
    effort: Effort = USUAL
    whole_up_to: int | None = None  # see `Study`
    alone: bool = False  # no other worker holds memory of the device meanwhile
    beside: tuple[Workload, ...] = ()  # what is measured alone: the workloads beside which it lacked memory

    @property
    def steps(self) -> int:
        """About how many steps this will be, of which those of the first process count more."""
        further = (self.most - self.processes) * _NEEDED if self.sustained else 0
        counted = FIRST_COUNTS + self.processes - 1 + further
        return round(counted * len(self.workloads) * len({*self.variants, *self.references[:1]}))

    def measure(self, collected: Collected, pool: Pool, deadline: float) -> None:
        """Measure all variants in fresh processes, and collect what they write.

        Further processes, up to `most`, measure again the variants whose sustained mean is not known well enough yet.
        At `deadline` (monotonic seconds), and as much later as workers waited for the device, what is not measured
        becomes TIMEOUT.
        """
        last = max(self.processes, self.most)
        wanted = functools.partial(device_lock.a_child_is_alone, Path(self.lock)) if self.lock else lambda: True
        with Sampler(self.device, readings=collected.readings, wanted=wanted):
            for process in range(last):
                if process >= POOLED and not pool.waits and self._left(collected, process):
                    pool.add()
                if POOLED <= process + 1 < last and self._left(collected, process + 1):
                    pool.add()  # it imports while this one measures
                while left := self._left(collected, process):
                    if collected.is_late(deadline):  # as another batch was
                        self._out_of_time(collected)
                        return
                    if process >= self.processes:
                        progress.say(left=len(self.workloads) * len({*left, *self.references[:1]}))
                    worker = pool.next()
                    before = len(self._done(collected, process))
                    request = self._request(collected, process, left)
                    exit_ = run_worker(self.folder, self.environment, request, collected, deadline, worker)
                    if not (late := collected.is_late(deadline)):  # else what it was at is not known to fail
                        if exit_ is None:
                            collected.tried.update(request.probe)
                        elif worker and not exit_.wrote:  # as it imported: fresh ones write what they import first
                            pool.close()
                        else:
                            self._fail(collected, exit_, request, len(self._done(collected, process)) > before)
                    if not self.alone:  # else what it lacked memory for has no failure meanwhile
                        collected.keep()
                    if late:
                        self._out_of_time(collected)
                        return
                    if exit_ is None:
                        break

    def measure_alone(self, collected: Collected, pool: Pool, deadline: float) -> None:
        """Measure again, alone on the device, what had too little memory, once all batches of the cell are measured.

        Processes of other cells take memory, and so do other workloads of a process and what an allocator cannot use.
        So inputs and references that lacked it are tried again too. Such a process waits until no other worker holds
        memory, maybe for all other cells. If the time is up before, it is not known whether the device has enough.
        """
        for workloads, names in self._out_of_memory(collected).items():
            if collected.is_late(deadline):
                collected.keep = lambda: None  # another build may try it alone
                collected.cut = True
                for pair in itertools.product(names, (each.name for each in workloads)):
                    if lack := collected.failed.pop(pair, None):
                        reason = f"{collected.out_of_time} (out of memory beside others: {lack.reason})"
                        collected.fail(*pair, Status.TIMEOUT, reason)
                continue
            for name, each in itertools.product({*names, *self.references} - ({*self.variants} - {*names}), workloads):
                if (why := collected.failed.get((name, each.name))) and why.status is Status.OUT_OF_MEMORY:
                    collected.lacked.append(Lacked(variant=name, workload=each.name, reason=why.reason))
                    del collected.failed[name, each.name]
            again = dataclasses.replace(
                self, variants=tuple(names), workloads=workloads, most=self.processes, probe=False, alone=True,
                beside=self.workloads, effort=dataclasses.replace(self.effort, held_bytes=ALONE),
            )  # fmt: skip
            again.measure(collected, pool, deadline)

    def _out_of_memory(self, collected: Collected) -> dict[tuple[Workload, ...], list[str]]:
        """Return the variants for which there was too little memory, and may be enough alone, by where there was.

        Those that lacked it at the same workloads are measured again together: inputs and references did not fit for
        any of them. Where a reference lacked it, that is where a variant has not been timed beside any.
        """
        found: dict[tuple[Workload, ...], list[str]] = {}
        for name in self.variants:
            if lost := tuple(each for each in self.workloads if self._lacked(collected, name, each.name)):
                found.setdefault(lost, []).append(name)
        return found

    def _lacked(self, collected: Collected, name: str, workload: str) -> bool:
        if why := collected.failed.get((name, workload)):
            return why.status is Status.OUT_OF_MEMORY and not _is_hopeless(why)
        of_references = (collected.failed.get((each, workload)) for each in self.references)
        if not any(why and why.status is Status.OUT_OF_MEMORY for why in of_references):
            return False
        needed = [process for process in range(self.processes) if name in self._wanted(collected, process)]
        return any((name, workload) not in self._done(collected, process) for process in needed)

    @property
    def _thorough_in(self) -> int:
        """The process that checks most: on a CPU the second of those in which every variant is measured.

        There it takes as long as all trials of a process, and the first times are to be known before.
        """
        return min(LEAST, self.processes) - 1 if self.device.worker_kind == "cpu" else 0

    def _done(self, collected: Collected, process: int) -> set[Pair]:
        """Return which variants a process has timed at which workloads."""
        mine = {workload.name for workload in self.workloads}
        taken = [trial.timed for trial in collected.trials if trial.timed.process == process and trial.timed.burst]
        return {(timed.variant, workload) for timed in taken for workload in mine & set(timed.workloads)}

    def _left(self, collected: Collected, process: int) -> tuple[str, ...]:
        """Return the variants that a process has still to measure: at any workload, or where all are held at once."""
        done = self._done(collected, process)
        timed = {name for name, _ in done}
        left = []
        for name in self._wanted(collected, process):
            missing = [one for one in self._open(collected, name, process) if (name, one.name) not in done]
            if missing and (self.effort.held_bytes or name not in timed):
                left.append(name)
        return tuple(left)

    def _wanted(self, collected: Collected, process: int) -> list[str]:
        """Return the variants that a process measures: in two all, then, as `saves` says, none that is far slower.

        What is measured alone is so in as many as its other rows, beside which fewer would have no interval
        (`timings.timings_of`). Beyond `processes` those of which a sustained interval is wider than it must be, at any
        workload, and not by so much that two more processes decide nothing; that of the reference too, if it is
        measured here: it has a block in every process anyway.
        """
        if not self.sustained:
            return list(self.variants) if process < self.processes else []
        if process < LEAST:
            return list(self.variants)
        known: dict[str, list[Width]] = {name: [] for name in self.variants}
        for operation in dict.fromkeys(one.operation for one in self.workloads):
            own = [one.name for one in self.workloads if one.operation == operation]
            for name, widths in timings.widths(collected, own).items():
                if name in known:  # else it is another batch's, and this one's processes have other variables
                    known[name].extend(widths.values())
        if process < self.processes:
            slow = {name for name, its in known.items() if self.saves and is_slow(width.ratio for width in its)}
            return [name for name in known if name not in slow or self._elsewhere(collected, name) > process]
        return [name for name, its in known.items() if any(width.gains for width in its)]

    def _elsewhere(self, collected: Collected, name: str) -> int:
        """Return how many processes measured a variant at other workloads of the same operations, of what is alone."""
        operations = {one.operation for one in self.workloads}
        others = [one for one in self.beside if one not in self.workloads and one.operation in operations]
        return max((len(collected.taken(name, one.name)) for one in others), default=0)

    def _open(self, collected: Collected, name: str, process: int) -> list[Workload]:
        """Return the workloads at which a process measures a variant: where it has not failed.

        Processes beyond `processes` are for sustained times.
        """
        left_out = self.burst_alone if process >= self.processes else ()
        possible = (one for one in self.workloads if one.name not in left_out)
        return [workload for workload in possible if (name, workload.name) not in collected.failed]

    def _request(self, collected: Collected, process: int, names: Sequence[str]) -> Request:
        wanted = {workload.name for name in names for workload in self._open(collected, name, process)}
        return Request(
            device=self.device.worker_kind,
            workloads=tuple(workload for workload in self.workloads if workload.name in wanted),
            variants=tuple(names),
            references=self.references,
            process=process,
            thorough_in=self._thorough_in,
            sustained=self.sustained,
            burst_alone=self.burst_alone,
            whole_up_to=self.whole_up_to,
            probe=self._to_try(collected, process, names),
            effort=self.effort,
            skip=tuple(collected.failed),
            clocks=tuple(
                pair
                for pair, failed in collected.failed.items()
                if pair[0] in self.references and failed.status is Status.INCORRECT
            ),
            done=tuple(sorted(self._done(collected, process))),
            untold=tuple(sorted(collected.untold(process) & self._done(collected, process))),
            replays=collected.replays,
            clock_mhz=self.device.sm_clock_max_mhz,
            lock=self.lock,
            alone=self.alone,
            order=device_lock.order(),
            compiled=self.compiled,
            cases=self.cases,
            contents=self.contents or str(self.folder),
            kept=collected.kept,
            trusts=not collected.workers,
            yardsticks=collected.yardsticks,
            rows=collected.rows,
        )

    def _to_try(self, collected: Collected, process: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the variants whose capabilities a process tries: the last one that measures all, or one after it."""
        if not self.probe or process < min(LEAST, self.processes) - 1:
            return ()
        right = {
            trial.timed.variant
            for trial in collected.trials
            if any((trial.timed.variant, workload) not in collected.failed for workload in trial.timed.workloads)
        }
        found = ({*names} | right) - collected.tried - {*collected.probed}
        return tuple(name for name in self.variants if name in found)

    def _fail(self, collected: Collected, exit_: Exit, request: Request, timed: bool) -> None:
        """Let what the worker was at fail; a fresh one goes on with the rest. Between two trials nothing has failed."""
        if exit_.variant is None and exit_.workload is None and timed:
            return
        done = self._done(collected, request.process)
        for name in request.variants if exit_.variant is None else (exit_.variant,):
            parts = request.held_together
            if exit_.variant:  # it died at the workloads that it then held
                parts = [part for part in parts if any((name, one.name) not in done for one in part)][:1] or parts
            held = [one for part in parts for one in part if (name, one.name) not in collected.failed]
            if exit_.variant and exit_.status is Status.CRASHED:
                held = _parts_of_others(held) or held
            for workload in [exit_.workload] if exit_.workload else [one.name for one in held]:
                if exit_.variant or (name, workload) not in done:
                    collected.fail(name, workload, exit_.status, exit_.reason)

    def _out_of_time(self, collected: Collected) -> None:
        """Let what is not measured fail. What further processes would have made narrower is not measured later."""
        collected.keep = lambda: None  # from here on there are failures that another build does not have
        in_all = self._wanted(collected, self.processes - 1)
        for workload in self.workloads:
            for name in self.variants:
                if len(collected.taken(name, workload.name)) < (self.processes if name in in_all else LEAST):
                    collected.cut = True
                    collected.fail(name, workload.name, Status.TIMEOUT, collected.out_of_time)


def _is_hopeless(why: Failed) -> bool:
    """Whether one allocation was larger than the device, which has no more memory for it alone."""
    lack = why.shortage
    return bool(lack and lack.total_bytes and lack.asked_bytes > lack.total_bytes)


def _parts_of_others(some: Sequence[Workload]) -> list[Workload]:
    """Return the workloads of operations that are part of another one here, which is tried again without them."""
    wholes = {one.operation for one in some}
    return [one for one in some if one.operation != (whole := whole_of(one.operation)) and whole in wholes]
