"""What of a built page is not what was asked for, a sentence each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fluxbench.bench.dependencies import measured_variants
from fluxbench.core.formatting import first
from fluxbench.device.targets import Target
from fluxbench.environments import cell
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness
from fluxbench.notebook.snapshot import Failure, NotRun
from fluxbench.records.status import Status

_NAMED = 3  # variants that a sentence names before it counts the rest


def of(
    document: Document,
    cells: Mapping[str, Freshness],
    failures: Mapping[str, Failure],
    target: Target,
    only: Collection[str] | None,
) -> Iterator[str]:
    """Yield the problems of a page, of `only` these cells where given: a cell that failed or whose result does not
    hold, and a variant that the target requires and that did not pass.
    """
    for cell_id, failure in failures.items():
        if isinstance(failure, NotRun):
            yield f"cell {cell_id} was not run: {failure.reason}"
        else:
            yield f"cell {cell_id} failed: {failure.run.failure}"
    asked = [code for code in document.cells if code.id not in failures and (only is None or code.id in only)]
    for code in asked:
        if not cells[code.id].holds and all(cells[need].holds for need in code.needs):
            yield f"cell {code.id} was run, but its result is already stale: {'; '.join(cells[code.id].reasons)}"
    not_passed: dict[str, list[str]] = {}  # by reason
    for code in asked:
        if document.is_measuring(code):
            names = measured_variants(cell.parse(code.code, code.id))
            required = [name for name in names if target.requires(name, document.path.stem)]
            for reason, place in _not_passed(cells[code.id], required):
                not_passed.setdefault(reason, []).append(place)
    for reason, places in not_passed.items():
        yield f"{first(places, _NAMED)}: {reason}"


def _not_passed(freshness: Freshness, required: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield why required variants of a cell did not pass, each reason with the variant and where."""
    records = freshness.result.records if freshness.result else None
    if records is None:  # which is a problem of its own
        return
    for variant in required:
        of_variant = [record for record in records if record.variant == variant]
        if not of_variant:
            yield "no record", variant
        for record in of_variant:
            if record.status is not Status.PASSED:
                yield f"{record.status}: {record.reason}", f"{variant} at {record.workload.name}"
