"""The sentences of a comparison: what changed, what differs between the sides, and why rows are not compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fluxbench.analysis.comparison.compare import SUSTAINED_LEAST
from fluxbench.analysis.comparison.model import (
    CellKey,
    Comparison,
    Mixture,
    NoControl,
    Note,
    NoteKind,
    OutlyingProcess,
    Row,
)
from fluxbench.core.formatting import first, interval
from fluxbench.stats.significance import Change, Verdict

_NAMED = 8  # variants that a sentence names before it counts the rest


def summary(comparison: Comparison) -> list[str]:
    """Return what changed in a few sentences."""
    rows = comparison.rows
    if comparison.compared:
        sentences = [*_changes(comparison)]
    else:
        sentences = [f"Nothing was compared: {_counted(_clause(row.note) for row in rows if row.note)}."]
    if comparison.status_changed:
        sentences.append(f"Status changed: {'; '.join(_status_changes(comparison))}.")
    sentences += map(_outlying, comparison.outlying[:_NAMED])
    if (more := len(comparison.outlying) - _NAMED) > 0:
        sentences.append(f"{more} more process{'es are' if more > 1 else ' is'} excluded in the same way.")
    if comparison.mixtures and comparison.compared:
        phrases = {cell: [_mixed(mixture)] for cell, mixture in comparison.mixtures.items()}
        mixtures = "; ".join(_by_cells(phrases, comparison))
        sentences.append(f"What runs between the samples affects a time, and it changed: {mixtures}.")
    kinds = Counter(row.judged.verdict if row.judged else "not compared" for row in rows)
    counts = [f"{kinds[kind]} {kind}" for kind in (*Verdict, "not compared") if kinds[kind]]
    if comparison.compared:
        sentences.append(f"Without a change, {_between(comparison)}.")
    return [*sentences, f"{_plural(len(rows), 'row')}: {', '.join(counts) or 'none'}."]


def _status_changes(comparison: Comparison) -> Iterator[str]:
    """Yield what became of which status, with the variants and how many rows."""
    changed: dict[str, list[str]] = {}
    for row in comparison.status_changed:
        if row.note:
            changed.setdefault(f"{row.note.before} before, now {row.note.after}", []).append(label(comparison, row))
    for what, names in changed.items():
        yield f"{what}: {first([*dict.fromkeys(names)], _NAMED)} ({_plural(len(names), 'row')})"


def differences(comparison: Comparison) -> list[str]:
    """Return in what the sides differ, a phrase each, after the cells that it holds for unless it holds for all."""
    phrases = {cell: [str(difference) for difference in differs] for cell, differs in comparison.differs.items()}
    for cell, mixture in comparison.mixtures.items():
        phrases[cell].append(_mixed(mixture))
    return _by_cells(phrases, comparison)


def control_note(comparison: Comparison) -> str:
    """Return why there is no control kernel, or none in some cells; empty where all compared cells have one."""
    phrases = {cell: [_lacking(why)] for cell, why in comparison.no_control.items()}
    return "; ".join(_grouped(phrases, comparison.compared_cells))


def note_text(note: Note) -> str:
    """Return why a row has no change, as a phrase."""
    match note.kind:
        case NoteKind.INCOMPARABLE:
            return f"not compared: {note.incomparable}"
        case NoteKind.STATUS_CHANGED:
            return f"{note.before} before, now {note.after}" + f": {note.reason}" * bool(note.reason)
        case NoteKind.NOT_PASSED:
            return f"{note.after} before and now: {note.reason}"
        case _:
            return note.kind.value


def label(comparison: Comparison, row: Row) -> str:
    """Return a row's variant, with notebook and cell where another cell has the same variant."""
    alone = all(other.variant != row.variant or other.cell_key == row.cell_key for other in comparison.rows)
    return row.variant if alone else f"{row.variant} in {row.notebook}/{row.cell}"


def percent_text(share: float | None) -> str:
    """Return a share in percent: `0.30%`, `12%`, `>999%`; None is `-`."""
    return "-" if share is None else f"{share:.2%}" if share < 0.1 else f"{share:.0%}" if share < 10 else ">999%"


def ratio_text(value: float, places: int = 4) -> str:
    """Return a ratio with a fixed number of decimals: `0.9966`, `>100`."""
    return f"{value:.{places}f}" if value < 100 else ">100"


def _clause(note: Note) -> str:
    return str(note.incomparable) if note.incomparable else note_text(note)


def _changes(comparison: Comparison) -> Iterator[str]:
    device, beyond, without = comparison.device, comparison.beyond_device, comparison.without_control
    if device is None:
        yield f"Without a control kernel, device and library cannot be separated: {control_note(comparison)}."
    else:
        takes = interval(device.ratio, (device.low, device.high))
        did = {Verdict.SAME: "did not change", Verdict.UNDECIDED: "may have changed"}.get(device.verdict, "changed")
        yield f"The device as a whole {did}: the control kernel takes {takes} times as long."
    if beyond:
        how = "and the device did not" if device and device.verdict is Verdict.SAME else "normalized to control"
        yield f"These changed, {how}: {_named(comparison, [(row, row.judged) for row in beyond])}."
    if without:
        named = _named(comparison, [(row, row.judged) for row in without])
        yield f"These changed, and have no control kernel to compare with: {named}."
    if not beyond and not without:
        what = "the device" if device and device.significant else "noise"
        nothing = "In burst no time" if comparison.sustained_only else "No time"
        yield f"{nothing} changed beyond {what}: {_detectable(comparison.compared)}."
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        rows = [(r, r.sustained) for r in comparison.sustained_only if r.sustained and r.sustained.verdict is verdict]
        if rows:
            yield f"These are {verdict} under sustained load only (power or clocks): {_named(comparison, rows)}."
    if beside := sum(any(map(_is_beside_one, (row.judged, row.sustained))) for row in comparison.compared):
        yield (
            f"In {_plural(beside, 'row')} an interval excludes 1 and the verdict is undecided: verdicts are corrected "
            "for the number of rows, intervals are not, and a sustained change of up to "
            f"{SUSTAINED_LEAST:.1%} is never called."
        )


def _is_beside_one(change: Change | None) -> bool:
    """Whether a change is undecided though its own interval excludes 1."""
    return change is not None and change.verdict is Verdict.UNDECIDED and not change.low <= 1 <= change.high


def _outlying(one: OutlyingProcess) -> str:
    share, side = math.exp(one.log_ratio) - 1, "after" if one.after else "before"
    how = "slower" if share > 0 else "faster"
    load = " under sustained load" if one.sustained else ""
    again = "measure it again" if one.after else "of this variant only a larger change can be found"
    excluded = f"so its time is excluded: {again}"
    if one.as_is:
        excluded = "and so is the device in it: it is left out of before and after, not of the normalized times"
    return (
        f"Process {one.process} of {one.variant}, {side}, is {abs(share):.1%} {how}{load} than the others of its side, "
        f"{excluded}."
    )


def _between(comparison: Comparison) -> str:
    """Return how far unchanged runs may differ, of the compared cells; empty of none."""
    cells = comparison.compared_cells
    burst, sustained = (
        [f"{one.variant:.2%} ({one.source})" for one in dict.fromkeys(of[cell] for cell in cells if cell in of)]
        for of in (comparison.between, comparison.between_sustained)
    )
    if not burst:
        return ""
    under_load = f"; under sustained load by {' or '.join(sustained)}" if sustained else ""
    return f"runs may differ by a standard deviation of {' or '.join(burst)} beyond their processes{under_load}"


def _named(comparison: Comparison, changed: Iterable[tuple[Row, Change | None]]) -> str:
    """Return each variant with the range of its ratios and at how many workloads, the largest change first."""
    ratios: dict[str, list[float]] = {}
    for row, change in changed:
        if change:
            ratios.setdefault(label(comparison, row), []).append(change.ratio)
    furthest = sorted(ratios, key=lambda name: -max(abs(math.log(one)) for one in ratios[name]))
    rows_of = Counter(label(comparison, row) for row in comparison.compared)
    named = []
    for name in furthest:
        ends = dict.fromkeys(ratio_text(end) for end in (min(ratios[name]), max(ratios[name])))
        named.append(f"{name} {' to '.join(ends)} ({len(ratios[name])} of {_plural(rows_of[name], 'workload')})")
    return first(named, _NAMED)


def _detectable(rows: Sequence[Row]) -> str:
    """Return the minimum detectable change of half of the rows, and of 90% of them."""
    half, most = _detectable_in([row.judged for row in rows])
    if math.isinf(most):
        return "in some rows, no change could be detected"
    clause = (
        f"the minimum detectable change is at most {percent_text(half)} in half of the rows and at most "
        f"{percent_text(most)} in 90% of them"
    )
    sustained = _detectable_in([row.sustained for row in rows if row.sustained])
    if sustained and not math.isinf(sustained[1]):
        clause += f"; under sustained load {percent_text(sustained[0])} and {percent_text(sustained[1])}"
    return clause


def _detectable_in(changes: Sequence[Change | None]) -> list[float]:
    sizes = sorted(
        math.inf if not one or one.minimum_detectable_change is None else one.minimum_detectable_change
        for one in changes
    )
    return [sizes[math.ceil(share * len(sizes)) - 1] for share in (0.5, 0.9)] if sizes else []


def _lacking(why: NoControl) -> str:
    if why.missing:
        return f"none was timed in {' and '.join(why.missing)}"
    if why.kernels:
        return f"it is not the same kernel: {why.kernels[0]} -> {why.kernels[1]}"
    return "no variant has its times in every process of both sides"


def _mixed(mixture: Mixture) -> str:
    parts = (("without", mixture.removed), ("with", mixture.added))
    names = " and ".join(f"{word} {', '.join(variants)}" for word, variants in parts if variants)
    return f"timed beside other variants: {names}"


def _by_cells(phrases: Mapping[CellKey, Sequence[str]], comparison: Comparison) -> list[str]:
    return _grouped(phrases, tuple(comparison.differs))


def _grouped(phrases: Mapping[CellKey, Sequence[str]], cells: Sequence[CellKey]) -> list[str]:
    """Return each phrase once, after the cells that it holds for unless it holds for all of `cells`."""
    where: dict[str, list[str]] = {}
    for cell, of_cell in phrases.items():
        for phrase in dict.fromkeys(of_cell):
            where.setdefault(phrase, []).append(cell[1])
    return [phrase if len(names) == len(cells) else f"{', '.join(names)}: {phrase}" for phrase, names in where.items()]


def _counted(phrases: Iterable[str]) -> str:
    counts = Counter(phrases)
    return "; ".join(f"{phrase} ({_plural(n, 'row')})" for phrase, n in counts.items()) or "there are no records"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
