"""Run one cell of a notebook and keep what it gave, in the way that uvnote runs it."""

from __future__ import annotations

import contextlib
import itertools
import locale
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from uvnote.executor import create_cell_script
from uvnote.parser import CodeCell

from fluxbench.analysis import history
from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.environments import prepare as environments
from fluxbench.notebook import runner
from fluxbench.notebook.document import Document, attributes_sha256, unsafe_artifact
from fluxbench.notebook.store import Result, Store
from fluxbench.records.fingerprint import Fingerprint

CELL_LIMIT_S = 1200.0
_REMEMBERED = 50  # of each cell: the variable is one string, and Linux takes none of more than 128 KiB
_PROGRESS = ".fluxbench-progress"


def variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that every cell of a build gets. Raises `SetupError` where uv is missing."""
    uv = environments.uv()
    found = {**os.environ, **environments.uv_variables(settings), "PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1"}
    if "UV_CACHE_DIR" not in found:  # a cell's HOME is an empty folder, and so would be the cache in it
        done = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True)
        if done.returncode:
            raise SetupError(f"uv must start, got exit code {done.returncode} from {uv}: {done.stderr.strip()[:200]}")
        found["UV_CACHE_DIR"] = done.stdout.strip()
    found["PATH"] = os.pathsep.join((str(Path(uv).parent), found.get("PATH", "")))
    # The interpreter of the cells is this one: what it is asked for is in its own environment.
    found["UV_PYTHON"] = getattr(sys, "_base_executable", sys.executable)
    limit_s = settings.cell_limit_s or CELL_LIMIT_S
    found["FLUXBENCH_CELL_LIMIT_S"] = f"{limit_s:.0f}"
    found["FLUXBENCH_CACHE"] = str(settings.cache.absolute())  # a cell runs in another folder
    if settings.wheels:
        found["FLUXBENCH_WHEELS"] = str(settings.wheels.absolute())
    return found


def run_cell(
    code: CodeCell,
    document: Document,
    store: Store,
    inputs: Mapping[str, Result],
    depends: Fingerprint,
    environment: Mapping[str, str],
    tick: Callable[[progress.Progress], None],
) -> Result:
    """Run a cell with the results of the cells that it needs, and keep its result, good or failed.

    `tick` is told a few times a second how far it is. Raises `OSError` where the result cannot be kept.
    """
    ran_at = datetime.now(UTC).isoformat(timespec="seconds")
    with in_utf8():
        script = create_cell_script(code, document.path.parent).resolve()
    limit_s = float(environment["FLUXBENCH_CELL_LIMIT_S"])
    with tempfile.TemporaryDirectory(prefix="fluxbench-cell-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "home").mkdir()
        own = {
            **environment,
            # uv makes the cell's own environment first: what it takes is not the measurement's.
            "FLUXBENCH_CELL_LIMIT_S": f"{limit_s - min(120.0, limit_s / 4):.0f}",
            **_inputs(inputs),
            "HOME": str(folder / "home"),
            progress.VARIABLE: str(folder / _PROGRESS),
            history.VARIABLE: os.pathsep.join(
                str(each.folder)
                for result in inputs.values()
                if any(name.endswith(".jsonl") for name in result.artifacts)
                for each in itertools.islice((it for it in store.good(result.cell) if it != result), _REMEMBERED)
            ),
        }
        ran = runner.run(
            [environments.uv(), "run", str(script)],
            folder,
            own,
            limit_s,
            lambda: tick(progress.read(folder / _PROGRESS)),
        )
        failure = _failure(ran)
        artifacts = {} if failure else _artifacts(folder, code)
        unsafe = next((reason for each in artifacts if (reason := unsafe_artifact(each))), None)
        return store.add(
            code.id,
            artifacts={} if unsafe else artifacts,
            stdout=ran.stdout,
            stderr=ran.stderr,
            duration_s=ran.duration_s,
            failure=failure or unsafe,
            ran_at=ran_at,
            depends={**depends, "attributes": attributes_sha256(code)},
            inputs={need: result.number for need, result in inputs.items()},
        )


@contextlib.contextmanager
def in_utf8() -> Iterator[None]:
    """Let uvnote write UTF-8 whatever the locale: it opens files without an encoding."""
    before = locale.setlocale(locale.LC_CTYPE)
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def _inputs(inputs: Mapping[str, Result]) -> dict[str, str]:
    """Return the variables by which uvnote tells a cell the folders of the cells that it needs."""
    folders = {
        "UVNOTE_INPUT_" + "".join(letter.upper() if letter.isalnum() else "_" for letter in need): str(
            result.folder.resolve()
        )
        for need, result in inputs.items()
    }
    return {**folders, "UVNOTE_INPUTS": ",".join(folders)} if folders else {}


def _artifacts(folder: Path, code: CodeCell) -> dict[str, Path]:
    """Return the files that a cell left: those that it declares, or all that are not hidden where it declares none."""
    if code.outputs:
        files = [folder / name for name in code.outputs]
    else:
        files = [file for file in sorted(folder.rglob("*")) if not _is_hidden(file.relative_to(folder))]
    return {file.relative_to(folder).as_posix(): file for file in files if file.is_file() and not file.is_symlink()}


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _failure(ran: runner.Ran) -> str | None:
    """Say in a sentence why a cell failed: what it says itself last, or what kept uv from starting it."""
    if not ran.failure:
        return None
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    if not lines or not re.search("exit code", ran.failure):
        return ran.failure
    if lines[-1].startswith("fluxbench: "):
        return lines[-1].removeprefix("fluxbench: ")
    said = f"{ran.failure}: {lines[-1][:300]}"
    is_of_uv = any(line.startswith(("error: ", "× ")) for line in lines) and "Traceback (most recent" not in ran.stderr
    return (environments.explain(ran.stderr) if is_of_uv else "") or said
