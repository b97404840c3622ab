"""What a person sees of a build while it runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from fluxbench.core.formatting import first
from fluxbench.core.output import Output, one_line
from fluxbench.core.progress import Progress

_LINE_EVERY_S = 10.0


class Listener(Protocol):
    """Hears how a build goes on."""

    def plan(self, cells: Mapping[str, Sequence[str]]) -> None:
        """Take the cells that will run, in order, with the reasons for each."""

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress, left_s: float | None) -> None:
        """Take how far a cell is, a few times a second, and when all cells are done; several may run at once."""

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Take that a cell ended, or, without a duration, that it was not started: its result stands, or why."""

    def note(self, line: str) -> None:
        """Take what a person should know. Other threads may call it."""


class Display(Listener, Protocol):
    """A listener that may hold the terminal while it listens."""

    def __enter__(self) -> Self:
        """Take the terminal, where it needs it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give it back."""


def on(stream: TextIO | None = None) -> Display:
    """Return the listener that fits a stream, stderr where none is given."""
    stream = stream or sys.stderr
    if not stream.isatty():
        return Lines(stream)
    return Bar(stream.drawn() if isinstance(stream, Output) else stream)


class Lines:
    """A line when a cell begins and when it ends, and every ten seconds what it is doing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._cells: list[str] = []
        self._printed: dict[str, float] = {}  # after how many seconds of which cell

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""

    def plan(self, cells: Mapping[str, Sequence[str]]) -> None:
        """Print which cells will run, and why."""
        self._cells = list(cells)
        for cell_id, reasons in cells.items():
            self._print(f"cell {cell_id} will run: {_brief(reasons)}")

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress, left_s: float | None) -> None:
        """Print that a cell begins, and now and then what it is doing."""
        if cell_id in self._printed and elapsed_s < self._printed[cell_id] + _LINE_EVERY_S:
            return
        self._printed[cell_id] = elapsed_s
        self._print(f"{self._numbered(cell_id)} {progress.step}".rstrip() + _left(left_s))

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Print how a cell ended."""
        self._print(f"{self._numbered(cell_id)} {_outcome(duration_s, failure)}")

    def note(self, line: str) -> None:
        """Print it."""
        self._print(line)

    def _numbered(self, cell_id: str) -> str:
        return f"[{self._cells.index(cell_id) + 1}/{len(self._cells)}] {cell_id}"

    def _print(self, line: str) -> None:
        print(one_line(line), file=self._stream, flush=True)


class Bar(Lines):
    """A bar for each cell that runs, with its variant and the time left for all; ended cells stay above."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        super().__init__(stream)
        self._bar = RichProgress(
            TextColumn("{task.fields[cell]}", style="bold", markup=False),
            BarColumn(),
            TextColumn("{task.fields[step]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
            console=Console(file=stream, highlight=False),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}  # of the cells that run

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give it back."""
        self._bar.stop()

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress, left_s: float | None) -> None:
        """Move the cell's bar."""
        if cell_id not in self._tasks:
            self._tasks[cell_id] = self._bar.add_task("", total=1.0, cell="", step="", left="")
        self._bar.update(
            self._tasks[cell_id],
            completed=progress.share or 0.0,
            cell=self._numbered(cell_id),
            step=one_line(progress.step),
            left=_clock(elapsed_s) + _left(left_s),
            refresh=True,
        )

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Leave a line above the bars."""
        self._print(f"{cell_id} {_outcome(duration_s, failure)}")
        if cell_id in self._tasks:
            self._bar.remove_task(self._tasks.pop(cell_id))

    def _print(self, line: str) -> None:
        self._bar.console.print(one_line(line), markup=False)


def _brief(reasons: Sequence[str]) -> str:
    """Return the first reasons of a cell in one line; `fluxbench status` has them all."""
    return first(reasons, 3, "; ") or "requested"


def _outcome(duration_s: float | None, failure: str | None) -> str:
    if duration_s is None:
        return f"not run: {failure}" if failure else "unchanged"
    return f"FAILED: {failure}" if failure else f"done in {duration_s:.1f} s"


def _left(left_s: float | None) -> str:
    """Return the time left; nothing where only cells that show are left, of which no time is known."""
    return f", about {_clock(left_s)} left" if left_s and left_s >= 1 else ""


def _clock(seconds: float) -> str:
    """Return a duration as `m:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
