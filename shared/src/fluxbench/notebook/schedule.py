"""Runs the cells of a build, some of them at once; one that fails costs itself and the cells that need it."""

from __future__ import annotations

import concurrent.futures
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uvnote.parser import CodeCell

from fluxbench.core.device_lock import ORDER
from fluxbench.core.errors import SetupError
from fluxbench.core.progress import Progress
from fluxbench.core.settings import UNTIL, Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook import estimates, pausing
from fluxbench.notebook.execution import Place, run_cell
from fluxbench.notebook.freshness import Freshness, State, check_cell, depends_on
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.snapshot import Failure, NotRun, Page, Snapshot, StoppedError
from fluxbench.notebook.store import Result
from fluxbench.notebook.times import Span
from fluxbench.notebook.width import Width
from fluxbench.records.fingerprint import Fingerprint

_TICK_S = 0.2


@dataclass
class _Running:
    code: CodeCell
    began: float
    progress: Progress = field(default_factory=lambda: Progress(share=None, step=""))
    heard: int = 0  # announcements of early records


class Schedule:
    """The cells of one build. `spans` are the begin and end of each in monotonic seconds, and of drawings beside."""

    def __init__(
        self,
        codes: Sequence[CodeCell],
        named: Collection[str],
        place: Place,
        device: Device,
        settings: Settings,
        cells: Mapping[str, Freshness],
        listener: Listener | None,
        page: Page | None,
    ) -> None:
        self._place, self._device, self._settings, self._listener = place, device, settings, listener
        self._named, self._page = named, page
        self._width = Width.on(device, estimates.at_once(codes, place.document, device))
        self._cells = dict(cells)
        several = codes if self._width.measuring > 1 else ()
        self._compiling = {code.id for code in several if estimates.compiles(code, place.document)}
        weights = {code.id: estimates.weight(code, place.document, device, settings) for code in codes}
        ranked = bool(several) and not estimates.in_order(codes, place.document)
        self._waiting = self._in_turn(codes, weights if ranked else {}, self._compiling if ranked else ())
        self._measuring = [code.id for code in self._waiting if place.document.is_measuring(code)]
        self._failures: dict[str, Failure] = {}
        self._running: dict[Future[Result], _Running] = {}
        self._drawing: tuple[Future[None], float] | None = None
        self._is_due = self._has_new = False  # the page, and its figures
        self._stops, self._stops_drawing = threading.Event(), threading.Event()
        self.spans: list[Span] = []
        usual_s = {
            code.id: result.run.duration if (result := cells[code.id].result) else None for code in self._waiting
        }
        self._times = estimates.Times(usual_s, weights, self._width.measuring, self._compiling, self._width.compiling)
        if listener:
            ids = {code.id for code in codes}
            listener.plan({code.id: cells[code.id].reasons or _of_needs(code, ids) for code in codes})

    def run(self) -> dict[str, Failure]:
        """Run the cells and return those that failed, each with its result or why it was not started.

        Raises `SetupError` where uv is missing, `OSError` where a result cannot be kept.
        """
        threads = self._width.measuring + self._width.alone + 1
        with ThreadPoolExecutor(threads, thread_name_prefix="cell") as pool:
            try:
                while self._waiting or self._running:
                    self._start(pool)
                    self._wait()
            finally:
                self._stops.set()
                self._stops_drawing.set()
        return self._failures

    def _in_turn(
        self, codes: Sequence[CodeCell], weights: Mapping[str, int], compiling: Collection[str]
    ) -> list[CodeCell]:
        """Return the cells as they start: the first that measures, those that compile much, the heaviest of the rest.

        Before all of them what shows this machine, without which no page with results can be drawn. A heavy cell that
        began last would measure alone at the end.
        """
        measuring = self._place.document.is_measuring
        first = next((code for code in codes if measuring(code)), None)

        def place(code: CodeCell) -> tuple[bool, bool, bool, int]:
            needs_none = not code.needs and not measuring(code) and cell.uses_fluxbench(code.code)
            return not needs_none, code is not first, code.id not in compiling, -weights.get(code.id, 0)

        return sorted(codes, key=place)

    def snapshot(self) -> Snapshot:
        """Return how far the build is."""
        return Snapshot(
            cells=dict(self._cells),
            failures=dict(self._failures),
            pending={*(code.id for code in self._waiting), *(one.code.id for one in self._running.values())},
            left_s=self._times.left_s(),
            has_new_figures=self._has_new,
        )

    def _start(self, pool: ThreadPoolExecutor) -> None:
        """Start what there is room for."""
        still_measures = any(code.id in self._measuring for code in self._waiting) or self._count(measuring=True)
        if not still_measures:
            self._is_due = False
            self._stops_drawing.set()  # the last page is drawn next
        elif self._page and self._is_due and not self._drawing and self._has_room(measuring=False):
            snapshot, width = self.snapshot(), self._width
            self._is_due = self._has_new = False
            future = pool.submit(self._page.grow, snapshot, width.beside or width.alone, self._check_drawing)
            self._drawing = (future, time.monotonic())
        self._start_early(pool)
        settled = True
        while settled:  # a cell that ends here may let others begin
            settled = False
            for code in list(self._waiting):
                settled = self._start_cell(code, pool) or settled

    def _start_early(self, pool: ThreadPoolExecutor) -> None:
        """Start drawing with the early records of a cell: beside it, where a host has cores for that.

        Else while it waits, and where the page shows no time yet.
        """
        for one in self._running.values():
            announced = int(one.progress.early) if self._width.beside else one.progress.soon
            if self._page and not self._drawing and announced > one.heard:
                one.heard = announced
                snapshot = self.snapshot()
                if self._width.beside or not self._page.has_times(snapshot):
                    self._drawing = (pool.submit(self._draw_early, one, snapshot, self._page), time.monotonic())

    def _draw_early(self, one: _Running, snapshot: Snapshot, page: Page) -> None:
        check, at_once = self._check_drawing, self._width.beside or self._width.alone

        def draw(folder: Path) -> None:
            page.begin(one.code, folder, snapshot, at_once, check)

        if not self._width.beside:
            pausing.draw_early(self._settings.cache, lambda: one.progress, draw, check)
        elif folder := one.progress.folder:
            draw(folder)

    def _start_cell(self, code: CodeCell, pool: ThreadPoolExecutor) -> bool:
        """Start a cell where its turn has come; return whether it ended instead."""
        busy = {each.id for each in self._waiting} | {one.code.id for one in self._running.values()}
        if busy & set(code.needs):
            return False
        if failed := [need for need in code.needs if need in self._failures]:
            return self._settle(code, NotRun(f"it needs {' and '.join(failed)}, which failed"))
        is_measuring = code.id in self._measuring
        if not self._has_room(code, measuring=is_measuring) or (self._is_alone(code) and self._runs_alone()):
            return False
        try:
            depends = depends_on(code, self._place.document, self._device, self._settings)
            if not is_measuring and code.id not in self._named and self._check(code).state is State.FRESH:
                return self._settle(code, None)
            if is_measuring and self._is_late() and self._cells[code.id].state is State.RETRYABLE:
                return self._settle(code, None)  # what it has is more than it would get now
        except SetupError as error:  # its header is not right
            return self._settle(code, NotRun(str(error)))
        self._waiting.remove(code)
        one = _Running(code, time.monotonic())
        self._running[pool.submit(self._run, one, depends)] = one
        self._tick()
        return False

    def _is_late(self) -> bool:
        """Whether the build has stopped measuring."""
        return time.monotonic() >= float(self._place.variables.get(UNTIL, math.inf))

    def _run(self, one: _Running, depends: Fingerprint) -> Result:
        def tick(progress: Progress) -> None:
            if self._stops.is_set():
                raise StoppedError
            one.progress = progress

        code = one.code
        inputs = {need: result for need in code.needs if (result := self._cells[need].shown)}
        order = {ORDER: str(self._measuring.index(code.id))} if code.id in self._measuring else {}
        gives_way = self._count(measuring=True) > 0
        sharing = self._width.measuring if order else 1
        return run_cell(code, self._place, inputs, depends, tick, gives_way=gives_way, sharing=sharing, **order)

    def _has_room(self, code: CodeCell | None = None, *, measuring: bool) -> bool:
        measured, drawn, width = self._count(measuring=True), self._count(measuring=False), self._width
        compiling = sum(one.code.id in self._compiling for one in self._running.values())
        if code and code.id in self._compiling and compiling >= self._width.compiling:
            return False
        if measuring:
            is_apart = width.beside == 0
            return measured < width.measuring and not (
                is_apart and (drawn or self._drawing or (self._page and self._is_due))
            )
        return not self._drawing and drawn < (width.beside if measured else width.alone)

    def _runs_alone(self) -> bool:
        return any(self._is_alone(one.code) for one in self._running.values())

    def _is_alone(self, code: CodeCell) -> bool:
        """Whether it is somebody's own cell, of which one runs after the other."""
        return code.id not in self._measuring and not cell.uses_fluxbench(code.code)

    def _count(self, *, measuring: bool) -> int:
        return sum((one.code.id in self._measuring) == measuring for one in self._running.values())

    def _wait(self) -> None:
        """Wait a moment, or until something ends, and take it in."""
        futures: set[Future[Any]] = {*self._running, *([self._drawing[0]] if self._drawing else [])}
        concurrent.futures.wait(futures, _TICK_S, concurrent.futures.FIRST_COMPLETED)
        for future in [future for future in self._running if future.done()]:
            one = self._running.pop(future)
            self._settle(one.code, future.result(), one)
        if self._drawing and self._drawing[0].done():
            drawing, began = self._drawing
            self._drawing = None
            self._stops_drawing.clear()
            self.spans.append(Span(cell="(unfinished page)", measures=False, begin_s=began, end_s=time.monotonic()))
            error = drawing.exception()
            if error and not isinstance(error, StoppedError):
                raise error
        self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        for one in self._running.values():
            self._times.advanced(one.code.id, now - one.began, one.progress.share, one.progress.before)
        if self._listener:
            for one in self._running.values():
                self._listener.advanced(one.code.id, now - one.began, one.progress, self._times.left_s())

    def _settle(self, code: CodeCell, outcome: Failure | None, one: _Running | None = None) -> bool:
        """Take in how a cell ended; None: its result stands as it is. Return True."""
        now = time.monotonic()
        duration_s = now - one.began if one else None
        if code in self._waiting:
            self._waiting.remove(code)
        reason = outcome.reason if isinstance(outcome, NotRun) else outcome.run.failure if outcome else None
        if outcome and reason:
            self._failures[code.id] = outcome
        if not isinstance(outcome, NotRun):
            self._cells[code.id] = self._check(code)
        self._times.ended(code.id, duration_s or 0.0)
        if one:
            is_measuring = code.id in self._measuring
            self.spans.append(Span(cell=code.id, measures=is_measuring, begin_s=one.began, end_s=now))
            self._is_due |= is_measuring
            self._has_new |= isinstance(outcome, Result) and is_measuring and not reason and _measured(outcome)
        if self._listener:
            self._listener.ended(code.id, duration_s, reason)
        return True

    def _check(self, code: CodeCell) -> Freshness:
        place = self._place
        return check_cell(code, place.document, place.store, self._device, self._settings, self._cells)

    def _check_drawing(self) -> None:
        if self._stops_drawing.is_set():
            raise StoppedError


def _measured(result: Result) -> bool:
    """Whether a result has a time, or is one of a measuring cell without records."""
    return not result.records or result.has_time


def _of_needs(code: CodeCell, ids: set[str]) -> list[str]:
    return [f"it needs {need}" for need in code.needs if need in ids]
