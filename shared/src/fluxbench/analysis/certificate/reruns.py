"""How far fresh runs of a whole notebook differ: the results of its cells that lie in its store, and the published one.

Nothing is measured. A run of a cell is compared with others of the same fingerprint alone: the same device, driver,
packages, source and measuring modules.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fluxbench.analysis.comparison import Comparison, Measured, compare
from fluxbench.analysis.history import moment
from fluxbench.analysis.ranking import launch_bound
from fluxbench.device.detection import target_name
from fluxbench.device.model import Device
from fluxbench.records import fingerprint
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError, Sentinel

NOTEBOOK = "flux"
RUNS = 3
FAST_MS = 2.0
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_LOOKED_AT = 10  # results of a cell, of which the last with the fingerprint of the newest are taken
REGIMES = ("burst", "sustained")
HOW = f'run `make publish`, then `make rerun CELL="sdpa sdpa_compiled flex triton"` {RUNS - 1} times'


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One good run of a measuring cell."""

    cell: str
    records: tuple[Record, ...]
    sentinel: Sentinel | None
    span: tuple[datetime, datetime] | None = None  # begin and end of the run, UTC; None where it is not known

    @property
    def measured_at(self) -> str:
        """When it was measured, UTC."""
        return self.records[0].measured_at


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a variant's ratio to the reference differs between runs at one workload, in one regime."""

    variant: str
    workload: str
    regime: str
    median_ms: float  # in the newest run
    ratios: tuple[float, ...]  # the newest first

    @property
    def share(self) -> float:
        """The largest ratio over the smallest, less one."""
        return max(self.ratios) / min(self.ratios) - 1


def at_hand(root: Path, device: Device) -> dict[str, list[Ran]]:
    """Return the last runs of each measuring cell on this model of device, the newest first, `RUNS` at most."""
    published = root / "reports" / target_name(device) / NOTEBOOK / "records"
    paths = {cell: [folder / f"{cell}.jsonl" for folder in its] for cell, its in _local(root).items()}
    for cell in _cells(root):
        paths.setdefault(cell, []).append(published / f"{cell}.jsonl")
    found: dict[str, list[Ran]] = {}
    now = fingerprint.of_device(device)
    for cell, its in sorted(paths.items()):
        for path in its:
            with contextlib.suppress(OSError, RecordError):
                seen = tuple(records.read(path))
                if seen and not fingerprint.another_device(seen[0].fingerprint, now):
                    sentinel = records.read_sentinel(path.with_name(f"{cell}.sentinel.json"))
                    ran = Ran(cell=cell, records=seen, sentinel=sentinel, span=_span(path.with_name("result.json")))
                    found.setdefault(cell, []).append(ran)
    return {cell: chosen(its) for cell, its in found.items()}


def _span(path: Path) -> tuple[datetime, datetime] | None:
    """Return when a run of the store began and ended; None for what is not one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        began = moment(result["ran_at"])
        return (began, began + timedelta(seconds=float(result["duration"]))) if began else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def at_once(runs: Mapping[str, Sequence[Ran]]) -> bool:
    """Whether runs of a cell overlapped in time: then each had a device of its own, of the same model."""
    spans = {cell: sorted(run.span for run in its if run.span) for cell, its in runs.items()}
    return any(earlier[1] > later[0] for its in spans.values() for earlier, later in itertools.pairwise(its))


def latest(root: Path) -> str:
    """Return which runs lie in the notebook's store, the last of each cell: what `at_hand` depends on."""
    return ", ".join(folders[0].name for _, folders in sorted(_local(root).items()))


def _cells(root: Path) -> list[str]:
    """Return the notebook's cells as it is now."""
    try:
        text = (root / "notebooks" / f"{NOTEBOOK}.md").read_text(encoding="utf-8")
    except OSError:
        return []
    return re.findall(r"^```python id=([\w-]+)", text, flags=re.MULTILINE)


def _local(root: Path) -> dict[str, list[Path]]:
    """Return the folders of the last good results of each measuring cell in the notebook's store, the newest first."""
    found: dict[str, list[tuple[int, Path]]] = {}
    cells = _cells(root)
    for folder in (root / "notebooks" / ".uvnote" / "cache").glob(f"{NOTEBOOK}.*"):
        named = re.fullmatch(rf"{NOTEBOOK}\.([\w-]+)\.(\d+)", folder.name)
        if named and named[1] in cells:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
                if not result.get("failure") and (folder / f"{named[1]}.jsonl").is_file():
                    found.setdefault(named[1], []).append((int(named[2]), folder))
    return {cell: [folder for _, folder in sorted(its, reverse=True)[:_LOOKED_AT]] for cell, its in found.items()}


def chosen(runs: Iterable[Ran]) -> list[Ran]:
    """Return the last runs of one cell that have the fingerprint of the newest, each once."""
    unique = {(run.measured_at, *(r.burst.samples_ms for r in run.records if r.burst)): run for run in runs}
    newest_first = sorted(unique.values(), key=lambda run: moment(run.measured_at) or _NO_TIME, reverse=True)
    alike = [run for run in newest_first if run.records[0].fingerprint == newest_first[0].records[0].fingerprint]
    return alike[:RUNS]


def differences(runs: Mapping[str, Sequence[Ran]]) -> list[Difference]:
    """Return how far the ratios of each variant differ, of those that have one in two runs or more.

    Where a sustained time is of launching, in any run, there is no sustained ratio: it says what the host did.
    """
    found = []
    for its in runs.values():
        for key in [(record.variant, record.workload.name) for record in its[0].records]:
            passed = [r for run in its for r in run.records if (r.variant, r.workload.name) == key and r.timing]
            for regime in REGIMES:
                if regime == "sustained" and any(map(launch_bound, passed)):
                    continue
                timings = [
                    t for r in passed if (t := r.burst if regime == "burst" else r.timing) and t.regime == regime
                ]
                if len(timings) > 1 and key[0] != timings[0].reference_variant:
                    ratios = tuple(timing.ratio for timing in timings)
                    found.append(Difference(
                        variant=key[0], workload=key[1], regime=regime, median_ms=timings[0].median_ms, ratios=ratios
                    ))  # fmt: skip
    return found


def compared(runs: Mapping[str, Sequence[Ran]]) -> list[Comparison]:
    """Compare each run of the notebook with each newer one, as `fluxbench diff` does."""
    count = max(map(len, runs.values()), default=0)
    sides = [_side(runs, at) for at in reversed(range(count))]
    return [compare(*pair) for pair in itertools.combinations(sides, 2)]


def _side(runs: Mapping[str, Sequence[Ran]], at: int) -> Measured:
    """Return what all cells measured in their run before the last `at` ones."""
    its = [cell_runs[at] for cell_runs in runs.values() if at < len(cell_runs)]
    return Measured(
        name=max(run.measured_at for run in its),
        records=tuple(record for run in its for record in run.records),
        sentinels={(run.records[0].notebook, run.records[0].cell): run.sentinel for run in its if run.sentinel},
    )


def summary(runs: Mapping[str, Sequence[Ran]]) -> dict[str, Any]:
    """Return what `reruns.json` holds; the numbers are shares, null with a `reason` where there are none."""
    several = {cell: its for cell, its in runs.items() if len(its) > 1}
    once = sorted(runs.keys() - several.keys()) if several else []
    runs = several or runs
    seen = differences(runs)
    count = min(map(len, runs.values()), default=0)
    found: dict[str, Any] = {
        "notebook": NOTEBOOK,
        "runs": count,  # that every cell has, but those with a run alone
        "once": once,
        "cells": {cell: [run.measured_at for run in its] for cell, its in runs.items()},
        "at_once": at_once(runs),
        "fast_ms": FAST_MS,
        "clocks": [
            {"variant": r.variant, "workload": r.workload.name, "difference": r.second_clock.difference}
            for its in runs.values()
            for run in its
            for r in run.records
            if r.second_clock
        ],
    }
    for regime in REGIMES:
        for which, fast in (("faster", True), ("slower", False)):
            its = [each for each in seen if each.regime == regime and (each.median_ms < FAST_MS) == fast]
            found[f"{regime}_{which}"] = _largest(its)
    late = {
        (r.variant, r.workload.name) for its in runs.values() for run in its for r in run.records if launch_bound(r)
    }
    found["late"] = len(late)
    comparisons = compared(runs) if seen else []
    rows = [row for comparison in comparisons for row in comparison.compared]
    found["compared"] = {
        "pairs": len(comparisons),
        "rows": len(rows),
        "called": sum(bool(row.told and row.told.called) for row in rows),
        "undecided": sum(bool(row.told and row.told.verdict == "undecided") for row in rows),
        "called_sustained": sum(
            bool(row.sustained and row.sustained.called) for row in rows if (row.variant, row.workload) not in late
        ),
        "device_moved": sum(bool(each.device and each.device.called) for each in comparisons),
    }
    found["reason"] = _reason(runs, count, found)
    return found


def _largest(its: Sequence[Difference]) -> dict[str, Any] | None:
    if not its:
        return None
    worst = max(its, key=lambda each: each.share)
    shares = sorted(each.share for each in its)
    return {
        "max": worst.share,
        "median": shares[len(shares) // 2],
        "variant": worst.variant,
        "workload": worst.workload,
        "ratios": list(worst.ratios),
        "count": len(its),
    }


def _reason(runs: Mapping[str, Sequence[Ran]], count: int, found: Mapping[str, Any]) -> str | None:
    """Say in a sentence why there is no number, or None."""
    if not runs:
        return f"there is no result of notebooks/{NOTEBOOK}.md here; {HOW}"
    if count < 2:
        alone = ", ".join(cell for cell, its in runs.items() if len(its) < 2)
        return f"there is one run alone of {alone} with the fingerprint of the newest; {HOW}"
    if not found["burst_faster"]:
        return f"no variant takes less than {FAST_MS:g} ms on this device"
    return None
