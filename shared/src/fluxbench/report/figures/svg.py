"""A matplotlib figure -> an SVG that sits inside an HTML page as if it had been written there.

What matplotlib writes is a document of its own: black text, fixed points, and ids and a style rule that would reach
the whole page. Here text and axes take the page's colour, variants the page's series colours (`--s1` ..., drawn for its
theme), the figure its container's width, and every id a prefix that no other figure has. A mark tells its numbers where
the pointer rests on it. The same figure gives the same bytes.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fluxbench.records.schema import write_rows, write_text
from fluxbench.report.figures.style import COLOURS

INK = "#010203"  # what is drawn in this colour becomes the page's text colour
WIDTH_PT = 720.0
FONT_PT = 10.0
SMALL_PT = 9.0
CHARACTER_PT = 0.602 * SMALL_PT  # advance of every character of a small text, in DejaVu Sans Mono

# Fonts of equal advance, so that text keeps the room it was given whichever of them the reader has.
_FONTS = "'Cascadia Mono', 'JetBrains Mono', 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fluxbench",
    "font.family": "DejaVu Sans Mono",
    "font.size": FONT_PT,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "text.parse_math": False,
}

_TOLD = "told:"  # begins the id of what tells something; the id's rest is what
_NUMBERS = re.compile(r' (?:d|x|y|x1|x2|y1|y2|points|transform|width|height|style)="[^"]*"')

# A part of a figure: its height in points, and what draws it below a given distance from the figure's top, in points.
Block = tuple[float, Callable[[Any, float], None]]


def write_figure(
    svg_path: Path, blocks: Sequence[Block], title: str, description: str, rows: Sequence[Sequence[object]]
) -> None:
    """Draw blocks below one another; write the figure, and the plotted `rows` (header first) as CSV beside it.

    Raises `OSError`.
    """
    with matplotlib.rc_context(_SETTINGS):
        height = sum(block_height for block_height, _ in blocks)
        figure = Figure(figsize=(WIDTH_PT / 72, height / 72), dpi=72, facecolor="none")
        FigureCanvasSVG(figure)
        top = 0.0
        for block_height, draw in blocks:
            draw(figure, top)
            top += block_height
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    write_text(svg_path, inline(text.getvalue(), svg_path.stem, title, description))
    write_rows(svg_path.with_suffix(".csv"), rows)


def axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Add axes at a place given in points from the figure's top left corner; only the bottom spine is drawn."""
    figure_width, figure_height = figure.get_size_inches() * 72
    place = (left / figure_width, 1 - (top + height) / figure_height, width / figure_width, height / figure_height)
    added = figure.add_axes(place)
    for side in ("top", "right", "left"):
        added.spines[side].set_visible(False)
    added.spines["bottom"].set_alpha(0.6)
    added.tick_params(length=3, labelsize=SMALL_PT, width=0.6)
    added.tick_params(axis="y", length=0)
    added.grid(axis="y", alpha=0.18, linewidth=0.6)
    added.set_axisbelow(True)
    return added


def write_at(figure: Any, left: float, top: float, text: str, **style: Any) -> None:
    """Write text with its baseline at a place given in points from the figure's top left corner."""
    figure_width, figure_height = figure.get_size_inches() * 72
    figure.text(left / figure_width, 1 - top / figure_height, text, **{"fontsize": SMALL_PT, **style})


def tell(artist: Any, text: str) -> None:
    """Let an artist tell a text where the pointer rests on it."""
    artist.set_gid(_TOLD + text)


def prose(*paragraphs: str, heading: str = "", gap: float = 8.0) -> Block:
    """Return a block of a bold heading and wrapped small text, with a gap below it."""
    lines = [line for text in paragraphs for line in textwrap.wrap(text, int(WIDTH_PT / CHARACTER_PT))]
    line_pt = SMALL_PT * 1.45

    def draw(figure: Any, top: float) -> None:
        if heading:
            write_at(figure, 0, top + 14, heading, fontsize=FONT_PT + 1.5, fontweight="bold")
        for index, line in enumerate(lines, start=1):
            write_at(figure, 0, top + (18 if heading else 0) + index * line_pt, line)

    return (18 if heading else 0) + len(lines) * line_pt + gap, draw


def inline(svg: str, name: str, title: str, description: str) -> str:
    """Return matplotlib's SVG text made fit for the inside of an HTML page. `name` is a part of its ids."""
    prefix = re.sub(r"\W+", "-", name)[:3] + hashlib.sha256((name + title + svg).encode()).hexdigest()[:8]
    view_box = re.search(r'viewBox="([^"]*)"', svg)
    assert view_box is not None
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"\s*<metadata>.*?</metadata>|\s*<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href").replace(INK, "currentColor")
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(rf"<g id=([\"']){_TOLD}(.*?)\1>", r'<g class="mark"><title>\2</title>', body)
    used = {
        each: f"{prefix}-{at}" for at, each in enumerate(dict.fromkeys(re.findall(r'(?:url\(|href=")#([^)"]+)', body)))
    }
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", body)
    body = re.sub(r'(url\(|href=")#([^)"]+)', lambda found: f"{found[1]}#{used[found[2]]}", body)
    body = _NUMBERS.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", re.sub(r"\s*\n", " ", found[0])), body)
    series = ""
    for number, colour in enumerate(COLOURS, start=1):
        if colour in body:
            body = body.replace(colour, f"var(--k{number})")
            series += f"; --k{number}: var(--s{number}, {colour})"
    body = _shortened(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box[1]}" width="100%" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc" '
        f'style="stroke-linejoin: round; stroke-linecap: butt; font-family: {_FONTS}{series}">\n'
        f'<title id="{prefix}-title">{html.escape(title)}</title>\n'
        f'<desc id="{prefix}-desc">{html.escape(description)}</desc>{body}'
    )


def _shortened(body: str) -> str:
    """Return the same drawing in fewer bytes: no groups without a purpose, no style that is inherited anyway."""
    body = re.sub(
        r"(<use [^>]*style=\"(?:fill: [^;\"]*|fill-opacity: 0)?)[^\"]*\"", r'\1"', body
    )  # the mark has its stroke
    body = re.sub(r"\n\s+", "\n", body).replace("\n<g/>", "").replace("\n<defs/>", "")
    body = re.sub(r"<g>\n((?:<use [^>]*>\n)+)</g>\n", r"\1", body)
    body = re.sub(r"<g>\n(<(?:path|text) [^>]*>(?:[^<]*</text>)?\n)</g>\n", r"\1", body)
    return re.sub(r' style="[^"]*"', lambda found: re.sub(r"([:;]) ", r"\1", found[0]), body)
