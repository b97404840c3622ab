"""The spreads of burst times, normalized to control, estimated from published runs: the components of variance.

They are normalized as two runs are that are compared (`stats.following`), here by all runs of a session or of a page.

The logarithm of a process's time is the sum of the variant's at a workload, what a run adds to a variant, what it adds
to one workload of it, what a process adds to the variant, and what it adds to one workload. Method of moments (Searle,
Casella and McCulloch, Variance Components, 1992, chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from fluxbench.analysis.certificate import trials
from fluxbench.analysis.comparison.levels import levels, normalized_levels
from fluxbench.device.targets import BetweenRuns
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.method import of_burst
from fluxbench.records.schema import Record, RecordError
from fluxbench.stats import following
from fluxbench.stats.pooling import Levels, moderated, spread

VariantKey = tuple[str, str]  # cell, variant
_FEWEST = 3  # runs of a session


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: the levels of each variant, its workloads in order of their names, and where it was taken."""

    name: str
    card: str | None
    method_version: int
    levels: Mapping[VariantKey, Levels]  # or times and those over the control kernel's, [workloads, 2, processes]
    software: tuple[str | None, ...] = ()  # versions of torch and of the driver
    workloads: frozenset[str] = frozenset()  # of a page


LevelsOf = Callable[[Sequence[Record], Mapping[str, ControlTimes]], dict[VariantKey, Levels]]


@dataclass(frozen=True, kw_only=True)
class Components:
    """Standard deviations, shares: those of processes by variant, moderated; and of runs, None where unknown."""

    runs: tuple[str, ...]  # of the notebook, from which the processes' part comes
    workloads: int
    process: tuple[float, ...]  # common to a variant's workloads
    workload: tuple[float, ...]  # one workload's own
    same_card: BetweenRuns | None
    other_card: BetweenRuns | None

    @property
    def correlation(self) -> float:
        """The correlation between two workloads of a variant within a process, over all variants."""
        common, own = (math.fsum(one**2 for one in part) for part in (self.process, self.workload))
        return common / (common + own)


def published(root: Path, target: str, notebook: str) -> Components | None:
    """Return the components of a target's published pages and sessions; None where no page has burst times.

    Processes are those of the pages by the newest page's method version and of its workloads that have all its
    variants. How far runs differ is taken from the newest version that has sessions, how far cards differ from the
    newest one that has pages of several.
    """
    reports = root / "reports" / target
    pages: dict[tuple[int, frozenset[str]], list[Run]] = {}
    for page in pages_of(reports, notebook, _beside_control):
        pages.setdefault((_version(page), page.workloads), []).append(page)
    if not pages:
        return None
    sessions = sessions_of(reports, _beside_control)
    newest = max((_version(runs[0]) for runs in sessions), default=None)
    return components(
        [_normalized([page for page in its if page.levels.keys() >= its[0].levels.keys()]) for its in pages.values()],
        [_normalized(runs) for runs in sessions if _version(runs[0]) == newest],
    )


def _version(run: Run) -> int:
    return of_burst(run.method_version)


def pages_of(reports: Path, notebook: str, levels_of: LevelsOf) -> list[Run]:
    """Return the runs of a notebook that are published of a target, the newest first; damaged files are left out."""
    return [page for folder in _folders(reports, notebook) if (page := _page(folder, levels_of))]


def sessions_of(reports: Path, levels_of: LevelsOf) -> list[list[Run]]:
    """Return the runs of each session of the certificate that is published of a target, of `_FEWEST` runs or more."""
    paths = (path for folder in _folders(reports, "certificate") for path in sorted(folder.glob("trials*.json.gz")))
    return [runs for path in paths if len(runs := _trials(path, reports.name, levels_of)) >= _FEWEST]


def _folders(reports: Path, notebook: str) -> list[Path]:
    return [reports / notebook / "records", *sorted((reports / notebook / "history").glob("*"), reverse=True)]


def components(alike: Sequence[Sequence[Run]], sessions: Sequence[Sequence[Run]]) -> Components:
    """Return the components of pages, in groups whose burst times are taken alike, and of sessions: runs on one card.

    Processes are those of the first group; how far cards differ is that of the first one with several.
    """
    pages = alike[0]
    common = [key for key in pages[0].levels if all(_alike(page, pages[0], key) for page in pages)]
    parts = [spread([page.levels[key] for page in pages]) for key in common]
    means, rests = (moderated(part) for part in zip(*parts, strict=True))
    count = max(len(pages[0].levels[key]) for key in common)
    return Components(
        runs=tuple(page.name for page in pages),
        workloads=count,
        process=tuple(
            math.sqrt(max(0.0, mean.value - rest.value / count)) for mean, rest in zip(means, rests, strict=True)
        ),
        workload=tuple(math.sqrt(rest.value) for rest in rests),
        same_card=most([between_runs(runs) for runs in sessions]),
        other_card=next((between_runs(each) for each in map(by_card, alike) if len(each) > 1), None),
    )


def by_card(pages: Iterable[Run]) -> list[Run]:
    """Return the first page of each card, of pages whose card is known."""
    found: dict[str, Run] = {}
    for page in pages:
        if page.card:
            found.setdefault(page.card, page)
    return list(found.values())


def most(several: Sequence[BetweenRuns]) -> BetweenRuns | None:
    """Return that of the session in which runs differ most, None of none: sessions differ more than chance explains."""
    return max(several, key=lambda one: one.variant, default=None)


def between_runs(runs: Sequence[Run]) -> BetweenRuns:
    """Return how far runs differ beyond their processes, over the variants that all have.

    Variants of one cell share libraries and kernels: each cell counts once in the degrees of freedom.
    """
    keys = [key for key in runs[0].levels if all(_alike(run, runs[0], key) for run in runs)]
    of_variant, of_workload = [], []
    for key in keys:
        levels = [run.levels[key] for run in runs]  # each [workloads, processes]
        mean, rest = spread(levels)
        of_process = fmean(1 / one.shape[1] for one in levels)  # the part of its variance in that of a run's mean
        means = np.array([one.mean(axis=1) for one in levels])
        workloads = means.shape[1]
        apart = means - means.mean(axis=1, keepdims=True)
        own = 0.0
        if workloads > 1:
            free = (len(runs) - 1) * (workloads - 1)
            own = float(((apart - apart.mean(axis=0)) ** 2).sum()) / free - rest.value * of_process
        of_workload.append(own)
        of_variant.append(float(means.mean(axis=1).var(ddof=1)) - mean.value * of_process - own / workloads)
    return BetweenRuns(
        variant=math.sqrt(max(0.0, float(np.mean(of_variant)))),
        workload=math.sqrt(max(0.0, float(np.mean(of_workload)))),
        df=(len(runs) - 1) * len({cell for cell, _ in keys}),
        source=", ".join(run.name for run in runs),
    )


def _trials(path: Path, target: str, levels_of: LevelsOf) -> list[Run]:
    """Return the runs of the certificate's trials; each base kernel is a cell of its forms."""
    try:
        measured = trials.read_file(path)
    except (OSError, RecordError):
        return []
    found = []
    for number, run in enumerate(measured.runs, start=1):
        by_base = [msgspec.structs.replace(r, cell=measured.variants[r.variant].base) for r in run.records]
        controls = {record.cell: run.control for record in by_base if run.control}
        if levels := levels_of(by_base, controls):
            card = str(measured.fingerprint.get("card"))
            name = f"{target} certificate, run {number}"
            found.append(Run(name=name, card=card, method_version=by_base[0].method_version, levels=levels))
    return found


def _page(folder: Path, levels_of: LevelsOf) -> Run | None:
    """Return the run that a folder holds, None of none; damaged files are left out."""
    records: list[Record] = []
    controls: dict[str, ControlTimes] = {}
    for path in files.paths(folder):
        try:
            records += files.read(path)
            if control := files.read_control(folder, files.cell_of(path)):
                controls[files.cell_of(path)] = control
        except (OSError, RecordError):
            continue
    if not (levels := levels_of(records, controls)):
        return None
    first = records[0]
    card = first.fingerprint.get("card")
    return Run(
        name=max(record.measured_at for record in records)[:10] + (f", card {card}" if card else ""),
        card=str(card) if card else None,
        method_version=first.method_version,
        levels=levels,
        software=tuple(first.versions.get(name) for name in ("torch", "driver")),
        workloads=frozenset(record.workload.name for record in records),
    )


def _beside_control(records: Sequence[Record], controls: Mapping[str, ControlTimes]) -> dict[VariantKey, Levels]:
    """Return the levels of each variant that has burst times of several processes, and those over control.

    They are [workloads, 2, processes].
    """
    found: dict[VariantKey, dict[str, tuple[tuple[float, ...], ...]]] = {}
    for record in records:
        beside = controls[record.cell].samples_ms.get(record.variant) if record.cell in controls else None
        if record.burst and beside and 1 < len(beside) == len(record.burst.samples_ms) and all(beside):
            samples = record.burst.samples_ms
            both = levels(samples), normalized_levels(samples, beside)
            found.setdefault((record.cell, record.variant), {})[record.workload.name] = both
    return by_workload(found)


def _normalized(runs: Sequence[Run]) -> list[Run]:
    """Return runs with the levels of the variants that all have, less what follows from the control kernel's."""
    keys = [key for key in runs[0].levels if all(key in run.levels for run in runs)]
    beside = [following.Beside(*([run.levels[key][:, which] for run in runs] for which in (0, 1))) for key in keys]
    beyond = {key: slope.beyond(one) for key, one, slope in zip(keys, beside, following.slopes(beside), strict=True)}
    return [replace(run, levels={key: beyond[key][place] for key in keys}) for place, run in enumerate(runs)]


def by_workload(found: Mapping[VariantKey, Mapping[str, tuple[Any, ...]]]) -> dict[VariantKey, Levels]:
    """Return the levels of each variant that as many processes measured at all of its workloads, in their order."""
    return {
        key: np.array([levels[name] for name in sorted(levels)])
        for key, levels in found.items()
        if len(set(map(np.shape, levels.values()))) == 1
    }


def _alike(run: Run, other: Run, key: VariantKey) -> bool:
    """Whether two runs have a variant at equally many workloads; in how many processes its intervals decide."""
    return key in run.levels and len(run.levels[key]) == len(other.levels[key])
