"""How far a build is, and the page that shows it while it grows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from uvnote.parser import CodeCell

from fluxbench.notebook.freshness import Freshness
from fluxbench.notebook.store import Result


@dataclass(frozen=True)
class NotRun:
    """Why a cell that was to run was not started: a sentence."""

    reason: str


class Pending:
    """Stands for a cell of a build that goes on and has not ended yet."""


class StoppedError(Exception):
    """The build ends, or what was being drawn is out of date."""


Failure = Result | NotRun
Interrupted = Callable[[], None]  # raises `StoppedError` where what calls it is to end


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """How far a build is: every cell's freshness, what failed, which are still to come, and about how long it takes."""

    cells: Mapping[str, Freshness]
    failures: Mapping[str, Failure]
    pending: Collection[str]
    left_s: float | None
    has_new_figures: bool  # whether something was measured since the page before


class Page(Protocol):
    """The page that grows."""

    def grow(self, snapshot: Snapshot, at_once: int, check: Interrupted) -> None:
        """Draw it; never raises for a page that cannot be drawn, but what `check` raises."""

    def has_times(self, snapshot: Snapshot) -> bool:
        """Return whether there is something measured that the page shows."""

    def begin(self, code: CodeCell, folder: Path, snapshot: Snapshot, at_once: int, check: Interrupted) -> None:
        """Draw it with the early records of a running cell, which are in a folder; raises as `grow`."""
