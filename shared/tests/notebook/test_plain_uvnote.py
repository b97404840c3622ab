"""Plain `uvnote build`: a cell of ours that fails costs no other cell its place on the page."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import REPOSITORY, clean, executable, until

from fluxbench.core import locks

_KEPT = ("latency", "hardware", "sdpa", "flex", "results")
_COPY = """import shutil
shutil.copy("{repository}/reports/cpu/flux/records/flex.jsonl", "flex.jsonl")
"""


def notebook(folder: Path) -> Path:
    """Write the Flux notebook with a few of its cells, of which one takes published records."""
    text = (REPOSITORY / "notebooks" / "flux.md").read_text(encoding="utf-8")
    for cell in re.findall(r"(?ms)^```python id=.*?^```\n", text):
        cell_id = cell.removeprefix("```python id=").split()[0]
        if cell_id not in _KEPT:
            text = text.replace(cell, "")
        elif cell_id == "flex":
            text = text.replace(cell, cell.replace("bench.measure()\n", _COPY.format(repository=REPOSITORY)))
        elif cell_id == "results":
            text = text.replace(cell, re.sub(r"needs=\S+", "needs=hardware,sdpa,flex", cell))
    path = folder / "notebooks" / "flux.md"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


def processes_of(script: str) -> list[int]:
    """Return the Python processes of a script, in the order in which they began.

    So is a fork of one of them that is about to become another program.
    """
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if arguments and b"python" in arguments[0] and any(each.endswith(script.encode()) for each in arguments):
                began = int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
                found.append((began, int(entry.name)))
        except OSError:
            continue
    return [pid for _, pid in sorted(found)]


def is_locked(path: Path) -> bool:
    if path.exists():
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def test_a_cell_killed_by_hand_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)
    executable(tmp_path / "bin" / "uv", "").write_text(f'#!/bin/sh\n"{sys.executable}" "$2"\nexit $?\n')
    hanging = executable(tmp_path / "python", "import time; time.sleep(600)")
    scratch = tmp_path / "cache" / "runs" / "of_a_cell"
    scratch.mkdir(parents=True)
    variables = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY / "shared" / "src"),
        "FLUXBENCH_CACHE": str(tmp_path / "cache"),
        "FLUXBENCH_PYTHON": str(hanging),
    }
    script = str(notebook(tmp_path).parent / ".uvnote/cells/sdpa.py")
    command = [sys.executable, "-c", "from uvnote.cli import main; main()", "build", "notebooks/flux.md"]
    build = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert until(lambda: is_locked(tmp_path / "cache" / "runs.lock"))
        with locks.scratch(tmp_path / "cache"):  # a `fluxbench build` begins beside it
            assert scratch.exists()
        _, call, *_ = processes_of(script)
        os.kill(call, signal.SIGKILL)
        build.communicate(timeout=300)
    finally:
        for pid in processes_of(script):
            os.kill(pid, signal.SIGKILL)
        build.kill()
    page = (tmp_path / "site" / "flux.html").read_text(encoding="utf-8")
    assert "fluxbench: bench.measure was ended by SIGKILL; uvnote keeps this until the cell changes" in page
    assert "Cell sdpa left no results, so this page does not show it" in page
    assert [cell_id for cell_id in _KEPT if f'id="cell-{cell_id}"' not in page] == []
    latency = page.partition('id="cell-latency"')[2].partition('id="cell-hardware"')[0]
    assert "<svg" in latency
    assert processes_of(script) == []
