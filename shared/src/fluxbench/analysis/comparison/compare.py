"""Compares two sides: burst times normalized to the control kernel, and sustained times by themselves.

The verdict of a row is that of its burst time, beside which the control kernel was timed. Its sustained time is judged
apart, since power and clocks can change that alone. Records without burst times (method versions 1 and 2) have one
time, interleaved with the control kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

from fluxbench.analysis.comparison.control import Pairs, control_pairs, device_effect, first_timing, normalized_effect
from fluxbench.analysis.comparison.levels import levels
from fluxbench.analysis.comparison.model import CellKey, Comparison, Measured, Mixture, NoControl, Row, RowKey
from fluxbench.analysis.comparison.notes import note_of
from fluxbench.records import fingerprint
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.stats.pooling import pool
from fluxbench.stats.significance import SYSTEMATIC, Change, Effect, effect, judge

_SUSTAINED_LEAST = 0.01  # smaller sustained changes are not significant: fresh runs of one kernel differ by 0.7%

_Records = Mapping[RowKey, Record]


def compare(before: Measured, after: Measured) -> Comparison:
    """Return how each time changed between two sides."""
    old, new = _by_key(before), _by_key(after)
    old_cells, new_cells = _by_cell(before), _by_cell(after)
    both = [cell for cell in new_cells if cell in old_cells]
    refused = {cell: fingerprint.not_comparable(_taken(old_cells[cell]), _taken(new_cells[cell])) for cell in both}
    notes = {key: note_of(old.get(key), new.get(key), refused.get(key[:2])) for key in new | old}
    compared = {key: (old[key], new[key]) for key, note in notes.items() if note is None}
    controls = {cell: control_pairs(before, after, cell) for cell in dict.fromkeys(key[:2] for key in compared)}
    pairs = {cell: control for cell, control in controls.items() if not isinstance(control, NoControl)}
    changes, device = _changes(compared, pairs)
    sustained = _sustained(compared)
    rows = [
        Row(
            notebook=key[0],
            cell=key[1],
            variant=key[2],
            workload=key[3],
            before=_status(old.get(key)),
            before_ms=_middle_ms(old.get(key)),
            after=_status(new.get(key)),
            after_ms=_middle_ms(new.get(key)),
            change=changes[key][0] if key in changes else None,
            normalized=changes[key][1] if key in changes else None,
            sustained=sustained.get(key),
            note=note,
        )
        for key, note in notes.items()
    ]
    mixtures = {cell: _mixture(old, new, cell) for cell in both}
    return Comparison(
        before=before.name,
        after=after.name,
        rows=tuple(rows),
        device=device,
        no_control={cell: control for cell, control in controls.items() if isinstance(control, NoControl)},
        differs={
            cell: tuple(fingerprint.differences(old_cells[cell].fingerprint, new_cells[cell].fingerprint))
            for cell in both
        },
        mixtures={cell: mixture for cell, mixture in mixtures.items() if mixture},
    )


def _changes(
    compared: Mapping[RowKey, tuple[Record, Record]], controls: Mapping[CellKey, Pairs]
) -> tuple[dict[RowKey, tuple[Change, Change | None]], Change | None]:
    """Return the change of each row and its normalized one, and that of the device, judged with the first family.

    Times that are not burst keep the rules by which they were first judged: no least change, and a spread of its own
    for each row.
    """
    device = device_effect(controls.values())
    raw = {key: effect(*(levels(first_timing(record).samples_ms) for record in pair)) for key, pair in compared.items()}
    normalized = {
        key: one for key, pair in compared.items() if (one := normalized_effect(*pair, controls.get(key[:2], {})))
    }
    changes: dict[RowKey, tuple[Change, Change | None]] = {}
    device_change = None
    for burst in (True, False):
        family = {key: raw[key] for key, (old, _) in compared.items() if bool(old.burst) is burst}
        if not family:
            continue
        beside = {key: normalized[key] for key in family if key in normalized}
        least = SYSTEMATIC if burst else 0.0
        if burst:
            family, beside = _pooled(family), _pooled(beside)
        effects = [beside.get(key, one) for key, one in family.items()]
        of_device = [device] if device and not changes else []
        judged = judge([*effects, *of_device], least=least)
        by_itself = judge(list(family.values()), least=least)
        for key, change, alone in zip(family, judged, by_itself, strict=False):
            changes[key] = (alone, change) if key in beside else (change, None)
        device_change = judged[-1] if of_device else device_change
    return changes, device_change


def _pooled(effects: Mapping[RowKey, Effect]) -> dict[RowKey, Effect]:
    """Return the effects with the spread that a variant of a cell has at all its workloads together."""
    groups: dict[tuple[str, str, str], list[RowKey]] = {}
    for key in effects:
        groups.setdefault(key[:3], []).append(key)
    pooled = pool([[effects[key] for key in keys] for keys in groups.values()])
    by_key = {
        key: one
        for keys, group in zip(groups.values(), pooled, strict=True)
        for key, one in zip(keys, group, strict=True)
    }
    return {key: by_key[key] for key in effects}


def _sustained(compared: Mapping[RowKey, tuple[Record, Record]]) -> dict[RowKey, Change]:
    """Return the changes of sustained times. They are not pooled: the workloads of a block share its clocks."""
    effects = {
        key: effect(levels(old.sustained.samples_ms), levels(new.sustained.samples_ms))
        for key, (old, new) in compared.items()
        if old.burst and old.sustained and new.sustained
    }
    return dict(zip(effects, judge(list(effects.values()), least=_SUSTAINED_LEAST), strict=True))


def _mixture(old: _Records, new: _Records, cell: CellKey) -> Mixture | None:
    """Return which variants of a cell were timed on one side only; None where burst times rest before each call."""
    was, now = (
        {key[2:] for key, record in side.items() if key[:2] == cell and record.timings and not record.burst}
        for side in (old, new)
    )
    common = {workload for _, workload in was} & {workload for _, workload in now}
    removed, added = (
        tuple(sorted({variant for variant, workload in only if workload in common})) for only in (was - now, now - was)
    )
    return Mixture(removed, added) if removed or added else None


def _by_key(side: Measured) -> dict[RowKey, Record]:
    return {(record.notebook, record.cell, record.variant, record.workload.name): record for record in side.records}


def _by_cell(side: Measured) -> dict[CellKey, Record]:
    """Return a record of each cell: fingerprint and method version are those of all its records."""
    return {(record.notebook, record.cell): record for record in side.records}


def _taken(record: Record) -> tuple[fingerprint.Fingerprint, int]:
    return record.fingerprint, record.method_version


def _status(record: Record | None) -> Status | None:
    return record.status if record else None


def _middle_ms(record: Record | None) -> float | None:
    if record is None or not record.timings:
        return None
    return math.exp(fmean(levels(first_timing(record).samples_ms)))
