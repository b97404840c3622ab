"""Runs at hand of a notebook -> how far they differ. Nothing is measured."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fluxbench.analysis.certificate.reruns import FAST_MS, CuptiDifference, Pairs, Reruns, Spread
from fluxbench.analysis.certificate.stored_runs import StoredRun, overlapped, stored_runs
from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Measured
from fluxbench.analysis.groups import is_launch_bound
from fluxbench.device.model import Device
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.stats.significance import Verdict


def of_notebook(root: Path, device: Device, notebook: str) -> Reruns:
    """Return how far the runs at hand of a notebook's cells differ, on this model of device."""
    return summary(stored_runs(root, device, notebook), notebook)


def summary(runs: Mapping[str, Sequence[StoredRun]], notebook: str) -> Reruns:
    """Return how far runs differ, by cell, the newest first."""
    several = {cell: of_cell for cell, of_cell in runs.items() if len(of_cell) > 1}
    once = sorted(runs.keys() - several.keys()) if several else []
    runs = several or runs
    records = [record for of_cell in runs.values() for run in of_cell for record in run.records]
    differences = list(_differences(runs))
    launch_bound = {(r.variant, r.workload.name) for r in records if is_launch_bound(r)}
    spreads = {
        (regime, fast): _spread([d for d in differences if d.regime == regime and (d.median_ms < FAST_MS) is fast])
        for regime in (BURST, SUSTAINED)
        for fast in (True, False)
    }
    found = Reruns(
        notebook=notebook,
        runs=min(map(len, runs.values()), default=0),
        once=tuple(once),
        cells={cell: tuple(run.measured_at for run in of_cell) for cell, of_cell in runs.items()},
        at_once=overlapped(runs),
        clocks=tuple(
            CuptiDifference(variant=r.variant, workload=r.workload.name, difference=r.cupti.difference)
            for r in records
            if r.cupti
        ),
        burst_faster=spreads[BURST, True],
        burst_slower=spreads[BURST, False],
        sustained_faster=spreads[SUSTAINED, True],
        sustained_slower=spreads[SUSTAINED, False],
        late=len(launch_bound),
        compared=_pairs(_compared(runs) if differences else [], launch_bound),
    )
    return msgspec.structs.replace(found, reason=found.why_none)


@dataclass(frozen=True, kw_only=True)
class _Difference:
    """The ratios of one variant at one workload in several runs."""

    variant: str
    workload: str
    regime: str
    median_ms: float  # in the newest run
    ratios: tuple[float, ...]  # the newest first

    @property
    def share(self) -> float:
        return max(self.ratios) / min(self.ratios) - 1


def _differences(runs: Mapping[str, Sequence[StoredRun]]) -> Iterator[_Difference]:
    """Yield how far the ratios of each variant differ, of those that have one in two runs or more.

    Where a record is launch-bound in any run, there is no sustained ratio: it is a property of the host.
    """
    for of_cell in runs.values():
        for variant, workload in [(record.variant, record.workload.name) for record in of_cell[0].records]:
            passed = [
                record
                for run in of_cell
                for record in run.records
                if (record.variant, record.workload.name) == (variant, workload) and record.timings
            ]
            for regime in (BURST, SUSTAINED):
                if regime == SUSTAINED and any(map(is_launch_bound, passed)):
                    continue
                timings = [timing for record in passed if (timing := record.timings.get(regime))]
                if len(timings) > 1 and variant != timings[0].reference_variant:
                    yield _Difference(
                        variant=variant,
                        workload=workload,
                        regime=regime,
                        median_ms=timings[0].median_ms,
                        ratios=tuple(timing.ratio for timing in timings),
                    )


def _spread(differences: Sequence[_Difference]) -> Spread | None:
    if not differences:
        return None
    worst = max(differences, key=lambda difference: difference.share)
    return Spread(
        max=worst.share,
        median=statistics.median(difference.share for difference in differences),
        variant=worst.variant,
        workload=worst.workload,
        ratios=worst.ratios,
        count=len(differences),
    )


def _compared(runs: Mapping[str, Sequence[StoredRun]]) -> list[Comparison]:
    """Compare each run of the notebook with each newer one."""
    count = max(map(len, runs.values()), default=0)
    sides = [_side(runs, index) for index in reversed(range(count))]
    return [compare(*pair, across_graphs=True) for pair in itertools.combinations(sides, 2)]


def _side(runs: Mapping[str, Sequence[StoredRun]], index: int) -> Measured:
    """Return the runs of all cells that are `index` runs before the newest."""
    chosen = [of_cell[index] for of_cell in runs.values() if index < len(of_cell)]
    return Measured(
        name=max(run.measured_at for run in chosen),
        records=tuple(record for run in chosen for record in run.records),
        controls={(run.records[0].notebook, run.records[0].cell): run.control for run in chosen if run.control},
    )


def _pairs(comparisons: Sequence[Comparison], launch_bound: set[tuple[str, str]]) -> Pairs:
    rows = [row for comparison in comparisons for row in comparison.compared]
    judged = [row.judged for row in rows if row.judged]
    sustained = [row.sustained for row in rows if row.sustained and (row.variant, row.workload) not in launch_bound]
    return Pairs(
        pairs=len(comparisons),
        rows=len(rows),
        called=sum(change.significant for change in judged),
        undecided=sum(change.verdict is Verdict.UNDECIDED for change in judged),
        called_sustained=sum(change.significant for change in sustained),
        device_moved=sum(bool(one.device and one.device.significant) for one in comparisons),
    )
