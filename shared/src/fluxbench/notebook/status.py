"""What of a notebook holds on this machine as it is now: cells, variants, and what differs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from uvnote.parser import CodeCell

from fluxbench.bench.dependencies import measured_variants
from fluxbench.core.formatting import utc, wrapped
from fluxbench.core.settings import Settings
from fluxbench.device import detect, targets
from fluxbench.environments.cell import parse
from fluxbench.notebook.document import load
from fluxbench.notebook.freshness import Freshness, State, check
from fluxbench.notebook.store import Store

_INDENT = " " * 6  # of what a cell was when it ran; a reason that is wrapped has less


@dataclass(frozen=True, kw_only=True)
class VariantStatus:
    """A variant of a cell: the cell's state, and how many workloads have which status."""

    variant: str
    state: str
    statuses: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class CellStatus:
    """A cell: its state and why, when its result was measured, and its variants."""

    cell: str
    state: str
    reasons: tuple[str, ...]
    ran_at: str | None  # UTC, ISO 8601
    variants: tuple[VariantStatus, ...]


@dataclass(frozen=True, kw_only=True)
class NotebookStatus:
    """The state of every cell of a notebook, in document order."""

    notebook: str
    target: str
    device: str
    driver: str | None
    cells: tuple[CellStatus, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether a build would run nothing."""
        return all(cell.state == State.FRESH for cell in self.cells)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps({**dataclasses.asdict(self), "fresh": self.is_fresh}, indent=1)

    def text(self) -> str:
        """Return it for a person: cells of one state and the same reasons together, groups with variants first."""
        driver = f", driver {self.driver}" if self.driver else ""
        lines = [f"{self.notebook} on {self.device}{driver} (target {self.target})", ""]
        alike: dict[tuple[str, tuple[str, ...]], list[CellStatus]] = {}
        for cell in self.cells:
            alike.setdefault((cell.state, cell.reasons), []).append(cell)
        for (state, reasons), cells in sorted(alike.items(), key=lambda group: not any(c.variants for c in group[1])):
            lines.append(f"{state}: {', '.join(cell.cell for cell in cells)}")
            lines += [f"  {reason}" for reason in reasons]
            lines += [f"{_INDENT}{cell.cell}{_measured(cell)}" for cell in cells if cell.variants]
            lines += [*_others(cells), ""]
        count = sum(cell.state != State.FRESH for cell in self.cells)
        lines.append(f"{count} of {len(self.cells)} cells are not fresh." if count else "All cells are fresh.")
        return "\n".join(map(wrapped, lines))


def _others(cells: Sequence[CellStatus]) -> Iterator[str]:
    """Yield when those of some cells were run that have no variants, with their names where others have some."""
    others = [cell for cell in cells if not cell.variants]
    if times := sorted(cell.ran_at for cell in others if cell.ran_at):
        names = "" if len(others) == len(cells) else f"{', '.join(cell.cell for cell in others)}, "
        until = f" to {utc(times[-1])}" if times[-1] != times[0] else ""
        yield f"{_INDENT}{names}{utc(times[0])}{until}"


def _measured(cell: CellStatus) -> str:
    """Return when a cell was measured, and its variants by how many workloads have which status."""
    if cell.ran_at is None:
        return f": {', '.join(variant.variant for variant in cell.variants)}"
    by_counts: dict[str, list[str]] = {}
    for variant in cell.variants:
        counts = ", ".join(f"{count} {status}" for status, count in variant.statuses.items())
        by_counts.setdefault(counts or "no record", []).append(variant.variant)
    found = "; ".join(f"{', '.join(names)}: {counts}" for counts, names in by_counts.items())
    return f", {utc(cell.ran_at)}. {found}"


def status(notebook: Path, settings: Settings) -> NotebookStatus:
    """Return what holds. Starts no process on the device and writes nothing.

    Raises `SetupError` where the notebook is not right, or the settings name what does not exist.
    """
    document = load(notebook)
    device = detect.detect()
    cells = check(document, Store(document), device, settings)
    return NotebookStatus(
        notebook=document.path.name,
        target=targets.of(device, settings.root, document.path.stem).name,
        device=device.name,
        driver=device.driver,
        cells=tuple(_of_cell(code, cells[code.id], document.is_measuring(code)) for code in document.cells),
    )


def _of_cell(code: CodeCell, freshness: Freshness, is_measuring: bool) -> CellStatus:
    names = measured_variants(parse(code.code, code.id)) if is_measuring else ()
    result = freshness.result
    records = (result.records if result else None) or ()
    return CellStatus(
        cell=code.id,
        state=freshness.state,
        reasons=freshness.reasons,
        ran_at=result.run.ran_at if result else None,
        variants=tuple(
            VariantStatus(
                variant=name,
                state=freshness.state,
                statuses=dict(Counter(str(record.status) for record in records if record.variant == name)),
            )
            for name in names
        ),
    )
