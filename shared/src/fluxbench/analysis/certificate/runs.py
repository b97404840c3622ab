"""The certificate's trials, judged: is a kernel called different from itself, and is a slowdown that was put in found?

A run is compared with another exactly as `fluxbench rerun` compares two results, by `fluxbench.comparison.compare`.
Unslowed forms of a run (`plus_0` and its twin, of every base) stand for a table of kernels that did not change.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from fluxbench.analysis.comparison import Comparison, Measured, Row, compare
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError, Sentinel
from fluxbench.stats.significance import Verdict

PERCENT = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a slowed variant is: its base, followed by a spin of so many percent of a call."""

    base: str
    percent: float
    twin: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of all slowed variants: fresh processes, burst samples."""

    records: tuple[Record, ...]
    sentinel: Sentinel | None
    places: tuple[Mapping[str, Any], ...]  # see `certificate_trials.places`
    seconds: float = 0.0
    others: tuple[str, ...] = ()  # processes that used the device meanwhile


@dataclass(frozen=True, kw_only=True)
class Trials:
    """All runs of the trials, in order."""

    runs: tuple[Run, ...]
    forms: Mapping[str, Form]  # by variant
    asked: int  # runs
    device: str
    fingerprint: Mapping[str, Any]

    @property
    def bases(self) -> tuple[str, ...]:
        """The kernels that are slowed, in order."""
        return tuple(dict.fromkeys(form.base for form in self.forms.values()))

    @property
    def records(self) -> list[Record]:
        """The PASSED records of all runs."""
        return [record for run in self.runs for record in run.records if record.burst]

    @property
    def processes(self) -> int:
        """How many fresh processes took part."""
        return sum(max((r.burst.processes for r in run.records if r.burst), default=0) for run in self.runs)

    def name(self, base: str, percent: float) -> str:
        """Return the variant that is a base slowed by so much."""
        return next(n for n, f in self.forms.items() if (f.base, f.percent, f.twin) == (base, percent, False))


def read(text: str) -> Trials:
    """Return what `trials.json` holds. Raises `RecordError` where it is damaged."""
    try:
        data = json.loads(text)
        return Trials(
            runs=tuple(_run(run, data["fingerprint"]) for run in data["runs"]),
            forms={name: Form(**form) for name, form in data["variants"].items()},
            asked=data["asked"],
            device=data["device"],
            fingerprint=data["fingerprint"],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"trials.json must hold the runs of trials, got something else: {error!r}") from error


def _run(data: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> Run:
    sentinel = data["sentinel"]
    return Run(
        records=tuple(
            records.from_json(json.dumps({**record, "timing": record["burst"], "fingerprint": fingerprint}))
            for record in data["records"]
        ),
        sentinel=Sentinel(kernel=sentinel["kernel"], samples_ms=sentinel["samples_ms"]) if sentinel else None,
        places=tuple(data["places"]),
        seconds=data["seconds"],
        others=tuple(data["others"]),
    )


def as_measured(trials: Trials, number: int, swapped: Mapping[str, str] | None = None) -> Measured:
    """Return one run as if it had measured unslowed forms alone.

    `swapped` names, by variant, the slowed one that stands in its place and under its name, with its own sentinel.
    """
    run = trials.runs[number]
    shown = {(swapped or {}).get(name, name): name for name, form in trials.forms.items() if not form.percent}
    kept = tuple(replace(record, variant=shown[record.variant]) for record in run.records if record.variant in shown)
    sentinels = {}
    if run.sentinel and kept:
        times = {
            shown.get(name, name): parts
            for name, parts in run.sentinel.samples_ms.items()
            if name in shown or name not in trials.forms
        }
        sentinels[kept[0].notebook, kept[0].cell] = replace(run.sentinel, samples_ms=times)
    return Measured(name=f"run {number + 1}", records=kept, sentinels=sentinels)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What was told of some rows."""

    verdicts: Mapping[Verdict, int]
    covered: int  # intervals that hold the truth
    half: float | None  # half the 95% interval, a share, median
    missing: int = 0  # rows that could not be compared

    @property
    def count(self) -> int:
        """How many rows were compared."""
        return sum(self.verdicts.values())

    @property
    def called(self) -> int:
        """How many were called faster or slower."""
        return self.verdicts[Verdict.FASTER] + self.verdicts[Verdict.SLOWER]

    def rate(self, *which: Verdict) -> float | None:
        """Return the share of the rows that got one of these verdicts; None where there is no row."""
        return sum(self.verdicts[one] for one in which) / self.count if self.count else None


def tally(rows: Iterable[Row], truth: Callable[[Row], float | None] = lambda row: 1.0) -> Tally:
    """Count what was told of some rows, whose true ratio `truth` returns, None where it is not known."""
    told, missing, covered, halves = [], 0, 0, []
    for row in rows:
        if row.told is None:
            missing += 1
            continue
        told.append(row.told.verdict)
        expected = truth(row)
        covered += expected is not None and row.told.low <= expected <= row.told.high
        halves.append((row.told.high - row.told.low) / 2)
    known = [half for half in halves if math.isfinite(half)]
    return Tally(
        verdicts={verdict: told.count(verdict) for verdict in Verdict},
        covered=covered,
        half=median(known) if known else None,
        missing=missing,
    )


def a_a(trials: Trials) -> list[Comparison]:
    """Compare each run with each later one, nothing changed between them."""
    sides = [as_measured(trials, number) for number in range(len(trials.runs))]
    return [compare(*pair) for pair in itertools.combinations(sides, 2)]


def detection(trials: Trials, base: str, percent: float) -> list[Row]:
    """Return the rows of a base in comparisons of each run with each other one, before and after it was slowed.

    One variant of the table is slower, all others are as they were. Before is any run, after any other.
    """
    plain, slower = trials.name(base, 0.0), trials.name(base, percent)
    numbers = range(len(trials.runs))
    before = [as_measured(trials, number) for number in numbers]
    after = [as_measured(trials, number, {plain: slower}) for number in numbers]
    return [
        row
        for i, j in itertools.permutations(numbers, 2)
        for row in compare(before[i], after[j]).rows
        if row.variant == plain
    ]


def put_in(
    trials: Trials, base: str, percent: float, workload: str | None = None, *, twin: bool = False
) -> list[float]:
    """Return, of each process and workload, the ratio of the slowed form's median to that of `plus_0`: the truth."""
    of = {(form.base, form.percent, form.twin): name for name, form in trials.forms.items()}
    plain, slower = of[base, 0.0, False], of[base, percent, twin]
    found = []
    for run in trials.runs:
        times = {(r.variant, r.workload.name): r.burst.by_process for r in run.records if r.burst}
        for variant, at in times:
            if variant == plain and (slower, at) in times and workload in (None, at):
                pairs = zip(times[plain, at], times[slower, at], strict=True)
                found += [median(after) / median(before) for before, after in pairs]
    return found


@dataclass(frozen=True, kw_only=True)
class Detected:
    """What became of the trials of one slowdown: of all bases together, and of each."""

    percent: float
    total: Tally
    by_base: Mapping[str, Tally]
    truth: Mapping[str, float]  # by base: the median ratio that was seen to be put in

    @property
    def rate(self) -> float | None:
        """The share of the trials in which it was called slower."""
        return self.total.rate(Verdict.SLOWER)


def detected(trials: Trials, percent: float) -> Detected:
    """Return what became of the trials of one slowdown."""
    by_base: dict[str, Sequence[Row]] = {base: detection(trials, base, percent) for base in trials.bases}
    cases = {(base, row.workload) for base, rows in by_base.items() for row in rows}
    truths = {(base, at): median(ratios) for base, at in cases if (ratios := put_in(trials, base, percent, at))}

    def truth(row: Row) -> float | None:
        return truths.get((trials.forms[row.variant].base, row.workload))

    return Detected(
        percent=percent,
        total=tally((row for rows in by_base.values() for row in rows), truth),
        by_base={base: tally(rows, truth) for base, rows in by_base.items()},
        truth={base: median(ratios) for base in trials.bases if (ratios := put_in(trials, base, percent))},
    )


def again(trials: Trials) -> list[float]:
    """Return by how much the burst ratio of each unslowed form and workload differs between the runs, as a share."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for record in trials.records:
        if record.burst and not trials.forms[record.variant].percent:
            ratios.setdefault((record.variant, record.workload.name), []).append(record.burst.ratio)
    return [max(its) / min(its) - 1 for its in ratios.values() if len(its) > 1]


def clock_differences(trials: Trials) -> list[tuple[Record, float]]:
    """Return the records that two clocks timed, each with the share by which these differ.

    On a CPU of unslowed forms alone: the profiler there sees torch's operators, and no spin.
    """
    on_cpu = trials.fingerprint.get("device_kind") == "cpu"
    return [
        (record, record.second_clock.difference)
        for record in trials.records
        if record.second_clock and not (on_cpu and trials.forms[record.variant].percent)
    ]


def unslowed(trials: Trials) -> list[str]:
    """Return the variants that are not slowed, twins included."""
    return [name for name, form in trials.forms.items() if not form.percent]
