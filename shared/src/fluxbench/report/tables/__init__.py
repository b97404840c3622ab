"""Tables, a module each: `blocks(results)` gives what a page shows, `rows(results)`, where there is one, a CSV.

`files(results)`, where there is one, gives further files to publish: their texts by name.

To add one: a module here with `blocks`, and its name in a study or a notebook.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.core.errors import SetupError
from fluxbench.report.blocks import Block
from fluxbench.report.results import Results

Rows = list[Sequence[object]]  # of a CSV, the header first; units end the columns' names, None is empty


@dataclass(frozen=True)
class Tabled:
    """A table by its name: what a page shows of it, the rows of its CSV and its other files where it has some."""

    blocks: Callable[[Results], list[Block]]
    rows: Callable[[Results], Rows] | None
    files: Callable[[Results], Mapping[str, str]] | None


def names() -> list[str]:
    """Return the names of all tables; modules here without `blocks` are what tables share."""
    return [module.name for module in pkgutil.iter_modules(__path__) if _table_of(module.name)]


def find(name: str) -> Tabled:
    """Return a table. Raises `SetupError` with the nearest name where there is none of this name."""
    if table := _table_of(name):
        return table
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the tables are {', '.join(names())}"
    raise SetupError(f"table must be a known name, got {name!r}; {hint}")


def _table_of(name: str) -> Tabled | None:
    path = f"{__name__}.{name}"
    if not name.isidentifier() or importlib.util.find_spec(path) is None:
        return None
    module = importlib.import_module(path)
    if not hasattr(module, "blocks"):
        return None
    return Tabled(module.blocks, getattr(module, "rows", None), getattr(module, "files", None))
