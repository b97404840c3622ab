"""Tables, a module each: `blocks(results)` gives what a page shows, `rows(results)`, where there is one, a CSV.

`files(results)`, where there is one, gives further files to publish: their texts by name.

To add one: a module here with `blocks`, and its name in a study or a notebook.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.core.formatting import is_unknown
from fluxbench.records.schema import Timing
from fluxbench.report import by_name
from fluxbench.report.blocks import Block
from fluxbench.report.results import Results
from fluxbench.stats.intervals import Estimate

Rows = list[Sequence[object]]  # of a CSV, the header first; units end the columns' names, None is empty


@dataclass(frozen=True)
class Tabled:
    """A table by its name: what a page shows of it, the rows of its CSV and its other files where it has some."""

    blocks: Callable[[Results], list[Block]]
    rows: Callable[[Results], Rows] | None
    files: Callable[[Results], Mapping[str, str]] | None


def names() -> list[str]:
    """Return the names of all tables."""
    return by_name.names(sys.modules[__name__], "blocks")


def find(name: str) -> Tabled:
    """Return a table. Raises `SetupError` with the nearest name where there is none of this name."""
    module = by_name.find(sys.modules[__name__], name, "blocks", "table")
    return Tabled(module.blocks, getattr(module, "rows", None), getattr(module, "files", None))


def ends(name: str) -> tuple[str, str, str]:
    """Return the columns of the three cells of an estimate or a time."""
    return name, f"{name}_low", f"{name}_high"


def estimate_cells(estimate: Estimate | None) -> tuple[float | None, ...]:
    """Return an estimate's three cells of a CSV: its value and the ends of its interval, which may be unknown."""
    return _cells(estimate.value, (estimate.low, estimate.high)) if estimate else (None,) * 3


def time_cells(timing: Timing | None) -> tuple[float | None, ...]:
    """Return a time's three cells of a CSV, in ms: its median or mean and the ends of its interval."""
    return _cells(timing.median_ms, timing.ci95_ms) if timing else (None,) * 3


def _cells(value: float, ends: tuple[float, float]) -> tuple[float | None, ...]:
    return (value, None, None) if is_unknown(value, ends) else (value, *ends)
