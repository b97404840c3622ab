"""What of a notebook holds on this machine as it is now: cells, variants, and what differs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.formatting import utc
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook.document import load
from fluxbench.notebook.freshness import Freshness, check
from fluxbench.notebook.store import Store


@dataclass(frozen=True, kw_only=True)
class OfVariant:
    """A variant of a cell: its cell's state, and how many workloads have which status."""

    variant: str
    state: str
    statuses: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class OfCell:
    """A cell: its state and why, when its result was measured, and its variants."""

    cell: str
    state: str
    reasons: tuple[str, ...]
    ran_at: str | None  # UTC, ISO 8601
    variants: tuple[OfVariant, ...]


@dataclass(frozen=True, kw_only=True)
class NotebookStatus:
    """The state of every cell of a notebook, in document order."""

    notebook: str
    target: str
    device: str
    driver: str | None
    cells: tuple[OfCell, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether a build would run nothing."""
        return all(each.state == "fresh" for each in self.cells)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps({**dataclasses.asdict(self), "fresh": self.is_fresh}, indent=1)

    def text(self) -> str:
        """Return it for a person: a line a cell and a line a variant."""
        driver = f", driver {self.driver}" if self.driver else ""
        lines = [f"{self.notebook} on {self.device}{driver} (target {self.target})", ""]
        wide = max(len(each.cell) for each in self.cells)
        words = max(len(each.state) for each in self.cells)
        for each in self.cells:
            when = utc(each.ran_at or "")
            lines.append(f"{each.cell:<{wide}}  {each.state:<{words}}  {when}".rstrip())
            lines += [f"{'':<{wide}}    {reason}" for reason in each.reasons]
            for variant in each.variants:
                counts = ", ".join(f"{count} {status}" for status, count in variant.statuses.items())
                lines.append(f"{'':<{wide}}    {variant.variant:<28} {variant.state:<{words}}  {counts}".rstrip())
        count = sum(each.state != "fresh" for each in self.cells)
        lines += ["", "All is fresh." if not count else f"{count} of {len(self.cells)} cells are not fresh."]
        return "\n".join(lines)


def status(notebook: Path, settings: Settings) -> NotebookStatus:
    """Return what holds. Starts no process on the device and writes nothing. Raises `SetupError`: it is no notebook."""
    document = load(notebook)
    device: Device = hardware.detect()
    found = check(document, Store(document), device, settings)
    return NotebookStatus(
        notebook=document.path.name,
        target=targets.of(device, settings.root).name,
        device=device.name,
        driver=device.driver,
        cells=tuple(_of_cell(code.id, cell.measured(code.code), found[code.id]) for code in document.cells),
    )


def _of_cell(cell_id: str, names: tuple[str, ...], freshness: Freshness) -> OfCell:
    result = freshness.result
    records = (result.records if result else None) or ()
    return OfCell(
        cell=cell_id,
        state=freshness.state,
        reasons=freshness.reasons,
        ran_at=result.ran_at if result else None,
        variants=tuple(
            OfVariant(
                variant=name,
                state=freshness.state,
                statuses=dict(Counter(str(record.status) for record in records if record.variant == name)),
            )
            for name in names
        ),
    )
