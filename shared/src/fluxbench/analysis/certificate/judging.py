"""The trials, judged: is a kernel found different from itself, and is an injected slowdown detected?

Two runs are compared exactly as `fluxbench rerun` compares two results. The unslowed variants of a run (`plus_0` and
its twin, of every base) stand for a table of kernels that did not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import msgspec

from fluxbench.analysis.certificate.trials import Trials
from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Measured, Row
from fluxbench.analysis.groups import is_replayed
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.stats.significance import Change, Verdict

PERCENT = (0.5, 1.0, 2.0, 5.0)  # the injected slowdowns


def as_measured(trials: Trials, number: int, swapped: Mapping[str, str] | None = None) -> Measured:
    """Return one run as if it had measured the unslowed variants alone.

    `swapped` names, by variant, the slowed one that takes its place and name, with its own control kernel's times.
    """
    run = trials.runs[number]
    names = {(swapped or {}).get(name, name): name for name in trials.unslowed}
    records = tuple(
        msgspec.structs.replace(record, variant=names[record.variant])
        for record in run.records
        if record.variant in names
    )
    controls = {}
    if run.control and records:
        times = {
            names.get(name, name): samples
            for name, samples in run.control.samples_ms.items()
            if name in names or name not in trials.variants
        }
        key = records[0].notebook, records[0].cell
        controls[key] = msgspec.structs.replace(run.control, samples_ms=times)
    return Measured(name=f"run {number + 1}", records=records, controls=controls)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The verdicts on some rows."""

    verdicts: Mapping[Verdict, int]
    covered: int  # intervals that hold the truth
    half_width: float | None  # of the 95% intervals, a share, median
    known: int  # intervals whose truth is known
    missing: int = 0  # rows that could not be compared

    @property
    def count(self) -> int:
        """How many rows were compared."""
        return sum(self.verdicts.values())

    @property
    def significant(self) -> int:
        """How many rows were faster or slower."""
        return self.verdicts[Verdict.FASTER] + self.verdicts[Verdict.SLOWER]

    @property
    def coverage(self) -> float | None:
        """The share of the intervals with a known truth that hold it; None where there is none."""
        return self.covered / self.known if self.known else None

    def rate(self, *which: Verdict) -> float | None:
        """Return the share of the rows with one of these verdicts; None where there is no row."""
        return sum(self.verdicts[one] for one in which) / self.count if self.count else None


def change_of(row: Row, regime: str) -> Change | None:
    """Return the change of a row in a regime; the one in burst is normalized to control where that was timed."""
    return row.sustained if regime == SUSTAINED else row.judged


def tally(rows: Iterable[Row], truth: Callable[[Row], float | None] = lambda row: 1.0, regime: str = BURST) -> Tally:
    """Count the verdicts on rows, whose true ratio `truth` returns, None where it is unknown."""
    verdicts = dict.fromkeys(Verdict, 0)
    missing, known, covered, widths = 0, 0, 0, []
    for row in rows:
        change = change_of(row, regime)
        if change is None:
            missing += 1
            continue
        verdicts[change.verdict] += 1
        expected = truth(row)
        known += expected is not None
        covered += expected is not None and change.low <= expected <= change.high
        widths.append((change.high - change.low) / 2)
    finite = [width for width in widths if math.isfinite(width)]
    half_width = median(finite) if finite else None
    return Tally(verdicts=verdicts, covered=covered, half_width=half_width, known=known, missing=missing)


def a_a(trials: Trials) -> list[Comparison]:
    """Compare each run with each later one, with no change between them."""
    sides = [as_measured(trials, number) for number in range(len(trials.runs))]
    return [compare(*pair, across_graphs=True) for pair in itertools.combinations(sides, 2)]


@dataclass(frozen=True, kw_only=True)
class FalsePositive:
    """A kernel of which a pair of runs, between which nothing changed, has a significant change at some workload."""

    variant: str
    runs: tuple[int, int]  # from 1
    changes: tuple[Change, ...]  # the significant ones
    workloads: int  # that were compared
    replayed: tuple[int, ...]  # of the two runs, those that timed CUDA graphs


def false_positives(trials: Trials, comparisons: Sequence[Comparison], regime: str) -> list[FalsePositive]:
    """Return what is significant in the comparisons of `a_a`, by pair of runs and kernel."""
    pairs = itertools.combinations(range(len(trials.runs)), 2)
    found = []
    for runs, comparison in zip(pairs, comparisons, strict=True):
        for variant in trials.unslowed:
            rows = (row for row in comparison.rows if row.variant == variant)
            changes = [change for row in rows if (change := change_of(row, regime))]
            if any(change.significant for change in changes):
                found.append(
                    FalsePositive(
                        variant=variant,
                        runs=(runs[0] + 1, runs[1] + 1),
                        changes=tuple(change for change in changes if change.significant),
                        workloads=len(changes),
                        replayed=tuple(
                            run + 1
                            for run in runs
                            if any(r.variant == variant and is_replayed(r, regime) for r in trials.runs[run].records)
                        ),
                    )
                )
    return found


def injected(
    trials: Trials,
    base: str,
    percent: float,
    workload: str | None = None,
    *,
    twin: bool = False,
    regime: str = BURST,
) -> list[float]:
    """Return the true ratios: of a slowed variant's time to that of `plus_0`, for each process and workload.

    A time is a process's median in burst, and its mean sustained. Nothing where the form was not measured, and of a run
    in which another number of processes measured it than the other: these are no pairs.
    """
    pairs = _injected(trials, base, percent, workload, twin=twin, regime=regime)
    return [ratio for of_process in pairs.values() for ratio in of_process]


def _injected(
    trials: Trials, base: str, percent: float, workload: str | None = None, *, twin: bool = False, regime: str = BURST
) -> dict[tuple[int, int], list[float]]:
    """Return the true ratios by run and process."""
    if not trials.has(base, percent, twin=twin):
        return {}
    middle = fmean if regime == SUSTAINED else median
    plain, slower = trials.variant(base, 0.0), trials.variant(base, percent, twin=twin)
    ratios: dict[tuple[int, int], list[float]] = {}
    for number, run in enumerate(trials.runs):
        times = {(r.variant, r.workload.name): r.timings[regime].samples_ms for r in run.records if regime in r.timings}
        for variant, name in times:
            before, after = times[variant, name], times.get((slower, name), ())
            if variant == plain and len(before) == len(after) and workload in (None, name):
                for process, pair in enumerate(zip(before, after, strict=True)):
                    ratios.setdefault((number, process), []).append(middle(pair[1]) / middle(pair[0]))
    return ratios


@dataclass(frozen=True, kw_only=True)
class Detected:
    """The verdicts on one injected slowdown."""

    percent: float
    total: Tally
    by_base: Mapping[str, Tally]
    truth: Mapping[str, float]  # by base: the median of the true ratios
    truth_error: Mapping[str, float]  # by base: its standard error, a share

    @property
    def rate(self) -> float | None:
        """The share of the comparisons with the verdict slower."""
        return self.total.rate(Verdict.SLOWER)


def detected(trials: Trials, percent: float, regime: str = BURST) -> Detected:
    """Return the verdicts on one slowdown, in comparisons of each run in which it was measured with each other one.

    Before is any run, after any other in which one variant of the table is slower and all others are as they were.
    """
    numbers = range(len(trials.runs))
    plain_sides = [as_measured(trials, number) for number in numbers]
    by_base: dict[str, list[Row]] = {}
    for base in (base for base in trials.bases if trials.has(base, percent)):
        plain = trials.variant(base, 0.0)
        slower = trials.variant(base, percent)
        slowed = {
            number: as_measured(trials, number, {plain: slower})
            for number in numbers
            if any(record.variant == slower for record in trials.runs[number].records)
        }
        by_base[base] = [
            row
            for before, after in itertools.product(numbers, slowed)
            if before != after
            for row in compare(plain_sides[before], slowed[after], across_graphs=True).rows
            if row.variant == plain
        ]
    cases = {(base, row.workload) for base, rows in by_base.items() for row in rows}
    truths = {
        case: median(ratios) for case in cases if (ratios := injected(trials, case[0], percent, case[1], regime=regime))
    }

    def truth(row: Row) -> float | None:
        return truths.get((trials.variants[row.variant].base, row.workload))

    return Detected(
        percent=percent,
        total=tally((row for rows in by_base.values() for row in rows), truth, regime),
        by_base={base: tally(rows, truth, regime) for base, rows in by_base.items()},
        truth={
            base: median(ratios) for base in trials.bases if (ratios := injected(trials, base, percent, regime=regime))
        },
        truth_error={base: _truth_error(trials, base, percent, regime) for base in by_base},
    )


def _truth_error(trials: Trials, base: str, percent: float, regime: str) -> float:
    """Return the standard error of the median of the true ratios; a process, the mean over its workloads, is one value.

    As for nearly normal values: sqrt(pi / 2) times that of the mean. Of one process it is infinite.
    """
    processes = [fmean(ratios) for ratios in _injected(trials, base, percent, regime=regime).values()]
    if len(processes) < 2:
        return math.inf
    return math.sqrt(math.pi / 2) * stdev(processes) / math.sqrt(len(processes))


def ratio_differences(trials: Trials) -> list[float]:
    """Return how far the burst ratio of each unslowed variant and workload differs between the runs, as a share."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for record in trials.records:
        if record.burst and record.variant in trials.unslowed:
            ratios.setdefault((record.variant, record.workload.name), []).append(record.burst.ratio)
    return [max(of_runs) / min(of_runs) - 1 for of_runs in ratios.values() if len(of_runs) > 1]


def cupti_differences(trials: Trials) -> list[tuple[Record, float]]:
    """Return the records with a CUPTI cross-check, each with the share by which that differs.

    On a CPU of unslowed variants alone: the profiler there sees torch's operators, and no other work.
    """
    on_cpu = trials.fingerprint.get("device_kind") == "cpu"
    return [
        (record, record.cupti.difference)
        for record in trials.records
        if record.cupti and not (on_cpu and record.variant not in trials.unslowed)
    ]
