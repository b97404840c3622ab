"""Results before and results after: what became of each time, and whether the device moved or what runs on it.

The sentinel is a fixed kernel that was timed beside the variants: where its time moved, the device did. What is told of
a row is its `burst` time, beside which the sentinel was timed. Its sustained time is judged apart: power and clocks can
move that alone. Records without burst times have one time, interleaved with the sentinel's, and that is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from fluxbench.records import fingerprint
from fluxbench.records.schema import Record, Sentinel, Status
from fluxbench.stats.intervals import Samples
from fluxbench.stats.significance import (
    SYSTEMATIC,
    Change,
    Effect,
    effect,
    judge,
    levels,
    levels_beside,
    mean_effect,
    pool,
)

CellKey = tuple[str, str]  # notebook, cell
_Key = tuple[str, str, str, str]  # notebook, cell, variant, workload
SUSTAINED_FLOOR = 0.01  # a change of a sustained time that is called: fresh runs of one kernel differ by 0.7% as a rule
BESIDE_OTHERS = "timed beside other variants"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One side: what it is called in text, its records, and the sentinels that were timed beside them."""

    name: str
    records: tuple[Record, ...]
    sentinels: Mapping[CellKey, Sentinel] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One variant at one workload, with a change or a note that says why there is none."""

    notebook: str
    cell: str
    variant: str
    workload: str
    before: Status | None  # None: it has no record on that side
    before_ms: float | None  # geometric mean of the processes' medians, so that the ratio is that of the two
    after: Status | None
    after_ms: float | None
    change: Change | None
    net: Change | None  # the change over that of the sentinel in the same cell
    sustained: Change | None  # of the sustained time, where `change` is of the burst time
    note: str | None

    @property
    def told(self) -> Change | None:
        """The change that is told of the row: net of the device, where a sentinel says what that did."""
        return self.net or self.change

    @property
    def under_load(self) -> Change | None:
        """The change of the sustained time, where that moved and the burst time did not, net or as it is."""
        load = self.sustained
        if load is None or not load.called or _called(self.told):
            return None
        return None if self.change and self.change.verdict is load.verdict else load


class Happened(StrEnum):
    """What moved. The library is all that is not the device: packages, and what a driver does to some kernels only."""

    DEVICE = "device"
    LIBRARY = "library"
    BOTH = "device and library"
    UNTOLD = "device or library"  # something moved, and no sentinel tells which
    UNDER_LOAD = "sustained load"  # sustained times alone moved: power or clocks
    NOTHING = "nothing"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What became of the times between two sides."""

    before: str
    after: str
    rows: tuple[Row, ...]
    device: Change | None  # of the sentinel, over the cells of the rows that are compared
    sentinel_note: str | None  # why there is none, or none in some cells
    differs: tuple[str, ...]  # in what the fingerprints differ, a phrase each

    @property
    def compared(self) -> tuple[Row, ...]:
        """The rows that have a change."""
        return tuple(row for row in self.rows if row.change)

    @property
    def beyond_the_device(self) -> tuple[Row, ...]:
        """The rows that moved otherwise than the sentinel beside them."""
        return tuple(row for row in self.rows if _called(row.net))

    @property
    def untold(self) -> tuple[Row, ...]:
        """The rows that moved with no sentinel beside them."""
        return tuple(row for row in self.rows if not row.net and _called(row.change))

    @property
    def under_load(self) -> tuple[Row, ...]:
        """The rows that moved under sustained load only."""
        return tuple(row for row in self.rows if row.under_load)

    @property
    def happened(self) -> Happened:
        """What moved."""
        if not self.compared:
            return Happened.NOT_COMPARED
        if _called(self.device):
            return Happened.BOTH if self.beyond_the_device else Happened.DEVICE
        if self.beyond_the_device:
            return Happened.LIBRARY
        if self.untold:
            return Happened.UNTOLD
        return Happened.UNDER_LOAD if self.under_load else Happened.NOTHING


def compare(before: Measured, after: Measured) -> Comparison:
    """Return what became of each time between two sides, in the order of `after`, then what is only in `before`."""
    old, new = ({(r.notebook, r.cell, r.variant, r.workload.name): r for r in side.records} for side in (before, after))
    marks = _fingerprints(before), _fingerprints(after)
    both = [cell for cell in marks[1] if cell in marks[0]]
    refused = {cell: fingerprint.not_comparable(marks[0][cell], marks[1][cell]) for cell in both}
    differing = {
        cell: fingerprint.differences(marks[0][cell], marks[1][cell]) + _mixture(old, new, cell) for cell in both
    }
    notes = {key: _note(old.get(key), new.get(key), refused.get(key[:2])) for key in new | old}
    keys = [key for key, note in notes.items() if note is None]
    cells = list(dict.fromkeys(key[:2] for key in keys))
    sentinels = {cell: _sentinel(before, after, cell) for cell in cells}
    lacking = {cell: [found] for cell, found in sentinels.items() if isinstance(found, str)}
    pairs_of = {cell: found for cell, found in sentinels.items() if not isinstance(found, str)}
    device = mean_effect([_mean_over_all(pairs) for pairs in pairs_of.values()]) if pairs_of else None
    raws = {key: effect(_levels(old[key]), _levels(new[key])) for key in keys}
    nets = {key: one for key in keys if (one := _net(old[key], new[key], pairs_of.get(key[:2], {})))}
    by_burst = [key for key in keys if old[key].burst]
    families = [its for its in (by_burst, [key for key in keys if not old[key].burst]) if its]
    judged = [
        _judged(
            {key: raws[key] for key in its},
            {key: nets[key] for key in its if key in nets},
            None if index else device,
            by_burst=its is by_burst,
        )
        for index, its in enumerate(families)
    ]
    changes = {key: told for found, _ in judged for key, told in found.items()}
    of_both = [key for key in by_burst if _has_sustained(old[key]) and _has_sustained(new[key])]
    # Not pooled: the workloads of a block share its clocks.
    loads = {key: effect(_sustained(old[key]), _sustained(new[key])) for key in of_both}
    load_of = dict(zip(loads, judge(list(loads.values()), floor=SUSTAINED_FLOOR), strict=True))
    rows = []
    for key, note in notes.items():
        change, net = changes.get(key, (None, None))
        ended = (*_ended(old.get(key)), *_ended(new.get(key)))
        rows.append(Row(*key, *ended, change, net, load_of.get(key), note))
    return Comparison(
        before=before.name,
        after=after.name,
        rows=tuple(rows),
        device=judged[0][1] if judged else None,
        sentinel_note="; ".join(_where(lacking, cells)) or (None if cells else "nothing was compared"),
        differs=tuple(_where(differing, both)),
    )


def _judged(
    raws: Mapping[_Key, Effect], nets: Mapping[_Key, Effect], device: Effect | None, *, by_burst: bool
) -> tuple[dict[_Key, tuple[Change, Change | None]], Change | None]:
    """Return the change of each row and its net one, and what became of the device, judged with what is told of rows.

    Times that are not `by_burst` keep the rules that they were first judged by: no floor, and a spread of its own for
    each row.
    """
    floor = SYSTEMATIC if by_burst else 0.0
    if by_burst:
        raws, nets = _pooled(raws), _pooled(nets)
    told = judge([*(nets.get(key, raw) for key, raw in raws.items()), *([device] if device else [])], floor=floor)
    told_of = dict(zip(raws, told, strict=False))
    raw_of = dict(zip(raws, judge(list(raws.values()), floor=floor), strict=True))
    found: dict[_Key, tuple[Change, Change | None]] = {
        key: (raw_of[key], told_of[key]) if key in nets else (told_of[key], None) for key in raws
    }
    return found, told[-1] if device else None


def _pooled(effects: Mapping[_Key, Effect]) -> dict[_Key, Effect]:
    """Return the effects with the spread that a variant of a cell has at all its workloads together."""
    groups: dict[tuple[str, str, str], list[_Key]] = {}
    for key in effects:
        groups.setdefault(key[:3], []).append(key)
    pooled = pool([[effects[key] for key in keys] for keys in groups.values()])
    of = {
        key: one for keys, its in zip(groups.values(), pooled, strict=True) for key, one in zip(keys, its, strict=True)
    }
    return {key: of[key] for key in effects}


def _mixture(old: Mapping[_Key, Record], new: Mapping[_Key, Record], cell: CellKey) -> list[str]:
    """Say which variants of a cell were timed on one side only, where a time depends on what ran in between.

    Burst times do not: the device rests before each.
    """
    was, now = (
        {key[2:] for key, record in side.items() if key[:2] == cell and record.timing and not record.burst}
        for side in (old, new)
    )
    common = {workload for _, workload in was} & {workload for _, workload in now}
    found = []
    for word, only in (("without", was - now), ("with", now - was)):
        if names := sorted({variant for variant, workload in only if workload in common}):
            found.append(f"{word} {', '.join(names)}")
    return [f"{BESIDE_OTHERS}: {' and '.join(found)}"] if found else []


def _note(old: Record | None, new: Record | None, refusal: str | None) -> str | None:
    """Say why there is no change between two records, or None; `refusal` is that of their cell."""
    if old is not None and new is not None:
        if old == new:
            return "not measured again"
        reason = " ".join((new.reason or "").split()).rstrip(".")
        if old.status is not new.status:
            return f"{old.status} before, now {new.status}" + f": {reason}" * bool(reason)
        if old.timing is None or new.timing is None:
            return f"{new.status} before and now: {reason}"
        if old.workload != new.workload:
            refusal = refusal or "the workload has another shape"
        for was, now in ((old.burst or old.timing, new.burst or new.timing), (old.timing, new.timing)):
            if was.regime != now.regime:
                refusal = refusal or f"the regime was {was.regime} and is {now.regime}"
    elif not refusal:
        return "only after" if old is None else "only before"
    return f"not compared: {refusal}" if refusal else None


def _ended(record: Record | None) -> tuple[Status | None, float | None]:
    if record is None:
        return None, None
    return record.status, math.exp(fmean(_levels(record))) if record.timing else None


def _levels(record: Record) -> list[float]:
    """Return the levels of the time that is told of a record: burst, or the only one that it has."""
    return levels(_by_process(record))


def _by_process(record: Record) -> Samples:
    timing = record.burst or record.timing
    assert timing is not None
    return timing.by_process


def _has_sustained(record: Record) -> bool:
    """Whether there is a sustained time beside the burst one: the certificate's trials take burst samples alone."""
    return record.timing is not None and record.timing.regime == "sustained"


def _sustained(record: Record) -> list[float]:
    assert record.timing is not None
    return levels(record.timing.by_process)


_Pairs = Mapping[str, tuple[Samples, Samples]]  # by variant (older: by workload), before and after


def _sentinel(before: Measured, after: Measured, cell: CellKey) -> _Pairs | str:
    """Return the sentinel's times in a cell, beside what both sides have whole, or why there are none."""
    old, new = before.sentinels.get(cell), after.sentinels.get(cell)
    if old is None or new is None:
        return f"none was timed in {' and '.join(s.name for s in (before, after) if cell not in s.sentinels)}"
    if old.kernel != new.kernel:
        return f"it is not the same kernel: {old.kernel} -> {new.kernel}"
    pairs = {name: (old.samples_ms[name], new.samples_ms[name]) for name in old.samples_ms if name in new.samples_ms}
    processes = [max(map(len, side), default=0) for side in zip(*pairs.values(), strict=True)]
    # A process that died, or in which the sentinel was wrong, takes its variant out: levels are of whole processes.
    whole = {
        name: pair
        for name, pair in pairs.items()
        if [len(side) for side in pair] == processes and all(all(side) for side in pair)
    }
    return whole or "at no workload was it timed in every process of both"


def _mean_over_all(pairs: _Pairs) -> Effect:
    return effect(*(levels(*side) for side in zip(*pairs.values(), strict=True)))


def _net(old: Record, new: Record, pairs: _Pairs) -> Effect | None:
    """Return what became of a time over the sentinel's in the same process; None where there is none for each."""
    sides = []
    fixed_times = pairs.get(old.variant) or pairs.get(old.workload.name)  # the older way: one for all variants there
    if fixed_times is None:
        return None
    for record, fixed in zip((old, new), fixed_times, strict=True):
        own = _by_process(record)
        if len(own) != len(fixed):
            return None
        sides.append(levels_beside(own, fixed))
    return effect(*sides)


def _fingerprints(side: Measured) -> dict[CellKey, fingerprint.Fingerprint]:
    return {(record.notebook, record.cell): record.fingerprint for record in side.records}


def _where(said: Mapping[CellKey, Sequence[str]], cells: Sequence[CellKey]) -> list[str]:
    """Return each phrase once, after the cells that it is said of unless it is said of all."""
    phrases = dict.fromkeys(phrase for its in said.values() for phrase in its)
    of = {phrase: [cell for cell, its in said.items() if phrase in its] for phrase in phrases}
    return [p if len(of[p]) == len(cells) else f"{', '.join(name for _, name in of[p])}: {p}" for p in phrases]


def _called(change: Change | None) -> bool:
    return change is not None and change.called
