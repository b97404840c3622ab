"""Builds a notebook: runs the cells whose results do not hold, draws the page, and says what is wrong with it.

uvnote's parser, and a runner of our own: uvnote's stops at the first failure and always exits 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core import locks
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detect, targets
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.notebook import exclusive, problems, schedule
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import CYCLE, Freshness, State, check
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.schedule import Failure, NotRun
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
    target = targets.of(device, settings.root)
    with exclusive.only_build(document.work), locks.scratch(settings.cache):
        store = Store(document)
        store.clear_parts()
        exclusive.clear_cell_folders(document.work)
        cells = check(document, store, device, settings)
        order = document.in_order()
        if only:
            _check_needs(document, asked, cells)
        else:
            asked = document.descendants(cell_id for cell_id, cell in cells.items() if cell.state is not State.FRESH)
        to_run = [code for code in order if code.id in asked]
        output.mkdir(parents=True, exist_ok=True)
        exclusive.check_page(output, document.path.stem)
        failures: dict[str, Failure] = {code.id: NotRun(CYCLE) for code in document.cells if code not in order}
        if to_run:
            failures |= schedule.run(to_run, document, store, device, settings, cells, listener)
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


def _check_needs(document: Document, asked: set[str], cells: Mapping[str, Freshness]) -> None:
    for code in document.cells:
        missing = [need for need in code.needs if code.id in asked and need not in asked and not cells[need].result]
        if missing:
            raise SetupError(
                f"cell {code.id} needs {', '.join(missing)}, of which there is no result here; "
                f"run `fluxbench build {document.path}` first"
            )
