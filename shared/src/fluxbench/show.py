"""What cells call to show something: `measured()` in a measuring cell, the others in cells that need its results.

uvnote names the folder of each needed cell's artifacts in `UVNOTE_INPUT_<ID>`. No torch, no measuring.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path

import msgspec

from fluxbench import studies, variants
from fluxbench.analysis import history
from fluxbench.core import absent, plain, strict
from fluxbench.core.errors import SetupError, one_sentence
from fluxbench.core.files import write_rows, write_text
from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia
from fluxbench.device.describe import describe
from fluxbench.device.model import Device
from fluxbench.device.peaks import peak
from fluxbench.device.targets import target_name
from fluxbench.environments import cell
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.records.status import FlagKind
from fluxbench.report import figures, headline, tables, trial_runs
from fluxbench.report import results as of_cells
from fluxbench.report.basis import basis
from fluxbench.report.blocks import Block, Facts, Paragraph, Verbatim
from fluxbench.report.display import show
from fluxbench.report.results import Results
from fluxbench.report.sentences import method

_OF_UVNOTE = {"result.json", "stdout.txt", "stderr.txt"}  # beside a cell's artifacts


@plain.goes_on
@one_sentence
def device() -> None:
    """Show what this device is and its peak rates with their source, and write `device.json`."""
    this_device = detect.detect()
    sheet = peak(this_device)
    content = {"device": dataclasses.asdict(this_device), "peak": dataclasses.asdict(sheet) if sheet else None}
    write_text(Path(of_cells.DEVICE), json.dumps(content, indent=1) + "\n")
    if sheet:
        rates = f"{sheet.bf16_tflops:g} TFLOP/s bfloat16, {sheet.memory_gb_s:,g} GB/s"
        peaks = [("peak, dense", rates), ("source", sheet.source)]
    else:
        peaks = [("peak", "unknown: this device is not in fluxbench's table of data sheets")]
    others = nvidia.other_processes(this_device)
    in_use = [("in use by", "; ".join(others))] if others else []
    text = nvidia.nvidia_smi()
    show(Facts([*describe(this_device), *peaks, *in_use]), *([Verbatim(text)] if text else []))


@plain.goes_on
@one_sentence
def results(study: str = "") -> None:
    """Gather what the needed cells measured, with earlier records, for the cells that show it.

    `study` is the notebook's, where its name is another. Writes the files of `report.results.OUTPUTS`.
    """
    device = detect.detect() if plain.is_plain() and not _has(of_cells.DEVICE) else None
    gathered = of_cells.gather(_inputs(), study=study, device=device)
    earlier, notes = history.earlier(Settings.load().root, gathered.device, gathered.notebook)
    gathered = dataclasses.replace(
        gathered,
        reruns=_reruns(gathered.device),
        simulation=_simulation(gathered.device),
        earlier_trials=_earlier_trials(gathered),
        earlier=tuple(earlier),
        notes=(*gathered.notes, *_missing(), *notes),
    )
    of_cells.write(gathered, Path())
    counts = Counter(record.status.value for record in gathered.records)
    rows = [
        ("cells", ", ".join(dict.fromkeys(record.cell for record in gathered.records)) or "none has records"),
        ("records", ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"),
        ("earlier records", f"{len(earlier):,}"),
    ]
    show(Facts(rows), *_notes(gathered))


@plain.goes_on
@one_sentence
def answer() -> None:
    """Show the page's answer, what it holds on, and what could not be read."""
    show(*_answer(_results()))


@plain.goes_on
@one_sentence
def table(name: str) -> None:
    """Show a table of `report/tables/`, and write `<name>.csv` where it has one."""
    _table(name, _results())


@plain.goes_on
@one_sentence
def figure(name: str) -> None:
    """Write a figure of `report/figures/`, `<name>.svg`, with what it plots, `<name>.csv`."""
    _figure(name, _results())


@plain.goes_on
@one_sentence
def study() -> None:
    """Show all that the notebook's study lists: the answer, tables and figures."""
    shown = _results()
    listed = studies.find(shown.study or shown.notebook)
    for name in listed.tables:
        tables.find(name)  # an unknown name is refused before anything is shown
    for name in listed.figures:
        figures.find(name)
    if listed.answer:
        show(*_answer(shown))
    for name in listed.tables:
        _table(name, shown)
    for name in listed.figures:
        _figure(name, shown)


@plain.goes_on
@one_sentence
def measured() -> None:
    """Show what the running measuring cell has measured: times, the device's own rates, or the runs of trials."""
    this = cell.current()
    if this.measures == "trials":
        show(*trial_runs.blocks(Path("trials.json")))
        return
    shown = Results(notebook=this.notebook, study=this.study, device=detect.detect(), records=())
    if this.measures == "rates":
        shown = dataclasses.replace(shown, rates=_written(Path(of_cells.RATES)))
        show(*tables.find("rates").blocks(shown))
        return
    try:
        shown = dataclasses.replace(shown, records=tuple(files.read(Path(f"{this.id}.jsonl"))))
    except (FileNotFoundError, RecordError) as error:
        raise SetupError(f"the records of cell {this.id!r} must be whole, got {error}; measure them first") from error
    paragraphs = [Paragraph(text) for text in method(shown.records)]
    show(*_shared_device(shown.records), *tables.find("timing").blocks(shown), *paragraphs)


def _reruns(device: Device) -> dict[str, object]:
    """Return how far fresh runs of the notebook that the running cell reads differ; empty where it reads none."""
    notebooks = cell.reads_of_current()
    if not notebooks:
        return {}
    from fluxbench.analysis.certificate import rerun_summary  # it loads numpy, which no other results cell needs

    summary = rerun_summary.of_notebook(Settings.load().root, device, notebooks[0])
    reruns: dict[str, object] = msgspec.to_builtins(summary)
    return reruns


def _earlier_trials(gathered: Results) -> tuple[dict[str, object], ...]:
    """Return the published trials of earlier sessions that may be added to the present ones."""
    if not gathered.trials:
        return ()
    from fluxbench.analysis.certificate import tables as independent  # as below
    from fluxbench.analysis.certificate import trials

    folder = Settings.load().root / "reports" / target_name(gathered.device) / gathered.notebook
    return tuple(trials.to_json(one) for one in independent.earlier(folder, trials.read(gathered.trials)))


def _simulation(device: Device) -> dict[str, object]:
    """Return how often verdicts on pages of the notebook that the running cell reads are right; empty as above."""
    notebooks = cell.reads_of_current()
    if not notebooks:
        return {}
    from fluxbench.analysis.simulation.of_target import of_target  # as above

    simulation = of_target(Settings.load().root, target_name(device), notebooks[0])
    simulated: dict[str, object] = msgspec.to_builtins(simulation) if simulation else {}
    return simulated


def _answer(shown: Results) -> list[Block]:
    paragraphs = headline.answer(shown.records, shown.device.name, variants.notes())
    return [*(Paragraph(text, kind="lead") for text in paragraphs), basis(shown), *_notes(shown)]


def _table(name: str, shown: Results) -> None:
    tabled = tables.find(name)
    show(*tabled.blocks(shown))
    if tabled.rows:
        write_rows(Path(f"{name}.csv"), tabled.rows(shown))
    for file, text in tabled.files(shown).items() if tabled.files else ():
        write_text(Path(file), text)


def _figure(name: str, shown: Results) -> None:
    drawing = figures.find(name)(shown)
    if drawing is None:
        show(Paragraph("There is nothing to draw."))
        absent.say(f"{name}.svg", f"{name}.csv")
        return
    write_text(Path(f"{name}.svg"), drawing.svg)
    write_rows(Path(f"{name}.csv"), drawing.rows)


def _notes(shown: Results) -> list[Block]:
    return [Paragraph(note, kind="note") for note in shown.notes]


def _shared_device(records: tuple[Record, ...]) -> list[Block]:
    flags = (record.flagged(FlagKind.SHARED_DEVICE) for record in records)
    others = dict.fromkeys(flag.detail for flag in flags if flag)
    text = "Another process was using the device: {}. Times may be too long."
    return [Paragraph(text.format(other), kind="note") for other in others]


def _written(path: Path) -> dict[str, object]:
    try:
        return strict.read(path, dict[str, object], 1 << 30)
    except (OSError, strict.MalformedError) as error:
        raise SetupError(f"{path.name} must be whole, got {error}; measure the rates first") from error


def _results() -> Results:
    """Return what the results cell gathered. Raises `SetupError` where this cell does not need it."""
    for folder in _inputs():
        if (folder / of_cells.REST).is_file():
            return of_cells.read(folder)
    if plain.is_plain() and (missing := _missing()):
        raise SetupError(missing[0])
    raise SetupError("this cell must need the results cell; add needs=results to its first line")


def _missing() -> list[str]:
    """Return a sentence for each needed cell that left nothing, as one that failed under plain uvnote."""
    sentence = "Cell {} left no results, so this page does not show it; the cell's own output states why."
    return [
        sentence.format(name.removeprefix("UVNOTE_INPUT_").lower())
        for name in _variables()
        if not {path.name for path in Path(os.environ[name]).iterdir()} - _OF_UVNOTE
    ]


def _has(name: str) -> bool:
    """Whether a needed cell left a file of this name."""
    return any((folder / name).is_file() for folder in _inputs())


def _inputs() -> list[Path]:
    """Return the folders of the needed cells' artifacts."""
    return [Path(os.environ[name]) for name in _variables()]


def _variables() -> list[str]:
    return [name for name in os.environ.get("UVNOTE_INPUTS", "").split(",") if name]
