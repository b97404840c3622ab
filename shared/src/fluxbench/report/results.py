"""What a page is drawn from: the records of all measuring cells and what lies beside them.

The `results` cell gathers it from the cells that it needs; every showing cell needs that one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fluxbench import studies
from fluxbench.analysis.certificate import trials as trial_runs
from fluxbench.bench.events import ProbeResult
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_text
from fluxbench.device.model import Device
from fluxbench.device.peaks import Peak, peak
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Workload
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.report import probes
from fluxbench.report.probes import Probes

RECORDS, EARLIER, REST = OUTPUTS = ("results.jsonl", "earlier.jsonl", "results.json")
RATES, CAPABILITIES, DEVICE, TRIALS = "rates.json", "*.capabilities.json", "device.json", "trials.json"
RATES_OF_SCHEMA_1 = "ceilings.json"
RERUNS, SIMULATION = "reruns.json", "simulation.json"  # of other pages' records too
PUBLISHED_VARIABLE = "FLUXBENCH_PUBLISHED"  # the folder of a page's records, where that is drawn again
_kept: dict[Path, Results] = {}  # of the folder that was kept last


@dataclass(frozen=True, kw_only=True)
class Results:
    """All that the showing cells of a notebook show."""

    notebook: str
    device: Device
    records: tuple[Record, ...]
    rates: Mapping[str, Any] = field(default_factory=dict)  # the device's own, see `timing.device_rates`; or a reason
    capabilities: Probes = field(default_factory=dict)  # what came of trying them
    trials: Mapping[str, Any] = field(default_factory=dict)  # see `analysis.certificate.trials`
    earlier_trials: tuple[Mapping[str, Any], ...] = ()  # of earlier sessions, as `trials`
    reruns: Mapping[str, Any] = field(default_factory=dict)  # see `analysis.certificate.reruns`
    simulation: Mapping[str, Any] = field(default_factory=dict)  # see `analysis.simulation.pages`
    earlier: tuple[Record, ...] = ()  # published ones and earlier local ones, of any device
    notes: tuple[str, ...] = ()  # a sentence for each thing that could not be read
    study: str = ""  # of the notebook, where its name is another

    @property
    def peak(self) -> Peak | None:
        """The device's data-sheet rates; None where it is not in the table."""
        return peak(self.device)

    @property
    def rate(self) -> str:
        """The unit of throughput: "GB/s" where the study says so, "TFLOP/s" elsewhere and without a study."""
        try:
            return studies.find(self.study or self.notebook).rate
        except SetupError:
            return "TFLOP/s"

    def peak_rate(self, workload: Workload) -> float | None:
        """Return the data-sheet rate for a workload in the unit of `rate`; None where it is not known.

        It is that of all devices that share a call.
        """
        if self.peak is None:
            return None
        if self.rate == "GB/s":
            return self.peak.memory_gb_s * workload.ranks
        return self.peak.bf16_tflops * workload.ranks if BYTES_PER_ELEMENT.get(workload.dtype) == 2 else None


class _Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What `REST` holds: all but the records."""

    notebook: str
    study: str
    device: Device
    rates: dict[str, Any]
    capabilities: dict[str, dict[str, ProbeResult]]
    trials: dict[str, Any]
    earlier_trials: tuple[dict[str, Any], ...]
    reruns: dict[str, Any]
    simulation: dict[str, Any]
    notes: tuple[str, ...]


class _Facts(msgspec.Struct, frozen=True):
    """What of `device.json` is read."""

    device: Device


def gather(folders: Sequence[Path], *, study: str = "", device: Device | None = None) -> Results:
    """Return what the measuring cells and the device cell left in their folders; no earlier records, no reruns.

    The notebook is that of the records, or the study where there are none. What is missing or damaged is left out with
    a note. Raises `SetupError` where no folder holds a whole `device.json` and no device is given.
    """
    problems: list[str] = []
    records: list[Record] = []
    rates: dict[str, Any] = {}
    outcomes: dict[str, Mapping[str, ProbeResult]] = {}
    trials: dict[str, Any] = {}
    for folder in folders:
        for path in files.paths(folder):
            try:
                records += files.read(path)
            except (OSError, RecordError) as error:
                problems.append(f"{path.name} cannot be read, so its records are missing here: {error}.")
        for path in sorted(folder.glob(CAPABILITIES)):
            try:
                outcomes |= probes.read(path)
            except (OSError, RecordError) as error:
                problems.append(f"{path.name} cannot be read, so what was tried is missing here: {error}.")
        for path in (folder / RATES, folder / RATES_OF_SCHEMA_1):
            try:
                rates |= files.read_json(path, dict[str, Any], "the device's own rates")
            except FileNotFoundError:
                continue
            except (OSError, RecordError) as error:
                problems.append(f"{path.name} cannot be read, so the device's own rates are missing here: {error}.")
        for path in (folder / TRIALS, folder / f"{TRIALS}.gz"):  # as measured, and as published
            try:
                trials = _trials(path)
            except FileNotFoundError:
                continue
            except (OSError, RecordError) as error:
                problems.append(f"{path.name} cannot be read, so the trials are missing here: {error}.")
    return Results(
        notebook=next((record.notebook for record in records), study),
        study=study,
        device=device or _device(folders),
        records=tuple(records),
        rates=rates,
        capabilities=outcomes,
        trials=trials,
        notes=tuple(problems),
    )


def _device(folders: Iterable[Path]) -> Device:
    """Return the device that the device cell found. Raises `SetupError` where there is no whole file of it."""
    for folder in folders:
        path = folder / DEVICE
        if path.is_file():
            try:
                return files.read_json(path, _Facts, "the device").device
            except (OSError, RecordError) as error:
                raise SetupError(f"{DEVICE} must describe the device: {error}; run the cell that wrote it") from error
    raise SetupError(f"the results cell must need the cell that writes {DEVICE}; add it to its needs=")


def _trials(path: Path) -> dict[str, Any]:
    """Return what a file of trials holds. Raises `OSError`, and `RecordError` where it is not whole."""
    content = files.read_json(path, dict[str, Any], "the runs of trials")
    trial_runs.read(content)
    return content


def write(results: Results, folder: Path) -> None:
    """Write results to the files of `OUTPUTS` in a folder. Raises `OSError`."""
    files.write(folder / RECORDS, results.records)
    files.write(folder / EARLIER, results.earlier)
    rest = {field.name: getattr(results, field.name) for field in msgspec.structs.fields(_Rest)}
    write_text(folder / REST, msgspec.json.encode(rest).decode() + "\n")


def keep(folder: Path) -> None:
    """Read a folder's results for forks of this process, which get these from `read`; those kept before are dropped.

    The folder must not change any more. Raises as `read` does.
    """
    if folder not in _kept:
        _kept.clear()
        _kept[folder] = read(folder)


def read(folder: Path) -> Results:
    """Return what `write` wrote. Raises `SetupError` where it is missing or damaged."""
    if folder in _kept:
        return _kept[folder]
    try:
        rest = files.read_json(folder / REST, _Rest, "the results")
        return Results(
            records=tuple(files.read(folder / RECORDS)),
            earlier=tuple(files.read(folder / EARLIER)),
            **msgspec.structs.asdict(rest),
        )
    except (OSError, RecordError) as error:
        raise SetupError(f"the results of the results cell must be whole, got {error}; run it again") from error
