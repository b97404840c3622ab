"""Runs one cell of a notebook as uvnote runs it, and keeps what it gave."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from uvnote.parser import CodeCell

from fluxbench.analysis import history
from fluxbench.core import absent, progress
from fluxbench.core.errors import SetupError
from fluxbench.core.files import read_regular
from fluxbench.core.settings import UNTIL, Settings
from fluxbench.device import nvidia
from fluxbench.environments import cell, uv
from fluxbench.notebook import exclusive, outputs, runner, scripts
from fluxbench.notebook.document import Document, attributes_sha256, input_variable
from fluxbench.notebook.outputs import OutputError
from fluxbench.notebook.residents import Residents
from fluxbench.notebook.store import Result, Run, Store
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.report import display

CELL_LIMIT_S = 1800.0  # seconds, where no setting says otherwise
_DRAWS_S = 60.0  # that are left of a build's limit to end its cells and to draw, or a quarter of it
_DISPLAY_BYTES = 1 << 22  # of markup that is kept; of more, the text is shown in its place
_DRAWN_RESULTS = 3  # of each showing cell, the good ones; they can be drawn again
_HISTORY_RESULTS = 50  # of each cell: the variable is one string, and Linux takes none of more than 128 KiB
_PROGRESS, _DISPLAY, _ABSENT = ".fluxbench-progress", ".fluxbench-display.html", ".fluxbench-absent"


def variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that every cell of a build gets. Raises `SetupError` where uv is missing."""
    program = uv.find()
    common = {**os.environ, **uv.variables(settings), "PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1"}
    if "UV_CACHE_DIR" not in common:  # a cell's HOME is an empty folder, and so would be the cache in it
        done = subprocess.run([program, "cache", "dir"], capture_output=True, text=True)
        if done.returncode:
            raise SetupError(
                f"uv must start, got exit code {done.returncode} from {program}: {done.stderr.strip()[:200]}"
            )
        common["UV_CACHE_DIR"] = done.stdout.strip()
    limit_s = settings.cell_limit_s or CELL_LIMIT_S
    common |= {
        "PATH": os.pathsep.join((str(Path(program).parent), common.get("PATH", ""))),
        # Cells run with this interpreter: the packages that they ask for are in environments of their own.
        "UV_PYTHON": getattr(sys, "_base_executable", sys.executable),
        "FLUXBENCH_CELL_LIMIT_S": f"{limit_s:.0f}",
        "FLUXBENCH_CACHE": str(settings.cache.absolute()),  # a cell runs in another folder
        nvidia.BUILD: str(os.getpid()),
    }
    common.pop(UNTIL, None)  # that of another build
    if settings.limit_s:
        common[UNTIL] = f"{time.monotonic() + settings.limit_s - min(_DRAWS_S, settings.limit_s / 4):.3f}"
    if settings.wheels:
        common["FLUXBENCH_WHEELS"] = str(settings.wheels.absolute())
    return common


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the cells of a build run and what they leave is kept."""

    document: Document
    store: Store  # of the results, which also holds the earlier ones
    variables: Mapping[str, str]  # that every cell gets
    residents: Residents
    added_to: Store  # `store`, or another one for results that do not last


def run_cell(
    code: CodeCell,
    place: Place,
    inputs: Mapping[str, Result],
    depends: Fingerprint,
    tick: Callable[[progress.Progress], None],
    *,
    gives_way: bool = False,
    sharing: int = 1,
    **more: str,
) -> Result:
    """Run a cell with the results of the cells that it needs, and keep its result, good or failed.

    `tick` is called a few times a second with how far the cell is. A cell that is drawn while others measure is to be
    one that `gives_way`. `sharing` is how many cells may run that share the device: this one may wait for each as long
    as a cell may take. `more` variables are for this cell alone. Raises `OSError` where the result cannot be kept, and
    whatever `tick` raises.
    """
    document, ran_at = place.document, datetime.now(UTC).isoformat(timespec="seconds")
    script, launcher = scripts.write(code, document), scripts.launcher(code, document)
    uv.mend(launcher or script, place.variables)
    resident = place.residents.of(launcher) if launcher and not document.is_measuring(code) else None
    if resident:
        with exclusive.cell_folder(document.work, resident.folder) as folder:
            own = _own(folder, inputs, place) | more
            ended = resident.run(script, folder, own, _limit_s(place), _said(folder, tick), gives_way=gives_way)
            if ended:
                return _keep(code, place, inputs, depends, folder, ended, ran_at)
    with exclusive.cell_folder(document.work) as folder:
        command = [uv.find(), "run", *([str(launcher)] if launcher else []), str(script)]
        variables = {**place.variables, **_own(folder, inputs, place), **more}
        ended = runner.run(command, folder, variables, sharing * _limit_s(place), _said(folder, tick))
        return _keep(code, place, inputs, depends, folder, ended, ran_at)


def _limit_s(place: Place) -> float:
    return float(place.variables["FLUXBENCH_CELL_LIMIT_S"])


def _said(folder: Path, tick: Callable[[progress.Progress], None]) -> Callable[[], None]:
    return lambda: tick(replace(progress.read(folder / _PROGRESS), folder=folder))


def _own(folder: Path, inputs: Mapping[str, Result], place: Place) -> dict[str, str]:
    """Return the variables of a cell that runs in this folder, where its HOME is made."""
    (folder / "home").mkdir()
    limit_s = _limit_s(place)
    return {
        # uv makes the cell's own environment first: its time is not the measurement's.
        "FLUXBENCH_CELL_LIMIT_S": f"{limit_s - min(120.0, limit_s / 4):.0f}",
        **_inputs(inputs),
        "HOME": str(folder / "home"),
        progress.VARIABLE: str(folder / _PROGRESS),
        display.VARIABLE: str(folder / _DISPLAY),
        absent.VARIABLE: str(folder / _ABSENT),
        history.VARIABLE: os.pathsep.join(map(str, _earlier(inputs, place.document, place.store))),
    }


def _keep(
    code: CodeCell,
    place: Place,
    inputs: Mapping[str, Result],
    depends: Fingerprint,
    folder: Path,
    ended: runner.Ended,
    ran_at: str,
) -> Result:
    """Keep what a cell left in its folder."""
    failure = _failure(ended)
    names: list[str] = []
    if not failure:
        try:
            names = outputs.of_cell(code, folder, absent.read(folder / _ABSENT))
        except OutputError as error:
            failure = str(error)
    run = Run(
        success=failure is None,
        stdout=ended.stdout,
        stderr=ended.stderr,
        duration=None if progress.read(folder / _PROGRESS).partly else ended.duration_s,
        artifacts={},
        failure=failure,
        ran_at=ran_at,
        depends={**depends, "attributes": attributes_sha256(code)},
        inputs={need: result.number for need, result in inputs.items()},
        contents={need: result.run.sha256 for need, result in inputs.items() if result.run.sha256},
    )
    return place.added_to.add(
        code.id,
        run,
        folder,
        names,
        _display(folder / _DISPLAY) if not failure and cell.uses_fluxbench(code.code) else None,
        good=None if place.document.is_measuring(code) else _DRAWN_RESULTS,
    )


def _inputs(inputs: Mapping[str, Result]) -> dict[str, str]:
    """Return the variables in which uvnote gives a cell the folders of the cells that it needs."""
    folders = {input_variable(need): str(result.folder.resolve()) for need, result in inputs.items()}
    return {**folders, "UVNOTE_INPUTS": ",".join(folders)} if folders else {}


def _earlier(inputs: Mapping[str, Result], document: Document, store: Store) -> Iterator[Path]:
    """Yield the folders of earlier good results of the needed cells that measure, the last first."""
    for need, result in inputs.items():
        if document.is_measuring(document.find(need)):
            earlier = (good.folder for good in store.good(result.cell) if good != result)
            yield from itertools.islice(earlier, _HISTORY_RESULTS)


def _display(path: Path) -> str | None:
    """Return the markup that a cell displays; None where it left none, or more than is kept."""
    try:
        return read_regular(path, _DISPLAY_BYTES).decode("utf-8") or None
    except (OSError, UnicodeDecodeError):
        return None


def _failure(ended: runner.Ended) -> str | None:
    """Return in a sentence why a cell failed: its own last line, or what kept uv from starting it."""
    if not ended.failure:
        return None
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    if not lines or ended.exit_code is None:
        return ended.failure
    if lines[-1].startswith("fluxbench: "):
        return lines[-1].removeprefix("fluxbench: ")
    has_traceback = "Traceback (most recent" in ended.stderr
    is_of_uv = any(line.startswith(("error: ", "× ")) for line in lines) and not has_traceback
    return (uv.explain(ended.stderr) if is_of_uv else "") or f"{ended.failure}: {lines[-1][:300]}"
