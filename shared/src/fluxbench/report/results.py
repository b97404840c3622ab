"""What a page is drawn from: the records of all measuring cells and what lies beside them.

The `results` cell gathers it from the cells that it needs; every showing cell needs that one alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_text
from fluxbench.device.model import Device
from fluxbench.device.peaks import Peak, peak
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError

RECORDS, EARLIER, REST = "results.jsonl", "earlier.jsonl", "results.json"
RATES, CAPABILITIES, DEVICE = "rates.json", "*.capabilities.json", "device.json"


@dataclass(frozen=True, kw_only=True)
class Results:
    """All that the showing cells of a notebook show."""

    notebook: str
    device: Device
    records: tuple[Record, ...]
    rates: Mapping[str, Any] = field(default_factory=dict)  # the device's own, see `timing.device_rates`; or a reason
    capabilities: Mapping[str, Any] = field(default_factory=dict)  # by variant, what came of trying them
    earlier: tuple[Record, ...] = ()  # published ones and earlier local ones, of any device
    notes: tuple[str, ...] = ()  # a sentence for each thing that could not be read

    @property
    def peak(self) -> Peak | None:
        """The device's data-sheet rates; None where it is not in the table."""
        return peak(self.device)


def gather(notebook: str, folders: Iterable[Path], earlier: Iterable[Record] = (), notes: Iterable[str] = ()) -> Results:
    """Return what the measuring cells and the device cell left in their folders.

    What is missing or damaged is left out with a note. Raises `SetupError` where no folder holds `device.json`.
    """
    folders, problems = list(folders), list(notes)
    records: list[Record] = []
    rates: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}
    device = None
    for folder in folders:
        for path in sorted(folder.glob("*.jsonl")):
            try:
                records += files.read(path)
            except (OSError, RecordError) as error:
                problems.append(f"{path.name} cannot be read, so its records are missing here: {error}.")
        for path in sorted((*folder.glob(CAPABILITIES), *folder.glob(RATES), *folder.glob(DEVICE))):
            content = _object(path, problems)
            if path.name == RATES:
                rates = content
            elif path.name == DEVICE and content:
                device = _device(content)
            else:
                capabilities |= content.get("variants", {})
    if device is None:
        raise SetupError("the results cell must need the cell that writes device.json; add it to its needs=")
    return Results(
        notebook=notebook,
        device=device,
        records=tuple(records),
        rates=rates,
        capabilities=capabilities,
        earlier=tuple(earlier),
        notes=tuple(problems),
    )


def write(results: Results, folder: Path) -> None:
    """Write results to the files of `OUTPUTS`. Raises `OSError`."""
    files.write(folder / RECORDS, results.records)
    files.write(folder / EARLIER, results.earlier)
    rest = {
        "notebook": results.notebook,
        "device": dataclasses.asdict(results.device),
        "rates": results.rates,
        "capabilities": results.capabilities,
        "notes": results.notes,
    }
    write_text(folder / REST, json.dumps(rest, indent=1) + "\n")


def read(folder: Path) -> Results:
    """Return what `write` wrote. Raises `SetupError` where it is missing or damaged."""
    try:
        rest = json.loads((folder / REST).read_text(encoding="utf-8"))
        return Results(
            notebook=rest["notebook"],
            device=_device(rest),
            records=tuple(files.read(folder / RECORDS)),
            rates=rest["rates"],
            capabilities=rest["capabilities"],
            earlier=tuple(files.read(folder / EARLIER)),
            notes=tuple(rest["notes"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"the results of the results cell must be whole, got {error!r}; run it again") from error


def _object(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}.")
        return {}
    return content if isinstance(content, dict) else {}


def _device(content: Mapping[str, Any]) -> Device:
    names = {each.name for each in dataclasses.fields(Device)}
    facts = {name: value for name, value in content["device"].items() if name in names}
    for name in ("compute_capability", "instruction_sets"):
        if isinstance(facts.get(name), list):
            facts[name] = tuple(facts[name])
    return Device(**facts)
