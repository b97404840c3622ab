"""What the workers of a cell wrote: collected event by event."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from fluxbench.bench import events
from fluxbench.bench.events import (
    BlockSamples,
    BurstSamples,
    Checked,
    Event,
    Failed,
    Lacked,
    Phase,
    ProbeResult,
    Timed,
)
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Log, Reading
from fluxbench.worker.request import Yardsticks

Pair = tuple[str, str]  # variant, workload


@dataclass(frozen=True, eq=False)
class Trial:
    """What one process took of one variant, and in which of all workers: one may take over from another that died."""

    timed: Timed
    worker: int

    @property
    def is_reference(self) -> bool:
        """Whether it is one of the reference itself."""
        return self.timed.variant == self.timed.reference

    @property
    def rounds(self) -> BurstSamples:
        """The burst samples of a trial that has some."""
        assert self.timed.burst is not None
        return self.timed.burst

    def blocks_at(self, workload: str) -> list[BlockSamples]:
        """The sustained block, where it has one with calls at a workload."""
        return [block for block in self.timed.blocks if workload in block.samples_ms]


@dataclass
class Collected:
    """What has been collected so far of a cell's variants and workloads."""

    checked: dict[Pair, Checked] = field(default_factory=dict)
    failed: dict[Pair, Failed] = field(default_factory=dict)
    lacked: list[Lacked] = field(default_factory=list)  # memory, where it was tried again
    trials: list[Trial] = field(default_factory=list)  # in order
    readings: list[Reading] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)  # of the first worker
    others_versions: dict[str, str] = field(default_factory=dict)  # of one that has others; empty: all have the same
    control: str | None = None  # what the control kernel is, where the device has one
    probed: dict[str, dict[str, ProbeResult]] = field(default_factory=dict)  # by variant and capability
    tried: set[str] = field(default_factory=set)  # variants whose capabilities were tried, or took the process down
    workers: int = 0  # that have begun
    kept: dict[str, str] = field(default_factory=dict)  # digests of what workers keep for later ones, by name
    yardsticks: Yardsticks = field(default_factory=dict)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)  # calls in a row, by variant and workload
    rates: list[dict[str, float]] = field(default_factory=list)  # one a process
    others: list[str] = field(default_factory=list)  # processes that used the device meanwhile
    phases: list[tuple[str, float, float]] = field(default_factory=list)  # of all processes: name, begin, end
    until: float = math.inf  # when the build stops measuring, monotonic seconds
    resumed_at: float = -math.inf  # from which on trials are of this build, monotonic seconds
    cut: bool = False  # the cell's time, or the build's, was up before all was measured
    keep: Callable[[], None] = lambda: None  # keeps what was collected so far for another build, see `bench.unfinished`
    heard: Callable[[Event], None] = lambda event: None  # called with each event that was taken in
    _phase: Phase | None = None

    @cached_property
    def log(self) -> Log:
        """What the device was doing, by time. To be asked for once all is collected."""
        return Log(list(self.readings))

    def fail(self, variant: str, workload: str, status: Status, reason: str) -> None:
        """Note that a pair failed; the first failure of a pair stands."""
        self.add(Failed(variant=variant, workload=workload, status=status, reason=reason))

    def add(self, event: Event) -> None:
        """Take in one event of a worker."""
        match event:
            case events.Phase():
                self.end_phase(event.at)
                self._phase = event
            case events.Ready():
                self.workers += 1
                self._add_versions(event.versions)
            case events.ControlKernel():  # one process without it costs its own samples
                self.control = event.description or self.control
            case events.Rates():
                self.rates.append(event.rates)
            case events.Checked():
                self._add_checked(event)
            case events.Kept():
                self.kept.setdefault(event.name, event.sha256)
            case events.Yardstick():
                of = self.yardsticks.setdefault(event.workload, {})
                of.setdefault(event.precision, {"worst": event.worst, "bins": event.bins})
            case events.Rows():
                for name, calls in event.calls.items():
                    self.rows[name] = calls | self.rows.get(name, {})
            case events.Failed():
                self.failed.setdefault((event.variant, event.workload), event)
            case events.Lacked():
                self.lacked.append(event)
            case events.Probed():
                self.probed[event.variant] = event.found
            case events.Timed():
                self.trials.append(Trial(event, self.workers))
            case events.Profiled():
                self._add_profiled(event)
        self.heard(event)

    def _add_versions(self, versions: dict[str, str]) -> None:
        """Keep those of the first worker, and one worker's that are not these: an environment that has changed."""
        self.versions = self.versions or versions
        if versions and versions != self.versions:
            self.others_versions = self.others_versions or versions

    def _add_profiled(self, event: events.Profiled) -> None:
        """Keep it with the latest trial of the variant at that workload, which is the same process's."""
        for index, trial in reversed([*enumerate(self.trials)]):
            timed = trial.timed
            if timed.variant == event.variant and event.workload in timed.workloads and timed.burst:
                profiled = {**timed.profiled, event.workload: event}
                self.trials[index] = replace(trial, timed=msgspec.structs.replace(timed, profiled=profiled))
                return

    def _add_checked(self, event: Checked) -> None:
        """Keep the first check of a pair, with what the thorough one alone looks at, which may be another."""
        pair = event.variant, event.workload
        first = self.checked.setdefault(pair, event)
        if event.thorough and not first.thorough:
            of_thorough = ("thorough", "errors", "kernels", "clocks", "detail", "memory")
            changes = {name: getattr(event, name) for name in of_thorough}
            self.checked[pair] = msgspec.structs.replace(first, **changes)

    def apart(self) -> Collected:
        """Return what begins empty but for what has failed, for other workers at the same time; see `join`."""
        return Collected(failed=dict(self.failed), until=self.until, others=list(self.others))

    def join(self, other: Collected) -> None:
        """Take in what was collected apart, of other pairs."""
        for versions in (other.versions, other.others_versions):
            self._add_versions(versions)
        for name in ("checked", "failed", "probed", "kept", "yardsticks"):
            getattr(self, name).update({**getattr(other, name), **getattr(self, name)})
        for name, calls in other.rows.items():
            self.rows[name] = calls | self.rows.get(name, {})
        self.trials += [Trial(trial.timed, self.workers + trial.worker) for trial in other.trials]
        self.workers += other.workers
        self.control = self.control or other.control
        self.readings[:] = sorted([*self.readings, *other.readings], key=lambda reading: reading.time_s)
        self.rates += other.rates
        self.lacked += other.lacked
        self.phases += other.phases
        self.cut |= other.cut
        self.tried |= other.tried
        self.resumed_at = max(self.resumed_at, other.resumed_at)
        self.others = list(dict.fromkeys([*self.others, *other.others]))

    def end_phase(self, at: float) -> None:
        """Note that what the present worker did has ended, at a monotonic time in seconds."""
        if self._phase and self._phase.name != "standby":
            self.phases.append((self._phase.name, self._phase.at, max(at, self._phase.at)))
        self._phase = None

    @property
    def phases_in_files(self) -> list[tuple[str, float, float]]:
        """The phases to the millisecond."""
        return [(name, round(begin, 3), round(end, 3)) for name, begin, end in self.phases]

    @property
    def waited_s(self) -> float:
        """How long workers have waited for the device, so far."""
        return sum(end - begin for name, begin, end in self.phases if name == "waiting")

    def is_late(self, deadline: float) -> bool:
        """Whether the cell's time is up (`deadline`, monotonic seconds), or that of its build.

        The cell's is as much later as its workers waited for the device.
        """
        return time.monotonic() >= min(deadline + self.waited_s, self.until)

    @property
    def late(self) -> str:
        """Whose time is up, where it is: "cell" or "build"."""
        return "build" if time.monotonic() >= self.until else "cell"

    @property
    def out_of_time(self) -> str:
        """Why what is not measured when the time is up has no time."""
        if self.late == "build":
            return "the build's time was up before it was measured; build again, with a larger LIMIT if that repeats"
        return "the cell's time was up before it was measured; measure fewer variants or workloads in a cell"

    @property
    def replays(self) -> dict[str, dict[str, bool]]:
        """By variant and workload, whether its sustained calls are CUDA graphs, as its first process there decided."""
        decided: dict[str, dict[str, bool]] = {}
        for trial in self.trials:
            for block in trial.timed.blocks:
                for workload in block.samples_ms:
                    decided.setdefault(trial.timed.variant, {}).setdefault(workload, block.replayed)
        return decided

    def taken(self, variant: str, workload: str) -> list[Trial]:
        """Return the trial in which each process measured a variant at a workload."""
        found = {
            trial.timed.process: trial
            for trial in self.trials
            if trial.timed.variant == variant and workload in trial.timed.workloads and trial.timed.burst
        }
        return [found[process] for process in sorted(found)]

    def untold(self, process: int) -> set[Pair]:
        """Return what a process has timed and has not told of which kernels ran in it, as it was to."""
        timed = [trial.timed for trial in self.trials if trial.timed.process == process]
        return {(one.variant, workload) for one in timed for workload in {*one.profiles} - {*one.profiled}}

    def beside(self, trial: Trial, workload: str) -> list[Trial]:
        """Return the reference's trials just before and after one, in the same worker; of its own, all of them.

        Only those in which it was right at this workload and had a block.
        """
        of_worker = [each for each in self.trials if each.worker == trial.worker]
        name = trial.timed.reference
        references = [
            each
            for each in of_worker
            if each.timed.variant == name and workload in each.timed.workloads and each.blocks_at(workload)
        ]
        if trial.is_reference:
            return references
        place = of_worker.index(trial)
        before = [each for each in references if of_worker.index(each) < place]
        after = [each for each in references if of_worker.index(each) > place]
        return [*before[-1:], *after[:1]]
