"""What figures are laid out of: axes at a place in points, lines of text, and a part for each group of records."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.lines import Line2D

from fluxbench.analysis.groups import Group, groups, ranking_regime, timing_of
from fluxbench.analysis.ranking import CLASSES, Ranked, ranked
from fluxbench.core.formatting import number
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Fold, Paragraph
from fluxbench.report.figures import Drawing, Rows
from fluxbench.report.figures.style import look_of
from fluxbench.report.figures.svg import ADVANCE, NARROW, WIDE, Layout, Strip, render
from fluxbench.report.legend import named
from fluxbench.report.picture import Svg
from fluxbench.report.results import Results
from fluxbench.report.sentences import title as title_of

_HEADING_PT = 2.0  # by which a heading is larger than text
_LINE = 1.45  # height of a line of text, as a multiple of its size
_HEADING_LINE = 1.6


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a figure shows of one group of records."""

    heading: str  # of which workloads
    strips: Callable[[Layout], Sequence[Strip]]
    finding: str = ""  # a clause with a number, for the caption of a figure of one group
    notes: Sequence[str]  # how to read it, a paragraph each
    more: Sequence[Strip] = ()  # in the narrow layout, in the fold


def draw_groups(
    results: Results,
    *,
    name: str,
    title: str,
    header: Sequence[object],
    caption: str,
    part_of: Callable[[Group], Part | None],
    rows_of: Callable[[Group], Rows],
    first_rows: Sequence[Sequence[object]] = (),
    more: str = "",
) -> Drawing | None:
    """Return a figure with a part for each group of records; None where nothing passed in any.

    `part_of` returns None, and the figure then says so, where nothing passed in a group. `more` is the title of the
    fold that holds what parts have in `more`.
    """
    if not any(record.status is Status.PASSED for record in results.records):
        return None
    of_results = groups(results.records)
    parts = {group.longest.name + group.name: part_of(group) for group in of_results}
    known = [part for part in parts.values() if part]
    words = " ".join(map(_summary, of_results))

    def svg(layout: Layout) -> str:
        strips: list[Strip] = []
        for group, part in zip(of_results, parts.values(), strict=True):
            strips.append(heading(layout, part.heading if part else f"Nothing passed: {title_of(group)}"))
            strips += part.strips(layout) if part else ()
        return svg_of(layout, strips, title, words, name=name)

    details: list[Block] = [Paragraph(note) for note in dict.fromkeys(note for part in known for note in part.notes)]
    if any(part.more for part in known):
        strips = [strip for part in known if part.more for strip in (heading(NARROW, part.heading), *part.more)]
        details.append(Fold(more, [Svg(svg_of(NARROW, strips, f"{title}: {more}", words, name=f"{name}-more"))]))
    return Drawing(
        svg=svg(WIDE),
        narrow=svg(NARROW),
        rows=[header, *first_rows, *(row for group in of_results for row in rows_of(group))],
        caption=" ".join([caption, *(part.finding for part in known if len(of_results) == 1)]).strip(),
        details=details,
    )


def svg_of(layout: Layout, strips: Sequence[Strip], title: str, description: str, *, name: str) -> str:
    """Return strips as an SVG in a layout."""
    return render(strips, title, description, name=name, width_pt=layout.width_pt, text_pt=layout.text_pt)


def by_class(group: Group) -> dict[str, list[Ranked]]:
    """Return the variants with a rank at the longest workload by precision class, empty classes left out."""
    places = {kind: [one for one in ranked(group, group.longest, kind) if not one.uncertain] for kind in CLASSES}
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
    plot.tick_params(length=3, width=0.6)
    plot.tick_params(axis="y", length=0)
    plot.grid(axis="y", alpha=0.18, linewidth=0.6)
    plot.set_axisbelow(True)
    return plot


def write_at(figure: Any, left: float, top: float, text: str, **style: Any) -> None:
    """Write text with its baseline at a place given in points from the figure's top left corner."""
    figure_width, figure_height = figure.get_size_inches() * 72
    figure.text(left / figure_width, 1 - top / figure_height, text, **style)


def mark_at(figure: Any, left: float, top: float, record: Record) -> None:
    """Draw a record's mark in a key, its centre at a place given in points from the figure's top left corner."""
    figure_width, figure_height = figure.get_size_inches() * 72
    style = look_of(record)
    options = {"marker": style.marker, "transform": figure.transFigure, **style.mark_options(6)}
    figure.add_artist(Line2D([left / figure_width], [1 - top / figure_height], **options))


def heading(layout: Layout, words: str) -> Strip:
    """Return a strip of a bold heading."""
    size = layout.text_pt + _HEADING_PT
    return _text(layout, [words], size, _HEADING_LINE * size, 4, fontweight="bold")


def prose(layout: Layout, *paragraphs: str, gap: float = 8.0) -> Strip:
    """Return a strip of wrapped text, with a gap in points below it."""
    return _text(layout, paragraphs, layout.text_pt, _LINE * layout.text_pt, gap)


def _text(layout: Layout, paragraphs: Sequence[str], size_pt: float, line_pt: float, gap: float, **style: Any) -> Strip:
    characters = int(layout.width_pt / (ADVANCE * size_pt))
    lines = [line for text in paragraphs for line in textwrap.wrap(text, characters, break_on_hyphens=False)]

    def draw(figure: Any, top: float) -> None:
        for index, line in enumerate(lines, start=1):
            write_at(figure, 0, top + index * line_pt - 0.3 * size_pt, line, fontsize=size_pt, **style)

    return Strip(len(lines) * line_pt + gap, draw)


def fitted(text: str, room_pt: float, character_pt: float) -> str:
    """Return a text, its end left out where the room does not hold it."""
    characters = max(int(room_pt / character_pt), 1)
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _summary(group: Group) -> str:
    """Return what a figure shows of a group, for a reader who does not see it."""
    records = ranked_records(group)
    if not records:
        return f"{title_of(group)}: nothing passed."
    medians = [
        f"{named(record)} {number(timing_of(record).median_ms)} ms ({timing_of(record).ratio:.2f} of the reference)"
        for record in records
    ]
    return f"{place(group)}, by rank in each precision class, {ranking_regime(records)}: {', '.join(medians)}."
