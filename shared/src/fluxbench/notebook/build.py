"""Build a notebook: run the cells whose results do not hold, draw the page, and say whether it is what was asked for.

uvnote's parser and page generator, and a runner of our own: uvnote's stops at the first failure and always exits 0.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from uvnote.parser import CodeCell

from fluxbench.core.progress import Progress
from fluxbench.core.errors import SetupError, full_disk
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.environments.cell import measured
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import CYCLE, Freshness, State, check, depends_on
from fluxbench.notebook.store import Result, Store
from fluxbench.records.schema import Record, Status


class Listener(Protocol):
    """Who is told what a build is at."""

    def plan(self, cells: Mapping[str, Sequence[str]], usual_s: Mapping[str, float | None]) -> None:
        """Take the cells that are to run, in order, each with why, and how long each took the last time."""

    def at(self, cell_id: str, elapsed_s: float, progress: Progress) -> None:
        """Take how far a cell is, a few times a second."""

    def ended(self, cell_id: str, duration_s: float | None, failure: str | None) -> None:
        """Take that a cell ended, or, without a duration, that it could not be begun."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A page, what it was drawn from, and what is wrong with it."""

    page: Path
    document: Document
    device: Device
    target: Target
    cells: Mapping[str, Freshness]  # after the build
    before: Mapping[str, Result | None]  # of each cell that was to run: its last good result before
    problems: tuple[str, ...]  # one sentence each; none where the page is what was asked for

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that the page shows."""
        shown = [cell.result for cell in self.cells.values() if cell.result]
        return tuple(record for result in shown for record in result.records or ())


def build(
    notebook: Path,
    settings: Settings,
    output: Path,
    *,
    only: Sequence[str] = (),
    listener: Listener | None = None,
) -> Built:
    """Run what is not fresh, or `only` these cells and whatever depends on them, and draw the page into `output`.

    A cell that fails costs itself and the cells that need it; its last good result stays and is shown as what it is.
    Raises `SetupError` where it cannot be begun: no such notebook or cell, a needed cell without a result, another
    build runs, uv is missing.
    """
    document = load(notebook)
    asked = document.descendants(document.find(cell_id).id for cell_id in only)
    device = hardware.detect()
    target = targets.of(device, settings.root)
    with _alone(document), _scratch(settings):
        store = Store(document)
        store.clear_parts()
        cells = check(document, store, device, settings)
        order = document.in_order()
        if only:
            _check_needs(document, asked, cells)
        else:
            asked = document.descendants(cell_id for cell_id, cell in cells.items() if cell.state is not State.FRESH)
        to_run = [code for code in order if code.id in asked]
        _make(output)
        failures: dict[str, Result | str] = {code.id: CYCLE for code in document.cells if code not in order}
        if to_run:
            failures |= _run(to_run, document, store, device, settings, cells, listener)
        after = check(document, store, device, settings)
        from fluxbench.notebook.page import draw  # which takes longer to load than all the rest

        failed = [cell_id for cell_id, cell in after.items() if cell.state is State.FAILED]
        earlier = {cell_id: run for cell_id in failed if (run := store.latest(cell_id))}
        page = draw(document, after, {**earlier, **failures}, output)
    return Built(
        page=page,
        document=document,
        device=device,
        target=target,
        cells=after,
        before={code.id: cells[code.id].result for code in to_run},
        problems=tuple(_problems(document, after, failures, target, asked if only else None)),
    )


def _check_needs(document: Document, asked: set[str], cells: Mapping[str, Freshness]) -> None:
    for code in document.cells:
        missing = [need for need in code.needs if code.id in asked and need not in asked and not cells[need].result]
        if missing:
            raise SetupError(
                f"cell {code.id} needs {', '.join(missing)}, of which there is no result here; "
                f"run `fluxbench build {document.path}` first"
            )


def _run(
    codes: Sequence[CodeCell],
    document: Document,
    store: Store,
    device: Device,
    settings: Settings,
    cells: Mapping[str, Freshness],
    listener: Listener | None,
) -> dict[str, Result | str]:
    """Run these cells in order and return those that failed, each with its result or why it was not begun."""
    from fluxbench.notebook import execution

    variables = execution.variables(settings)
    if listener:
        usual_s = {code.id: result.duration_s if (result := cells[code.id].result) else None for code in codes}
        ids = {code.id for code in codes}
        why = {
            code.id: cells[code.id].reasons or [f"it needs {id}" for id in code.needs if id in ids] for code in codes
        }
        listener.plan(why, usual_s)
    failures: dict[str, Result | str] = {}
    current = {cell_id: cell.result for cell_id, cell in cells.items()}
    for code in codes:
        began = time.monotonic()

        def tick(progress: Progress, code: CodeCell = code, began: float = began) -> None:
            if listener:
                listener.at(code.id, time.monotonic() - began, progress)

        failure: str | None
        if failed := [need for need in code.needs if need in failures]:
            failures[code.id] = failure = f"it needs {' and '.join(failed)}, which failed"
        else:
            inputs = {need: result for need in code.needs if (result := current[need])}
            try:
                depends = depends_on(code, document, device, settings)
                tick(Progress(share=None, step=""))
                result = execution.run_cell(code, document, store, inputs, depends, variables, tick)
                failure = result.failure
                if failure:
                    failures[code.id] = result
                else:
                    current[code.id] = result
            except SetupError as error:  # a header that is not right
                failures[code.id] = failure = str(error)
        if listener:
            begun = failure is None or isinstance(failures[code.id], Result)
            listener.ended(code.id, time.monotonic() - began if begun else None, failure)
    return failures


def _problems(
    document: Document,
    cells: Mapping[str, Freshness],
    failures: Mapping[str, Result | str],
    target: Target,
    only: set[str] | None,
) -> Iterator[str]:
    """Say what of the page (of `only` these cells, where given) is not what was asked for."""
    for cell_id, failure in failures.items():
        said = failure.failure if isinstance(failure, Result) else failure
        yield f"cell {cell_id} {'failed' if isinstance(failure, Result) else 'was not run'}: {said}"
    why: dict[str, list[str]] = {}
    for code in document.cells:
        if code.id in failures or (only is not None and code.id not in only):
            continue
        if not cells[code.id].holds and all(cells[need].holds for need in code.needs):
            yield f"cell {code.id} was run and its result does not hold: {'; '.join(cells[code.id].reasons)}"
        result = cells[code.id].result
        if not document.is_measuring(code) or result is None or result.records is None:
            continue
        for variant in measured(code.code):
            its = [record for record in result.records if record.variant == variant]
            if variant not in target.expects:
                continue
            if not its:
                why.setdefault("no record", []).append(variant)
            for record in its:
                if record.status is not Status.PASSED:
                    why.setdefault(f"{record.status}: {record.reason}", []).append(
                        f"{variant} at {record.workload.name}"
                    )
    for reason, who in why.items():
        yield f"{', '.join(who[:3])}{f' and {len(who) - 3} more' if len(who) > 3 else ''}: {reason}"


@contextmanager
def _scratch(settings: Settings) -> Iterator[None]:
    """Remove what killed measurements left in the cache, unless another build is measuring there."""
    _make(settings.cache)
    with (settings.cache / "runs.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(settings.cache / "runs", ignore_errors=True)
        except BlockingIOError:  # it holds the lock below
            pass
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if full_disk(error):
            raise
        raise SetupError(f"{folder} must be a folder that can be written to: {error}") from error


@contextmanager
def _alone(document: Document) -> Iterator[None]:
    """Hold the notebook's folder: two builds at once there mix up each other's cells."""
    _make(document.work)
    with (document.work / "fluxbench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another build runs in {document.path.parent}; wait until it ends") from error
        yield
