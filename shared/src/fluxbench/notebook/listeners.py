"""What a person sees of a build while it runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from fluxbench.core.output import Output, one_line
from fluxbench.core.progress import Progress

_LINE_EVERY_S = 10.0


class Listener(Protocol):
    """Hears how a build goes on."""

    def plan(self, cells: Mapping[str, Sequence[str]], usual_s: Mapping[str, float | None]) -> None:
        """Take the cells that will run, in order, with the reasons for each, and how long each took the last time."""

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress) -> None:
        """Take how far a cell is, a few times a second."""

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Take that a cell ended, or, without a duration, that it was not started."""


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


class Times:
    """How long the rest will take, from how long each cell took the last time."""

    def __init__(self, usual_s: Mapping[str, float | None]) -> None:
        self._usual_s = dict(usual_s)

    def left_s(self, cell_id: str, elapsed_s: float, share: float | None) -> float | None:
        """Return the seconds until all cells are done; None where one that is still to run was never timed."""
        ids = list(self._usual_s)
        usual_s = self._usual_s[cell_id]
        if share and (usual_s is None or elapsed_s > usual_s):
            usual_s = elapsed_s / share
        later = [self._usual_s[later_id] for later_id in ids[ids.index(cell_id) + 1 :]]
        if usual_s is None or None in later:
            return None
        return max(0.0, usual_s - elapsed_s) + sum(seconds for seconds in later if seconds is not None)


class Lines:
    """A line when a cell begins and when it ends, and every ten seconds what it is doing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._cells: list[str] = []
        self._times = Times({})
        self._printed: tuple[str, float] = ("", 0.0)  # of which cell, and after how many of its seconds

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""

    def plan(self, cells: Mapping[str, Sequence[str]], usual_s: Mapping[str, float | None]) -> None:
        """Print which cells will run, and why."""
        self._cells, self._times = list(cells), Times(usual_s)
        for cell_id, reasons in cells.items():
            self._print(f"cell {cell_id} will run: {_brief(reasons)}")

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress) -> None:
        """Print that a cell begins, and now and then what it is doing."""
        printed_id, printed_s = self._printed
        if printed_id == cell_id and elapsed_s < printed_s + _LINE_EVERY_S:
            return
        self._printed = (cell_id, elapsed_s)
        self._print(f"{self._numbered(cell_id)} {progress.step}".rstrip() + self._left(cell_id, elapsed_s, progress))

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Print how a cell ended."""
        self._print(f"{self._numbered(cell_id)} {_outcome(duration_s, failure)}")

    def _numbered(self, cell_id: str) -> str:
        return f"[{self._cells.index(cell_id) + 1}/{len(self._cells)}] {cell_id}"

    def _left(self, cell_id: str, elapsed_s: float, progress: Progress) -> str:
        left_s = self._times.left_s(cell_id, elapsed_s, progress.share)
        return "" if left_s is None else f", about {_clock(left_s)} left"

    def _print(self, line: str) -> None:
        print(one_line(line), file=self._stream, flush=True)


class Bar(Lines):
    """A bar for the cells that run, with the cell, its variant and the time left; ended cells stay above it."""

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
        self._task: Any = None

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give it back."""
        self._bar.stop()

    def plan(self, cells: Mapping[str, Sequence[str]], usual_s: Mapping[str, float | None]) -> None:
        """Print which cells will run and why, and begin the bar."""
        super().plan(cells, usual_s)
        self._task = self._bar.add_task("", total=len(cells), cell="", step="", left="")

    def advanced(self, cell_id: str, elapsed_s: float, progress: Progress) -> None:
        """Move the bar."""
        self._bar.update(
            self._task,
            completed=self._cells.index(cell_id) + (progress.share or 0.0),
            cell=self._numbered(cell_id),
            step=one_line(progress.step),
            left=_clock(elapsed_s) + self._left(cell_id, elapsed_s, progress),
            refresh=True,
        )

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Leave a line above the bar."""
        self._print(f"{cell_id} {_outcome(duration_s, failure)}")
        self._bar.update(self._task, completed=self._cells.index(cell_id) + 1)

    def _print(self, line: str) -> None:
        self._bar.console.print(one_line(line), markup=False)


def _brief(reasons: Sequence[str]) -> str:
    """Return the first reasons of a cell in one line; `fluxbench status` has them all."""
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ("; ".join(reasons[:3]) or "it was asked for") + more


def _outcome(duration_s: float | None, failure: str | None) -> str:
    if duration_s is None:
        return f"not run: {failure}"
    return f"FAILED: {failure}" if failure else f"done in {duration_s:.1f} s"


def _clock(seconds: float) -> str:
    """Return a duration as `m:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
