"""A notebook's page, from uvnote's generator: every cell is on it, and what is not a fresh result says what it is."""

from __future__ import annotations

import dataclasses
import html
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from uvnote.executor import ExecutionResult, create_cell_script
from uvnote.generator import generate_html

from fluxbench.core.formatting import utc
from fluxbench.notebook import execution
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.page_markup import Shown, refined
from fluxbench.notebook.store import Result

_COLUMNS = 110


def draw(
    document: Document, cells: Mapping[str, Freshness], failures: Mapping[str, Result | str], output: Path
) -> Path:
    """Draw `<output>/<notebook>.html` with its artifacts and cell scripts, and return its path.

    `failures` holds the run that failed, or a sentence why there was none, of each cell that was to run and did not
    succeed. Raises `OSError`; the page that was there before stays.
    """
    for code in document.cells:  # another notebook of the folder may have a cell of the same name
        with execution.in_utf8():
            create_cell_script(code, document.path.parent)
    page = output / f"{document.path.stem}.html"
    output.mkdir(parents=True, exist_ok=True)
    results = [_shown(code.id, cells[code.id], failures.get(code.id)) for code in document.cells]
    for result in results:
        for artifact in result.artifacts:  # uvnote makes no folders below the cell's
            (output / "artifacts" / result.cell_id / artifact).parent.mkdir(parents=True, exist_ok=True)
    # uvnote puts this field into the page as it is.
    codes = [
        dataclasses.replace(code, deps=[html.escape(dependency) for dependency in code.deps])
        for code in (*document.cells, *document.commented)
    ]
    config = dataclasses.replace(document.config, title=document.config.title or document.path.stem)
    aside = page.with_name(f".{page.name}")  # uvnote puts its page in place before it copies the artifacts
    try:
        with execution.in_utf8():
            generate_html(document.text, config, codes, results, aside, document.path.parent)
        shown = {code.id: _beside(cells[code.id]) for code in document.cells}
        aside.write_text(refined(aside.read_text(encoding="utf-8"), shown), encoding="utf-8")
        (output / "cells").mkdir(exist_ok=True)
        for code in document.cells:
            shutil.copy2(document.work / "cells" / f"{code.id}.py", output / "cells")
        aside.replace(page)
    except OSError:
        for part in (aside, aside.with_name(f"{aside.name}.tmp")):
            part.unlink(missing_ok=True)
        raise
    return page


def _shown(cell_id: str, cell: Freshness, failure: Result | str | None) -> ExecutionResult:
    """Return what uvnote is to show of a cell: its last good result, with a note above where it is not a fresh one."""
    result = cell.result
    failed = failure is not None or cell.state in (State.FAILED, State.MISSING)
    stderr = result.stderr if result else ""
    note = None
    if failed:
        why = _sentence(failure, cell.reasons)
        note = why if result is None else f"{why} What follows is {_what(result)}."
        stderr = failure.stderr if isinstance(failure, Result) else ""
    elif cell.state is State.STALE and result:
        note = f"Not as this machine is now: {'; '.join(cell.reasons)}. This is {_what(result)}."
    above = textwrap.fill(f"[{note}]", _COLUMNS) + "\n\n" if note else ""
    said = failure if isinstance(failure, Result) and result is None else result
    return ExecutionResult(
        cell_id=cell_id,
        success=not failed,
        stdout=above + (said.stdout if said else ""),
        stderr=stderr,
        duration=said.duration_s if said else 0.0,
        artifacts=list(result.artifacts) if result else [],
        cache_key=result.key if result else "none",
    )


def _beside(cell: Freshness) -> Shown:
    """Return what stands under a cell: when its result was made, on what device, with which driver and torch."""
    result = cell.result
    if result is None:
        return Shown()
    its = result.records or ()
    times = sorted({utc(record.measured_at) for record in its})
    when = f"measured {' to '.join(dict.fromkeys((times[0], times[-1])))}" if times else f"ran {utc(result.ran_at)}"
    marks = its[0].fingerprint if its else result.depends
    driver = f"driver {marks['driver']}" if marks.get("driver") else ""
    torch = (
        "torch " + " and ".join(found) if (found := sorted({r.versions.get("torch", "") for r in its} - {""})) else ""
    )
    said = [when, str(marks.get("device") or ""), driver, torch]
    return Shown(stale=cell.state is State.STALE, origin=", ".join(filter(None, said)))


def _sentence(failure: Result | str | None, reasons: Iterable[str]) -> str:
    if isinstance(failure, Result):
        return f"The last run of this cell failed: {failure.failure}."
    return f"Not run: {failure or '; '.join(reasons)}."


def _what(result: Result) -> str:
    driver = result.depends.get("driver")
    return f"its last good result, of {utc(result.ran_at)}" + (f", with driver {driver}" if driver else "")
