"""How far sustained times of runs differ beyond their processes, estimated from published runs.

As `components` does of burst times, with five differences. The times are as they are, not normalized. Only kernels
count whose processes differ by less than 0.9%: the time of others depends on how their calls are launched, and differs
by up to 25% from page to page. Pages are of one method version, torch and driver. Of each kernel both must have timed
CUDA graphs, or neither. Sessions of the certificate by methods before `method.WITHOUT_PAUSE` do not count where there
are later ones: runs differed by how late their hosts were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fluxbench.analysis.comparison.levels import levels_of_means
from fluxbench.analysis.groups import is_replayed
from fluxbench.analysis.simulation.components import (
    Run,
    VariantKey,
    between_runs,
    by_card,
    by_workload,
    most,
    pages_of,
    sessions_of,
)
from fluxbench.device.targets import BetweenRuns
from fluxbench.records import method
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.stats.pooling import Levels, spread

USUAL = 0.009  # of the sustained means of a kernel's processes, standard deviation


def published(root: Path, target: str, notebook: str) -> tuple[BetweenRuns | None, BetweenRuns | None]:
    """Return how far runs differ on one card and on another card, each None where too few are published.

    The most of all sessions of the certificate, and of all pages that are alike.
    """
    reports = root / "reports" / target
    pages: dict[tuple[object, ...], list[Run]] = {}
    for page in pages_of(reports, notebook, _as_they_are):
        pages.setdefault((page.method_version, page.workloads, *page.software), []).append(page)
    cards = [each for alike in pages.values() if len(each := by_card(alike)) > 1]
    sessions = sessions_of(reports, _as_they_are)
    later = [runs for runs in sessions if runs[0].method_version >= method.WITHOUT_PAUSE]
    return _most(later or sessions), _most(cards)


def _most(several: Iterable[Sequence[Run]]) -> BetweenRuns | None:
    return most([between_runs(runs) for runs in map(_usual, several) if runs[0].levels])


def _usual(runs: Sequence[Run]) -> list[Run]:
    """Return runs with the kernels alone that all have, whose processes differ little."""
    keys = set.intersection(*(set(run.levels) for run in runs))
    alike = {key for key in keys if len({len(run.levels[key]) for run in runs}) == 1}
    usual = {key for key in alike if spread([run.levels[key] for run in runs])[0].value < USUAL**2}
    return [replace(run, levels={key: its for key, its in run.levels.items() if key in usual}) for run in runs]


def _as_they_are(records: Sequence[Record], _: Mapping[str, ControlTimes]) -> dict[VariantKey, Levels]:
    """Return the levels of each variant that has sustained times of several processes; graphs are another variant."""
    found: dict[VariantKey, dict[str, tuple[float, ...]]] = {}
    for record in records:
        if record.burst and record.sustained and len(record.sustained.samples_ms) > 1:
            graphs = " as graphs" * is_replayed(record, SUSTAINED)
            levels = levels_of_means(record.sustained.samples_ms)
            found.setdefault((record.cell, record.variant + graphs), {})[record.workload.name] = levels
    return by_workload(found)
