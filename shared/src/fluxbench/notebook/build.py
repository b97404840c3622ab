"""Builds a notebook: runs the cells whose results do not hold, draws the page, and says what is wrong with it.

uvnote's parser, and a runner of our own: uvnote's stops at the first failure and always exits 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from uvnote.parser import CodeCell

from fluxbench.bench.unfinished import clear_old
from fluxbench.core import locks
from fluxbench.core.errors import SetupError
from fluxbench.core.files import remove
from fluxbench.core.settings import CONTENTS, Settings
from fluxbench.device import detect, targets
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.notebook import exclusive, problems, schedule, times
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import CYCLE, Freshness, State, check
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.snapshot import Failure, NotRun
from fluxbench.notebook.store import Result, Store
from fluxbench.records.schema import Record


@dataclass(frozen=True, kw_only=True)
class Built:
    """A page, what it was drawn from, and what is wrong with it."""

    page: Path
    document: Document
    device: Device
    target: Target
    cells: Mapping[str, Freshness]  # after the build
    before: Mapping[str, Result | None]  # the last good result before of each cell that was to run
    problems: tuple[str, ...]  # one sentence each; none where the page is what was asked for

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that the page shows."""
        measuring = [self.cells[code.id].result for code in self.document.cells if self.document.is_measuring(code)]
        return tuple(record for result in measuring if result for record in result.records or ())


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
    Raises `SetupError` where the build cannot begin: no such notebook or cell, a needed cell without a result, another
    build runs, uv is missing.
    """
    document = load(notebook)
    asked = document.descendants(document.find(cell_id).id for cell_id in only)
    device = detect.detect()
    target = targets.of(device, settings.root, document.path.stem)
    with exclusive.only_build(document.work), locks.scratch(settings.cache):
        store = Store(document)
        store.clear_parts()
        exclusive.clear_cell_folders(document.work)
        cells = check(document, store, device, settings)
        order = document.in_order()
        clear_old(settings)
        if only:
            _check_needs(document, asked, cells)
            for cell_id in asked:  # they are measured anew
                remove(settings.unfinished(document.path.stem, cell_id))
        else:
            asked = document.descendants(cell_id for cell_id, cell in cells.items() if cell.state is not State.FRESH)
        to_run = [code for code in order if code.id in asked]
        output.mkdir(parents=True, exist_ok=True)
        exclusive.check_page(output, document.path.stem)
        failures: dict[str, Failure] = {code.id: NotRun(CYCLE) for code in document.cells if code not in order}
        if to_run:
            failures |= _run(to_run, only, document, store, device, settings, cells, output, listener)
        after = check(document, store, device, settings)
        earlier: dict[str, Failure] = {
            cell_id: latest
            for cell_id, cell in after.items()
            if cell.state is State.FAILED and (latest := store.latest(cell_id))
        }
        from fluxbench.notebook.page.draw import draw  # which takes longer to load than all the rest

        page = draw(document, after, {**earlier, **failures}, output)
    return Built(
        page=page,
        document=document,
        device=device,
        target=target,
        cells=after,
        before={code.id: cells[code.id].result for code in to_run},
        problems=tuple(problems.of(document, after, failures, target, asked if only else None)),
    )


def _run(
    codes: Sequence[CodeCell],
    named: Sequence[str],
    document: Document,
    store: Store,
    device: Device,
    settings: Settings,
    cells: Mapping[str, Freshness],
    output: Path,
    listener: Listener | None,
) -> Mapping[str, Failure]:
    """Run these cells, while the page grows if any of them measures, and return those that failed."""
    from fluxbench.notebook import execution
    from fluxbench.notebook.growing import GrowingPage
    from fluxbench.notebook.residents import Residents

    note = listener.note if listener else lambda _: None
    with _interim(document) as interim, ExitStack() as stack:
        variables = execution.variables(settings) | {CONTENTS: stack.enter_context(_contents(settings))}
        residents = stack.enter_context(Residents(document.work, variables))
        place = execution.Place(
            document=document, store=store, variables=variables, residents=residents, added_to=store
        )
        page = None
        if any(document.is_measuring(code) for code in codes):
            note(f"The page grows at {(output / f'{document.path.stem}.html').resolve()}")
            page = GrowingPage(codes, replace(place, added_to=interim), device, settings, output, note)
        run = schedule.Schedule(codes, named, place, device, settings, cells, listener, page)
        if page:
            page.write(run.snapshot())
        began_s = time.monotonic()
        try:
            failures = run.run()
        except BaseException:
            if page:
                page.stay()
            raise
        times.write(document, times.Build(begin_s=began_s, end_s=time.monotonic(), spans=tuple(run.spans)))
        return failures


def _contents(settings: Settings) -> TemporaryDirectory[str]:
    """Return a folder for contents that all cells of this build share, which is gone after it."""
    runs = settings.cache.absolute() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(dir=runs, prefix="contents-", ignore_cleanup_errors=True)


@contextmanager
def _interim(document: Document) -> Iterator[Store]:
    """Give a store for what is drawn before all is measured, and remove it. Raises `OSError`."""
    store = Store(document, "interim")
    store.remove()
    try:
        yield store
    finally:
        with suppress(OSError):  # the next build tries again
            store.remove()


def _check_needs(document: Document, asked: set[str], cells: Mapping[str, Freshness]) -> None:
    for code in document.cells:
        missing = [need for need in code.needs if code.id in asked and need not in asked and not cells[need].result]
        if missing:
            raise SetupError(
                f"cell {code.id} needs {', '.join(missing)}, which has no result here; "
                f"run `fluxbench build {document.path}` first"
            )
