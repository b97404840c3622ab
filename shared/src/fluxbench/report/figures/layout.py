"""What figures are laid out of: axes at a place in points, lines of text, and a part for each group of records."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from fluxbench.analysis.groups import Group, groups, ranking_regime, timing_of
from fluxbench.analysis.ranking import CLASSES, Ranked, ranked
from fluxbench.core.formatting import number
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.svg import ADVANCE, CHARACTER_PT, FONT_PT, SMALL_PT, WIDTH_PT, Strip, render
from fluxbench.report.legend import launch_bound_note, named
from fluxbench.report.results import Results
from fluxbench.report.sentences import title as title_of

_HEADING_PT = FONT_PT + 1.5
_HEADING_LINE_PT = 18.0
_LINE_PT = 1.45 * SMALL_PT


def draw_groups(
    results: Results,
    *,
    name: str,
    title: str,
    header: Sequence[object],
    strips_of: Callable[[Group], list[Strip]],
    rows_of: Callable[[Group], Rows],
    first_rows: Rows | None = None,
) -> Drawing | None:
    """Return a figure with a part for each group of records; None where nothing passed in any.

    `strips_of` returns no strips, and the part then says so, where nothing passed in a group.
    """
    of_results = groups(results.records)
    strips: list[Strip] = []
    rows: Rows = [header, *(first_rows or ())]
    for group in of_results:
        rows += rows_of(group)
        missing = _not_passed(group)
        if of_group := strips_of(group):
            strips += [*of_group, prose(missing, gap=12)]
        else:
            strips.append(prose(missing, heading=f"Nothing passed: {title_of(group)}"))
    if not any(record.status is Status.PASSED for record in results.records):
        return None
    return Drawing(render(strips, title, " ".join(map(_summary, of_results)), name=name), rows)


def by_class(group: Group) -> dict[str, list[Ranked]]:
    """Return the ranked variants at the longest workload by precision class, empty classes left out."""
    places = {kind: ranked(group, group.longest, kind) for kind in CLASSES}
    return {kind: entries for kind, entries in places.items() if entries}


def ranked_records(group: Group) -> list[Record]:
    """Return the records that are ranked at the longest workload, exact ones first."""
    return [entry.record for entries in by_class(group).values() for entry in entries]


def place(group: Group) -> str:
    """Return where variants are ranked, for a heading: `flux1-1024px at 512 text tokens, 4,608 in all`."""
    workload = group.longest
    tokens = workload.shape.get("seq_len_k") if workload.x_unit == "text tokens" else None
    in_all = f", {tokens:,} in all" if isinstance(tokens, int) else ""
    return f"{title_of(group)} at {workload.x:,} {workload.x_unit}{in_all}"


def axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Add axes at a place given in points from the figure's top left corner; only the bottom spine is drawn."""
    figure_width, figure_height = figure.get_size_inches() * 72
    box = (left / figure_width, 1 - (top + height) / figure_height, width / figure_width, height / figure_height)
    plot = figure.add_axes(box)
    for side in ("top", "right", "left"):
        plot.spines[side].set_visible(False)
    plot.spines["bottom"].set_alpha(0.6)
    plot.tick_params(length=3, labelsize=SMALL_PT, width=0.6)
    plot.tick_params(axis="y", length=0)
    plot.grid(axis="y", alpha=0.18, linewidth=0.6)
    plot.set_axisbelow(True)
    return plot


def write_at(figure: Any, left: float, top: float, text: str, **style: Any) -> None:
    """Write text with its baseline at a place given in points from the figure's top left corner."""
    figure_width, figure_height = figure.get_size_inches() * 72
    figure.text(left / figure_width, 1 - top / figure_height, text, **{"fontsize": SMALL_PT, **style})


def prose(*paragraphs: str, heading: str = "", gap: float = 8.0) -> Strip:
    """Return a strip of a bold heading and wrapped small text, with a gap in points below it."""
    lines = [line for text in paragraphs for line in _wrapped(text, CHARACTER_PT)]
    headings = _wrapped(heading, ADVANCE * _HEADING_PT)
    above = _HEADING_LINE_PT * len(headings)

    def draw(figure: Any, top: float) -> None:
        for index, line in enumerate(headings):
            baseline = top + index * _HEADING_LINE_PT + 14
            write_at(figure, 0, baseline, line, fontsize=_HEADING_PT, fontweight="bold")
        for index, line in enumerate(lines, start=1):
            write_at(figure, 0, top + above + index * _LINE_PT, line)

    return Strip(above + len(lines) * _LINE_PT + gap, draw)


def _wrapped(text: str, character_pt: float) -> list[str]:
    return textwrap.wrap(text, int(WIDTH_PT / character_pt), break_on_hyphens=False)


def _not_passed(group: Group) -> str:
    """Return which variants did not pass everywhere, and how that ended; empty where all passed."""
    endings: dict[str, set[str]] = {}
    for record in group.records:
        if record.status is not Status.PASSED:
            endings.setdefault(record.variant, set()).add(record.status.value)
    together: dict[str, list[str]] = {}
    for variant, statuses in endings.items():
        together.setdefault(", ".join(sorted(statuses)), []).append(variant)
    parts = [f"{statuses} {', '.join(variants)}" for statuses, variants in together.items()]
    return f"Did not pass at every workload (the tables say why): {'; '.join(parts)}." if parts else ""


def _summary(group: Group) -> str:
    """Return what a figure shows of a group, for a reader who does not see it."""
    records = ranked_records(group)
    if not records:
        return f"{title_of(group)}: nothing passed."
    medians = [
        f"{named(record)} {number(timing_of(record).median_ms)} ms ({timing_of(record).ratio:.2f} of the reference)"
        for record in records
    ]
    shown = f"{place(group)}, fastest first, {ranking_regime(records)}: {', '.join(medians)}."
    return " ".join(filter(None, (shown, launch_bound_note(records), _not_passed(group))))
