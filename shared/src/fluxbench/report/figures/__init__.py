"""Figures, a module each: `draw(results)` gives an SVG for the inside of a page and the numbers that it shows.

To add one: a module here with `draw`, and its name in a study or a notebook.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxbench.core.errors import SetupError
from fluxbench.report.results import Results

Rows = list[Sequence[object]]  # of a CSV, the header first


@dataclass(frozen=True)
class Drawing:
    """An inline SVG, and the numbers that it plots."""

    svg: str
    rows: Rows


Draw = Callable[[Results], Drawing | None]  # None: there is nothing to draw


def names() -> list[str]:
    """Return the names of all figures; modules here without `draw` are what figures share."""
    return [module.name for module in pkgutil.iter_modules(__path__) if _draw_of(module.name)]


def find(name: str) -> Draw:
    """Return what draws a figure. Raises `SetupError` with the nearest name where there is none of this name."""
    if draw := _draw_of(name):
        return draw
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the figures are {', '.join(names())}"
    raise SetupError(f"figure must be a known name, got {name!r}; {hint}")


def _draw_of(name: str) -> Draw | None:
    path = f"{__name__}.{name}"
    if not name.isidentifier() or importlib.util.find_spec(path) is None:
        return None
    return getattr(importlib.import_module(path), "draw", None)
