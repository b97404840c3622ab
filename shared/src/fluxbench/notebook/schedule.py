"""Runs the cells of a build in order; a cell that fails costs itself and the cells that need it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uvnote.parser import CodeCell

from fluxbench.core.errors import SetupError
from fluxbench.core.progress import Progress
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness, depends_on
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.store import Result, Store


@dataclass(frozen=True)
class NotRun:
    """Why a cell that was to run was not started: a sentence."""

    reason: str


Failure = Result | NotRun


def run(
    codes: Sequence[CodeCell],
    document: Document,
    store: Store,
    device: Device,
    settings: Settings,
    cells: Mapping[str, Freshness],
    listener: Listener | None,
) -> dict[str, Failure]:
    """Run these cells in this order and return those that failed, each with its result or why it was not started.

    `cells` is the freshness of all cells before. Raises `SetupError` where uv is missing, `OSError` where a result
    cannot be kept.
    """
    from fluxbench.notebook import execution

    variables = execution.variables(settings)
    if listener:
        ids = {code.id for code in codes}
        reasons = {code.id: cells[code.id].reasons or _of_needs(code, ids) for code in codes}
        usual_s = {code.id: result.run.duration if (result := cells[code.id].result) else None for code in codes}
        listener.plan(reasons, usual_s)
    failures: dict[str, Failure] = {}
    current = {cell_id: freshness.result for cell_id, freshness in cells.items()}
    for code in codes:
        began = time.monotonic()

        def tick(progress: Progress, cell_id: str = code.id, began: float = began) -> None:
            if listener:
                listener.advanced(cell_id, time.monotonic() - began, progress)

        outcome: Failure
        if failed := [need for need in code.needs if need in failures]:
            outcome = NotRun(f"it needs {' and '.join(failed)}, which failed")
        else:
            inputs = {need: result for need in code.needs if (result := current[need])}
            try:
                depends = depends_on(code, document, device, settings)
                tick(Progress(share=None, step=""))
                outcome = execution.run_cell(code, document, store, inputs, depends, variables, tick)
            except SetupError as error:  # its header is not right
                outcome = NotRun(str(error))
        reason = outcome.reason if isinstance(outcome, NotRun) else outcome.run.failure
        if reason:
            failures[code.id] = outcome
        elif isinstance(outcome, Result):
            current[code.id] = outcome
        if listener:
            started = isinstance(outcome, Result)
            listener.ended(code.id, time.monotonic() - began if started else None, reason)
    return failures


def _of_needs(code: CodeCell, ids: set[str]) -> list[str]:
    return [f"it needs {need}" for need in code.needs if need in ids]
