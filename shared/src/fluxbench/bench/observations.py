"""What workers saw of a cell, event by event, and all of its samples."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fluxbench.bench import series as samples
from fluxbench.bench.series import Turn
from fluxbench.records.schema import Sentinel, Status, Timing
from fluxbench.timing import energy
from fluxbench.timing.telemetry import Log, Reading

Pair = tuple[str, str]  # variant, workload


@dataclass
class Observations:
    """What has been seen so far of a cell's variants and workloads."""

    checked: dict[Pair, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Pair, tuple[Status, str, dict[str, Any] | None]] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)  # in order
    readings: list[Reading] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    sentinel: str | None = None  # what it is, where the device has one
    probed: dict[str, dict[str, str]] = field(default_factory=dict)  # by variant, what `capabilities.probe` found
    workers: int = 0  # that have begun
    ceilings: list[dict[str, float]] = field(default_factory=list)  # one a process; see `fluxbench.ceilings`
    others: list[str] = field(default_factory=list)  # processes that used the device meanwhile
    # By variant, what `recording` made of how many turns, for all of its workloads at once.
    timings: dict[str, tuple[int, dict[str, dict[str, Timing]]]] = field(default_factory=dict)
    _log: Log | None = None
    _powers: tuple[int, dict[str, tuple[float, float]]] | None = None

    @property
    def log(self) -> Log:
        """What the device was doing, by time."""
        if self._log is None or len(self._log.readings) != len(self.readings):
            self._log = Log(list(self.readings))
        return self._log

    @property
    def powers(self) -> dict[str, tuple[float, float]]:
        """The power in W of each variant over its ranked windows, all workloads together, and half its 95% interval."""
        if self._powers is None or self._powers[0] != len(self.turns):
            blocks: dict[str, list[tuple[float, float]]] = {}
            for turn in self.turns:
                if turn.block:
                    windows = turn.block["windows"][turn.block["lead"] :]
                    blocks.setdefault(turn.variant, []).append((windows[0][0], windows[-1][1]))
            self._powers = len(self.turns), energy.powers(self.readings, blocks)
        return self._powers[1]

    def fail(
        self, variant: str, workload: str, status: Status, reason: str, correctness: dict[str, Any] | None = None
    ) -> None:
        """Note that a pair failed; the first failure of a pair stands."""
        self.failed.setdefault((variant, workload), (status, reason, correctness))

    def add(self, event: dict[str, Any]) -> None:
        """Take in one event of a worker; see `fluxbench.worker` for what they are."""
        match event["event"]:
            case "ready":
                self.workers += 1
                self.versions = event["versions"]
            case "sentinel":  # one process without it costs its own samples
                self.sentinel = event.get("description") or self.sentinel
            case "ceilings":
                self.ceilings.append({key: value for key, value in event.items() if key != "event"})
            case "checked":
                self.checked.setdefault((event["variant"], event["workload"]), event)
            case "failed":
                status = Status(event["status"])
                self.fail(event["variant"], event["workload"], status, event["reason"], event.get("correctness"))
            case "probed":
                self.probed[event["variant"]] = event["found"]
            case "timed":
                self.turns.append(Turn.of(event, self.workers))

    def taken(self, variant: str, workload: str) -> list[Turn]:
        """Return the turn in which each process measured a variant at a workload."""
        found = {
            turn.process: turn
            for turn in self.turns
            if turn.variant == variant and workload in turn.workloads and turn.burst
        }
        return [found[process] for process in sorted(found)]

    def of_process(self, process: int) -> list[Turn]:
        """Return the turns of one process and of those that took over where it died, in order."""
        return [turn for turn in self.turns if turn.process == process]

    def of_worker(self, worker: int) -> list[Turn]:
        """Return the turns of one worker, in order."""
        return [turn for turn in self.turns if turn.worker == worker]


def to_sentinel(observed: Observations) -> Sentinel | None:
    """Return the sentinel's burst times beside each variant; None where the device has none."""
    if observed.sentinel is None:
        return None
    log = observed.log
    found: dict[str, dict[int, tuple[float, ...]]] = {}
    for turn in sorted((turn for turn in observed.turns if turn.burst), key=lambda turn: turn.process):
        assert turn.burst is not None
        beside = turn.burst["sentinel_ms"]
        kept = samples.burst(turn, turn.workloads[0], log).ranked(beside) if beside else []
        # Where a worker died, the reference has another turn in the one that went on: the later one, as in its record.
        found.setdefault(turn.variant, {})[turn.process] = tuple(round(sample, 6) for sample in kept)
    return Sentinel(kernel=observed.sentinel, samples_ms={name: tuple(parts.values()) for name, parts in found.items()})


def to_samples(observed: Observations) -> str:
    """Return every sample that was taken, ranked or not, with what the device was doing at each, as JSON.

    `busy_s` of `measuring_s` the device was busy with measured calls; a series stands on a line.
    """
    log = observed.log
    lines = [json.dumps(each, allow_nan=False) for turn in observed.turns for each in samples.every(turn, log)]
    measuring_s = sum(turn.ended - turn.began for turn in observed.turns)
    busy_s = sum(turn.busy_s for turn in observed.turns)
    head = f'{{"schema": 1, "busy_s": {busy_s:.3f}, "measuring_s": {measuring_s:.3f}, "series": [\n'
    return head + ",\n".join(lines) + "\n]}\n"
