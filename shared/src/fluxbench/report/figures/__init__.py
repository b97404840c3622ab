"""Figures, a module each: `draw(results)` gives its SVG, its words and the numbers that it shows.

To add one: a module here with `draw`, and its name in a study or a notebook.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxbench.report import by_name
from fluxbench.report.blocks import Block
from fluxbench.report.results import Results

Rows = list[Sequence[object]]  # of a CSV, the header first


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure: its SVG for a wide screen and for a phone, the numbers that it plots, and the words below it."""

    svg: str
    narrow: str
    rows: Rows
    caption: str  # what to see, in one line
    details: Sequence[Block]  # how to read it, what is left out, what it rests on


Draw = Callable[[Results], Drawing | None]  # None: there is nothing to draw


def names() -> list[str]:
    """Return the names of all figures."""
    return by_name.names(sys.modules[__name__], "draw")


def find(name: str) -> Draw:
    """Return what draws a figure. Raises `SetupError` with the nearest name where there is none of this name."""
    draw: Draw = by_name.find(sys.modules[__name__], name, "draw", "figure").draw
    return draw
