"""Draws a published page again from its records, on any machine: nothing is measured.

Cells that left records keep these, and the page shows the code that measured them. All other cells are run as they are
in the notebook now. A simulation stays as it was published, since other pages have changed since.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from uvnote.parser import CodeCell

from fluxbench.analysis.certificate import trials
from fluxbench.core import locks
from fluxbench.core.errors import SetupError
from fluxbench.core.files import remove, write_bytes
from fluxbench.core.settings import Settings
from fluxbench.device import detect, targets
from fluxbench.environments import cell
from fluxbench.notebook import exclusive, execution, problems, schedule
from fluxbench.notebook.build import Built
from fluxbench.notebook.document import Document, attributes_sha256, load
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.page import folder as page_folder
from fluxbench.notebook.publish import publish
from fluxbench.notebook.residents import Residents
from fluxbench.notebook.store import Run, Store
from fluxbench.records import files, fingerprint
from fluxbench.records.schema import RecordError
from fluxbench.report import device_facts, of_measuring
from fluxbench.report.results import DEVICE, PUBLISHED_VARIABLE, SIMULATION, Results, gather

_WORK = ".redraw"  # beside the notebook
# Names of files in pages of the first schema, by the present ones.
_OLDER = (("rates.json", "ceilings.json"), (".control.json", ".sentinel.json"), ("trials.json", "trials.json.gz"))


def redraw(published: Path, notebook: Path, settings: Settings, listener: Listener | None = None) -> Path:
    """Draw the page of the folder `reports/<target>/<notebook>/` again, in its place, and return the page's path.

    Raises `SetupError` where the folder lacks the records of a cell, has others, or has no `device.json`; where the
    notebook has another name; where a cell fails; where this notebook is drawn again already; or as `document.load`
    does; `OSError`. What is published stays.
    """
    records = published / "records"
    if not records.is_dir():
        raise SetupError(f"a published page must have a folder of records, got {published}")
    if notebook.stem != published.name:
        raise SetupError(f"the notebook of {published} must be named {published.name}.md, got {notebook}")
    there, present = gather([records]), load(notebook)
    document = _as_measured(present, published)
    if there.notes:
        raise SetupError(there.notes[0])
    with exclusive.only_build(document.work), locks.scratch(settings.cache):
        store = Store(document)
        store.remove()
        kept = {code.id for code in document.cells}
        cells = {code.id: _restored(code, document, records, there, store) for code in present.cells if code.id in kept}
        variables = execution.variables(settings) | {PUBLISHED_VARIABLE: str(records)}
        drawn_here = [code for code in document.in_order() if cells[code.id].result is None]
        with Residents(document.work, variables) as residents:
            place = execution.Place(
                document=document, store=store, variables=variables, residents=residents, added_to=store
            )
            run = schedule.Schedule(drawn_here, (), place, detect.detect(), settings, cells, listener, None)
            failures = run.run()
        target = targets.named(published.parent.name, settings.root)
        after = run.snapshot().cells
        built = Built(
            page=published.with_suffix(".html"),
            document=document,
            device=there.device,
            target=target,
            cells=after,
            before={},
            problems=tuple(problems.of(document, after, failures, target, [code.id for code in drawn_here])),
        )
        _check_same(records, built)
        page = publish(built, published.parent.parent, target.name)
        store.remove()
    remove(document.work)
    return page


def _as_measured(document: Document, published: Path) -> Document:
    """Return a notebook with the measuring cells that were published, with their code. Raises `SetupError`, `OSError`.

    One that the page did not have, and that nothing is there of, is left out, as one that is commented out is.
    """
    codes, gone = [], {}
    for code in document.cells:
        path = published / "cells" / f"{code.id}.py"
        if document.is_measuring(code) and path.is_file():
            code = dataclasses.replace(code, code=path.read_text(encoding="utf-8"))
        elif document.is_measuring(code) and not any((published / "records").glob(f"{code.id}.*")):
            gone[code.id] = dataclasses.replace(code, commented=True)
            continue
        codes.append(code)
    cells = tuple(dataclasses.replace(code, needs=[each for each in code.needs if each not in gone]) for code in codes)
    return dataclasses.replace(document, cells=cells, commented=(*document.commented, *gone.values()), work_name=_WORK)


def _restored(code: CodeCell, document: Document, records: Path, there: Results, store: Store) -> Freshness:
    """Keep what a cell left of a published page as its result, and return that; none of a cell that only shows.

    `code` is the present one, since the published one may have an older header.
    """
    is_measuring = document.is_measuring(code)
    if not is_measuring and DEVICE not in code.outputs:
        return Freshness(state=State.MISSING, reasons=("it is drawn again",), result=None)
    with tempfile.TemporaryDirectory(prefix="fluxbench-redraw-") as name:
        folder = Path(name)
        names = [found for output in code.outputs if (found := _copy(output, records, folder))]
        if not names:
            raise SetupError(f"{records} must have what cell {code.id} measured, got none of {', '.join(code.outputs)}")
        try:
            if is_measuring:
                blocks = of_measuring.blocks(cell.parse(code.code, code.id), there.device, folder)
            else:
                blocks = device_facts.blocks(files.read_json(folder / DEVICE, dict[str, Any], "the device"))
        except (RecordError, msgspec.ValidationError) as error:
            raise SetupError(f"{records} must hold whole records, got {error}") from error
        run = Run(
            success=True,
            stdout="\n\n".join(block.text() for block in blocks),
            stderr="",
            duration=None,
            artifacts={},
            failure=None,
            ran_at=_measured_at(there),
            depends={**fingerprint.of_device(there.device), "attributes": attributes_sha256(code)},
            inputs={},
        )
        display = "".join(f"{block.html()}\n" for block in blocks)
        return Freshness(state=State.FRESH, reasons=(), result=store.add(code.id, run, folder, names, display))


def _measured_at(there: Results) -> str:
    """Return when the newest record of a page was measured, or of its trials."""
    measured = [*there.records, *(trials.read(there.trials).records if there.trials else ())]
    return max((record.measured_at for record in measured), default="1970-01-01T00:00:00+00:00")


def _copy(output: str, records: Path, folder: Path) -> str | None:
    """Copy a declared output from a page's records, and return under which name; None where it is not there."""
    older = (output.removesuffix(now) + before for now, before in _OLDER if output.endswith(now))
    compressed = [f"{output}.gz"] if output.endswith(".jsonl") else []
    for name in (output, *compressed, *older):
        path = records / name
        if path.is_file():
            kept_as = output if name.endswith(f"{output}.gz") else name
            write_bytes(folder / kept_as, files.read_bytes(path) if kept_as != name else path.read_bytes())
            return kept_as
    return None


def _check_same(records: Path, built: Built) -> None:
    """Raise `SetupError` where the published records would not be those that are published again.

    A simulation may be one that the page did not have.
    """
    places = page_folder.places(built.document, built.cells)
    new = {place.removesuffix(".gz"): key for key, place in places.items() if place.startswith("records/")}
    for path in sorted(records.iterdir()):
        cell_id, name = new.get(f"records/{path.name}".removesuffix(".gz"), ("", ""))
        result = built.cells[cell_id].result if cell_id else None
        if result is None:
            raise SetupError(f"each file of {records} must be of a cell of {built.document.path.name}, got {path.name}")
        if name != SIMULATION and files.read_bytes(result.folder / name) != files.read_bytes(path):
            raise SetupError(f"a page that is drawn again must have the same records, got another {path.name}")
