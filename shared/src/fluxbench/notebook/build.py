"""Build a notebook with uvnote, and say whether the page is what was asked for: uvnote itself always exits 0."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fluxbench import bench, cell, environments, hardware, targets, variants
from fluxbench.hardware import Device
from fluxbench.notebook.document import Document, load, records_in
from fluxbench.notebook.freshness import drop_stale
from fluxbench.records import Record, Status
from fluxbench.settings import Settings, SetupError
from fluxbench.targets import Target


@dataclass(frozen=True, kw_only=True)
class Built:
    """A page, the records that it was drawn from, and what is wrong with it."""

    page: Path
    document: Document
    target: Target
    records: tuple[Record, ...]
    problems: tuple[str, ...]  # one sentence each; none where the page is what was asked for


def build(notebook: Path, settings: Settings, output: Path) -> Built:
    """Run what is not fresh, draw the page into `output`, and return it with its problems.

    Raises `SetupError` where it cannot be begun: the notebook is none, another build runs, uv or uvnote is missing.
    """
    document = load(notebook)
    uvnote = shutil.which("uvnote") or str(Path(sys.executable).with_name("uvnote"))
    if not Path(uvnote).is_file():
        raise SetupError("uvnote must be installed beside fluxbench, got none; run `make setup`")
    uv = environments.uv()
    device = hardware.detect()
    target = targets.of(device, settings.root)
    with _alone(document):
        for cell_id, reasons in drop_stale(document, device, settings).items():
            print(f"cell {cell_id} is run again: {'; '.join(reasons)}")
        _prepare(document, device, target, settings)
        variables = {**os.environ, **environments.uv_variables(settings)}
        variables.setdefault("UV_CACHE_DIR", _uv_cache(uv))
        variables["PATH"] = os.pathsep.join((str(Path(uv).parent), variables.get("PATH", "")))
        # The interpreter of the cells is this one: what it is asked for is in its own environment.
        variables["UV_PYTHON"] = getattr(sys, "_base_executable", sys.executable)
        done = subprocess.run([uvnote, "build", str(notebook), "--output", str(output)], env=variables)
        return _inspect(document, target, output, done.returncode)


def _prepare(document: Document, device: Device, target: Target, settings: Settings) -> None:
    """Build the environments of cells that are to run before uvnote's 300 s a cell begin: torch is gigabytes on a GPU.

    What cannot be had is left to the cell, whose records say why.
    """
    fresh = document.results()
    shapes = bench.default_workloads(device, settings)
    for code in document.cells:
        if code.id in fresh or not document.is_measuring(code):
            continue
        named = [variant for variant in variants.REGISTRY if any(f'"{name}"' in code.code for name in variant.names)]
        if named and all(variant.supports(device, shape) for variant in named for shape in shapes):
            continue
        with contextlib.suppress(SetupError):
            environments.prepare(cell.parse(code.code, code.id).packages, target, settings)


def _inspect(document: Document, target: Target, output: Path, returncode: int) -> Built:
    page = output / f"{document.path.stem}.html"
    problems = []
    if returncode or not page.is_file():
        problems.append(f"uvnote ended with exit code {returncode} and drew no page; read its messages above")
    results = document.results()
    found: list[Record] = []
    unrun = [code.id for code in document.cells if code.id not in results]
    for code in document.cells:
        if code.id in unrun:
            continue
        folder, result = results[code.id]
        if not result.get("success"):
            problems.append(f"cell {code.id} failed: {_said(result.get('stderr', ''))}")
        found += records_in(folder)
    if unrun:
        problems.append(f"not run, because a cell before failed: {', '.join(unrun)}")
    problems += _unexpected(found, target, document)
    return Built(page=page, document=document, target=target, records=tuple(found), problems=tuple(problems))


def _unexpected(found: list[Record], target: Target, document: Document) -> list[str]:
    """Say which variants that the target expects of this notebook are not PASSED, one sentence a reason."""
    why: dict[str, list[str]] = {}
    measured = "".join(code.code for code in document.cells if document.is_measuring(code))
    for variant in target.expects:
        its = [record for record in found if record.variant == variant]
        if not its and f'"{variant}"' in measured:
            why.setdefault("no record", []).append(variant)
        for record in its:
            if record.status is not Status.PASSED:
                why.setdefault(f"{record.status}: {record.reason}", []).append(f"{variant} at {record.workload.name}")
    return [
        f"{', '.join(who[:3])}{f' and {len(who) - 3} more' if len(who) > 3 else ''}: {reason}"
        for reason, who in why.items()
    ]


def _said(stderr: str) -> str:
    """Return why a cell failed: what it says itself last, or what kept uv from starting it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    if any(line.startswith("error: ") for line in lines) and not lines[-1].startswith("fluxbench: "):
        return environments.explain(stderr)
    return lines[-1].removeprefix("fluxbench: ")


@contextmanager
def _alone(document: Document) -> Iterator[None]:
    """Hold the notebook's folder: two builds at once there mix up each other's cells."""
    document.work.mkdir(exist_ok=True)
    with (document.work / "fluxbench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another build runs in {document.path.parent}; wait until it ends") from error
        yield


def _uv_cache(uv: str) -> str:
    return subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
