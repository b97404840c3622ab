"""All rows of a page -> the change of each, judged together, and the processes that are outlying."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fluxbench.analysis.comparison.model import CellKey, OutlyingProcess, RowKey
from fluxbench.device.targets import BetweenRuns
from fluxbench.stats.pooling import effects
from fluxbench.stats.significance import Change, Effect, VariantEffects, judge

Sides = tuple[tuple[float, ...], tuple[float, ...]]  # the levels of a row before and after, one a process


def changes(
    rows: Mapping[RowKey, Sides],
    between: Mapping[CellKey, BetweenRuns],
    device: Effect | None = None,
    *,
    least: float = 0.0,
    apart: bool = False,
    unknown: Mapping[tuple[str, str, str], float] | None = None,
) -> tuple[dict[RowKey, Change], Change | None, tuple[OutlyingProcess, ...]]:
    """Return the change of each row, that of the device, which is one more variant of the page, and what is outlying.

    Rows of a variant in a cell belong together where they have equally many processes. No change is significant up to
    `least`, a share. `apart` is as in `pooling.effects`. `unknown` is a standard error that a variant's change has
    beyond that of its processes and runs.
    """
    groups = by_variant(rows)
    found, outliers = effects(
        [tuple(np.array([rows[key][side] for key in keys]) for side in (0, 1)) for keys in groups.values()],  # type: ignore[misc]
        [_with(between[which[:2]], (unknown or {}).get(which[:3], 0.0)) for which in groups],
        apart=apart,
    )
    of_device = [VariantEffects(mean=device, departures=(), rows=(device,))] if device else []
    judged = judge([*found, *of_device], least=least)
    by_key = {
        key: change
        for keys, of_variant in zip(groups.values(), judged, strict=False)
        for key, change in zip(keys, of_variant, strict=True)
    }
    names, keys_of = list(groups), list(groups.values())
    outlying = tuple(
        OutlyingProcess(
            notebook=names[one.variant][0],
            cell=names[one.variant][1],
            variant=names[one.variant][2],
            after=bool(one.side),
            process=one.process + 1,
            log_ratio=one.log_ratio,
            rows=tuple(keys_of[one.variant]),
        )
        for one in outliers
    )
    return {key: by_key[key] for key in rows}, judged[-1][0] if device else None, outlying


def by_variant(rows: Mapping[RowKey, Sides]) -> dict[tuple[str, str, str, int, int], list[RowKey]]:
    """Return the rows of each variant in a cell that have equally many processes."""
    groups: dict[tuple[str, str, str, int, int], list[RowKey]] = {}
    for key, (before, after) in rows.items():
        groups.setdefault((*key[:3], len(before), len(after)), []).append(key)
    return groups


def _with(runs: BetweenRuns, error: float) -> BetweenRuns:
    """Return how far runs differ where a change from one to the other has this standard error too."""
    return replace(runs, variant=math.sqrt(runs.variant**2 + error**2 / 2)) if error else runs
