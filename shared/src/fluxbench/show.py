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

from fluxbench import studies
from fluxbench.analysis import history
from fluxbench.core import absent, plain
from fluxbench.core.errors import SetupError, one_sentence
from fluxbench.core.files import write_rows, write_text
from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.environments import cell
from fluxbench.records import files
from fluxbench.report import device_facts, figures, of_measuring, tables
from fluxbench.report import results as of_cells
from fluxbench.report.basis import measured_with
from fluxbench.report.blocks import Block, Facts, Paragraph
from fluxbench.report.display import show
from fluxbench.report.picture import Picture
from fluxbench.report.results import Results

_OF_UVNOTE = {"result.json", "stdout.txt", "stderr.txt"}  # beside a cell's artifacts


@plain.goes_on
@one_sentence
def device() -> None:
    """Show what this device is and its peak rates with their source, and write `device.json`."""
    found = detect.detect()
    content = device_facts.content(found, nvidia.other_processes(found), nvidia.nvidia_smi())
    write_text(Path(of_cells.DEVICE), json.dumps(content, indent=1) + "\n")
    show(*device_facts.blocks(content))


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
    if gathered.trials:
        runs, sessions = len(gathered.trials["runs"]), len(gathered.earlier_trials)
        rows = [("runs of trials", f"{runs}"), ("earlier sessions", f"{sessions}")]
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
    show(*of_measuring.blocks(cell.current(), detect.detect(), Path()))


def _reruns(device: Device) -> dict[str, object]:
    """Return how far fresh runs of the notebook that the running cell reads differ; empty where it reads none."""
    notebooks = cell.reads_of_current()
    if not notebooks:
        return {}
    if published := _published(of_cells.RERUNS, "how far runs differ"):
        return published
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
    if published := _published(of_cells.SIMULATION, "the simulated pages"):
        return published
    from fluxbench.analysis.simulation.of_target import of_target  # as above

    simulation = of_target(Settings.load().root, target_name(device), notebooks[0])
    simulated: dict[str, object] = msgspec.to_builtins(simulation) if simulation else {}
    return simulated


def _published(name: str, what: str) -> dict[str, object] | None:
    """Return what a page that is drawn again has published; None where it has not, or is drawn for the first time.

    It follows from records of other pages, or of another machine, which have changed since.
    """
    folder = os.environ.get(of_cells.PUBLISHED_VARIABLE)
    path = Path(folder, name) if folder else None
    return files.read_json(path, dict[str, object], what) if path and path.is_file() else None


def _answer(shown: Results) -> list[Block]:
    from fluxbench.report import verdict  # it loads matplotlib, which no measuring cell needs

    return [*verdict.blocks(shown.records, shown.device.name), measured_with(shown), *_notes(shown)]


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
    file = f"{name}.svg"
    write_text(Path(file), drawing.svg)
    write_rows(Path(f"{name}.csv"), drawing.rows)
    show(Picture(file=file, wide=drawing.svg, narrow=drawing.narrow, caption=drawing.caption, details=drawing.details))


def _notes(shown: Results) -> list[Block]:
    return [Paragraph(note, kind="note") for note in shown.notes]


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
