"""A comparison as text and JSON: what moved in a few sentences, and every row as a table for a terminal."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fluxbench.analysis.comparison import BESIDE_OTHERS, Comparison, Row
from fluxbench.core.formatting import interval, number
from fluxbench.stats.significance import Change, Verdict

_WIDTH = 110  # characters of a line of prose
_NET = "net of the device, 95%"
_NAMED = 8  # variants that a sentence names before it counts the rest


def summary(comparison: Comparison) -> str:
    """Return what moved in a few sentences, one a line."""
    rows = comparison.rows
    said = (
        [*_moves(comparison)] if comparison.compared else [f"Nothing was compared: {_counted(r.note for r in rows)}."]
    )
    turned = [row for row in rows if row.before and row.after and row.before is not row.after]
    if turned:
        said.append(f"Not as before: {_counted(f'{_who(comparison, row)} {row.note}' for row in turned)}.")
    others = [phrase for phrase in comparison.differs if BESIDE_OTHERS in phrase]
    if others and comparison.compared:
        said.append(f"A time depends on what runs in between, and that changed: {'; '.join(others)}.")
    found = Counter(row.told.verdict if row.told else "not compared" for row in rows)
    counts = [f"{found[kind]} {kind}" for kind in (*Verdict, "not compared") if found[kind]]
    return "\n".join([*said, f"{_plural(len(rows), 'row')}: {', '.join(counts) or 'none'}."])


def table(comparison: Comparison) -> str:
    """Return every row as text, at most 125 characters wide: the sentinel first, what is not compared below."""
    net, load = (any(getattr(row, part) for row in comparison.compared) for part in ("net", "sustained"))
    header = ["workload", "before", "after", *(("time", _NET) if net else ("after / before, 95%",))]
    header += ["verdict", "sees", *(("sustained, 95%", "verdict") if load else ())]
    grid: dict[str, list[Sequence[str]]] = {}  # by what stands above them
    if comparison.device:
        blank = [""] * (3 if net else 2)
        grid["sentinel: the device"] = [("  all workloads", *blank, *_shown(comparison.device), *[""] * (2 * load))]
    notes: dict[str, dict[str, list[str]]] = {}
    for row in comparison.rows:
        who = _who(comparison, row)
        if row.change:
            cells = [_ms(ms) for ms in (row.before_ms, row.after_ms) if ms]
            cells += [_ratio(row.change.ratio)] * net + _shown(row.told or row.change)
            if load:
                cells += [_with_ends(row.sustained, 3), row.sustained.verdict] if row.sustained else ["", ""]
            grid.setdefault(who, []).append((f"  {row.workload}", *cells))
        else:
            notes.setdefault(row.note or "", {}).setdefault(who, []).append(row.workload)
    all_of = Counter(_who(comparison, row) for row in comparison.rows)
    below = [f"No sentinel: {comparison.sentinel_note}."] if comparison.sentinel_note and comparison.compared else []
    for note, its in notes.items():
        some = {who: f" at {', '.join(at) if len(at) < 3 else len(at)} of {all_of[who]}" for who, at in its.items()}
        below.append(f"{note}: {', '.join(who + some[who] * (len(at) < all_of[who]) for who, at in its.items())}.")
    body = ["", *_grid(header, grid), ""] if comparison.compared else [""]
    above = [f"before: {comparison.before}; after: {comparison.after}"]
    above += [f"between them: {'; '.join(comparison.differs)}"] if comparison.differs else []
    above += [_legend(net=net, load=load)] if comparison.compared else []
    return "\n".join([*_wrapped(above), *body, *_wrapped(below)]).rstrip()


def to_json(comparison: Comparison) -> str:
    """Return everything as one JSON object; a number that is not finite is null."""
    said = summary(comparison).splitlines()
    data = {**dataclasses.asdict(comparison), "happened": comparison.happened, "summary": said}
    return json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None), indent=1)


def _legend(*, net: bool, load: bool) -> str:
    said = ["before, after: ms, mean of the processes' medians" + ", of single calls from rest" * load]
    if net:
        said += ["time: after / before", "net: the same over the sentinel's"]
    said.append("sees: the smallest change that would be called")
    if load:
        said.append("sustained: after / before of calls back to back, device included")
    return "; ".join(said)


def _moves(comparison: Comparison) -> Iterator[str]:
    device, beyond, under_load = comparison.device, comparison.beyond_the_device, comparison.under_load
    if device is None:
        yield f"The device and the library cannot be told apart: {comparison.sentinel_note}."
    else:
        takes = interval(device.ratio, (device.low, device.high))
        did = {Verdict.SAME: "did not move", Verdict.UNDECIDED: "may have moved or not"}.get(device.verdict, "moved")
        yield f"The device as a whole {did}: the sentinel takes {takes} times as long."
    if beyond:
        also = "and the device did not" if device and device.verdict is Verdict.SAME else "net of the device"
        yield f"These moved, {also}: {_named(comparison, [(row, row.told) for row in beyond])}."
    if comparison.untold:
        named = _named(comparison, [(row, row.told) for row in comparison.untold])
        yield f"These moved, with no sentinel beside them: {named}."
    if not beyond and not comparison.untold:
        what = "the device" if device and device.called else "noise"
        rested = "In calls from rest nothing" if under_load else "Nothing"
        yield f"{rested} moved beyond {what}: {_seen(comparison.compared)}."
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        if its := [(row, row.under_load) for row in under_load if row.under_load and row.under_load.verdict is verdict]:
            yield f"These are {verdict} under sustained load only (power or clocks): {_named(comparison, its)}."


def _named(comparison: Comparison, moved: Iterable[tuple[Row, Change | None]]) -> str:
    """Return each variant with the range of its ratios and at how many workloads, what moved furthest first."""
    ratios: dict[str, list[float]] = {}
    for row, change in moved:
        if change:
            ratios.setdefault(_who(comparison, row), []).append(change.ratio)
    furthest = sorted(ratios, key=lambda who: -max(abs(math.log(ratio)) for ratio in ratios[who]))
    all_of = Counter(_who(comparison, row) for row in comparison.compared)
    named = []
    for who in furthest[:_NAMED]:
        ends = dict.fromkeys(_ratio(end) for end in (min(ratios[who]), max(ratios[who])))
        named.append(f"{who} {' to '.join(ends)} ({len(ratios[who])} of {_plural(all_of[who], 'workload')})")
    return ", ".join(named) + (f" and {len(furthest) - _NAMED} more" if len(furthest) > _NAMED else "")


def _who(comparison: Comparison, row: Row) -> str:
    """Return a row's variant, with notebook and cell where another cell has the same variant."""
    alone = all(r.variant != row.variant or (r.notebook, r.cell) == (row.notebook, row.cell) for r in comparison.rows)
    return row.variant if alone else f"{row.variant} in {row.notebook}/{row.cell}"


def _seen(rows: Sequence[Row]) -> str:
    """Say how large a change would have been called in half of the rows, and in nine of ten."""
    half, most = _resolutions([row.told for row in rows])
    if math.isinf(most):
        return "in some rows, no change could have been seen"
    said = f"a change of {_percent(half)} would have been seen in half of the rows, {_percent(most)} in nine of ten"
    loads = _resolutions([row.sustained for row in rows if row.sustained])
    if loads and not math.isinf(loads[1]):
        said += f"; under sustained load {_percent(loads[0])} and {_percent(loads[1])}"
    return said


def _resolutions(changes: Sequence[Change | None]) -> list[float]:
    """Return the sizes that would have been called in half of the rows and in nine of ten; none of no rows."""
    sizes = sorted(math.inf if not one or one.resolution is None else one.resolution for one in changes)
    return [sizes[math.ceil(share * len(sizes)) - 1] for share in (0.5, 0.9)] if sizes else []


def _wrapped(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent="      ", break_on_hyphens=False)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _counted(notes: Iterable[str | None]) -> str:
    found = Counter(note.removeprefix("not compared: ") for note in notes if note)
    return "; ".join(f"{note} ({_plural(count, 'row')})" for note, count in found.items()) or "there are no records"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}" if share < 0.1 else f"{share:.0%}" if share < 10 else ">999%"


def _ms(time: float) -> str:
    return number(time, 4) if time >= 0.1 else f"{time:.4f}"


def _ratio(value: float, places: int = 4) -> str:
    return f"{value:.{places}f}" if value < 100 else ">100"


def _with_ends(change: Change, places: int = 4) -> str:
    ratio, low, high = (_ratio(value, places) for value in (change.ratio, change.low, change.high))
    return f"{ratio} [{low}, {high}]"


def _shown(change: Change) -> list[str]:
    return [_with_ends(change), change.verdict.value, _percent(change.resolution)]


def _grid(header: Sequence[str], rows: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[str]:
    """Yield aligned columns below a header and a rule; what stands above some rows reaches across all columns."""
    widths = [max(map(len, column)) for column in zip(header, *(r for its in rows.values() for r in its), strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]).rstrip()

    yield from (line(header), "  ".join("─" * width for width in widths))
    for above, its in rows.items():
        yield from (above, *map(line, its))
