"""How far sustained times of runs differ beyond their processes, estimated from published runs.

As `components` does of burst times, with four differences. The times are as they are, not normalized. Only kernels
count whose processes differ by less than 0.9%: the time of others depends on how their calls are launched, and differs
by up to 25% from page to page. Pages are of one method version, torch and driver. Of each kernel both must have timed
CUDA graphs, or neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fluxbench.analysis.certificate import trials
from fluxbench.analysis.comparison.levels import levels_of_means
from fluxbench.analysis.groups import is_replayed
from fluxbench.analysis.simulation.components import Run, VariantKey, between_runs, by_card, most, trials_of
from fluxbench.device.targets import BetweenRuns
from fluxbench.records import files
from fluxbench.records.schema import SUSTAINED, Record, RecordError
from fluxbench.stats.pooling import spread

_USUAL = 0.009  # of the sustained means of a kernel's processes, standard deviation
_FEWEST = 3  # runs of a session


def published(root: Path, target: str, notebook: str) -> tuple[BetweenRuns | None, BetweenRuns | None]:
    """Return how far runs differ on one card and on another card, each None where too few are published.

    The most of all sessions of the certificate, and of all pages that are alike.
    """
    reports = root / "reports" / target
    sessions = [runs for path in trials_of(reports) if len(runs := _session(path)) >= _FEWEST]
    folders = [reports / notebook / "records", *sorted((reports / notebook / "history").glob("*"), reverse=True)]
    pages: dict[tuple[object, ...], list[Run]] = {}
    for records in map(_read, folders):
        if page := _run(records):
            software = (records[0].versions.get(name) for name in ("torch", "driver"))
            pages.setdefault((page.method_version, *software), []).append(page)
    return _most(sessions), _most([each for alike in pages.values() if len(each := by_card(alike)) > 1])


def _most(several: Iterable[Sequence[Run]]) -> BetweenRuns | None:
    return most([between_runs(runs) for runs in map(_usual, several) if runs[0].levels])


def _usual(runs: Sequence[Run]) -> list[Run]:
    """Return runs with the kernels alone that all have, whose processes differ little."""
    keys = set.intersection(*(set(run.levels) for run in runs))
    alike = {key for key in keys if len({len(run.levels[key]) for run in runs}) == 1}
    usual = {key for key in alike if spread([run.levels[key] for run in runs])[0].value < _USUAL**2}
    return [replace(run, levels={key: its for key, its in run.levels.items() if key in usual}) for run in runs]


def _session(path: Path) -> list[Run]:
    """Return the runs of a certificate's trials without the slowed forms; none of a damaged file."""
    try:
        measured = trials.read_file(path)
    except (OSError, RecordError):
        return []
    found = []
    for run in measured.runs:
        unslowed = [record for record in run.records if not measured.variants[record.variant].percent]
        by_base = [msgspec.structs.replace(one, cell=measured.variants[one.variant].base) for one in unslowed]
        found += [one] if (one := _run(by_base)) else []
    return found


def _read(folder: Path) -> list[Record]:
    """Return the records of a page; damaged files are left out."""
    records: list[Record] = []
    for path in files.paths(folder):
        try:
            records += files.read(path)
        except (OSError, RecordError):
            continue
    return records


def _run(records: Sequence[Record]) -> Run | None:
    """Return the run of some records, None of those without sustained times of several processes."""
    found: dict[VariantKey, dict[str, tuple[float, ...]]] = {}
    for record in records:
        if record.burst and record.sustained and len(record.sustained.samples_ms) > 1:
            graphs = " as graphs" * is_replayed(record, SUSTAINED)  # compared with no launched call
            levels = levels_of_means(record.sustained.samples_ms)
            found.setdefault((record.cell, record.variant + graphs), {})[record.workload.name] = levels
    even = {key: its for key, its in found.items() if len({len(levels) for levels in its.values()}) == 1}
    if not even:
        return None
    card = records[0].fingerprint.get("card")
    return Run(
        name=max(record.measured_at for record in records)[:10],
        card=str(card) if card else None,
        method_version=records[0].method_version,
        levels={key: np.array([its[name] for name in sorted(its)]) for key, its in even.items()},
    )
