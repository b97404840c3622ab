"""A made-up machine whose page grows, and what a page says of its build."""

from __future__ import annotations

import re
import sys

from fakes import REPOSITORY
from notebooks import MEASURING, Machine, visible

HEADER = '# /// script\n# dependencies = ["fluxbench"]\n# ///\n'
# Each measuring cell keeps the page that it finds; a gathering cell lists what it was given, and another shows that.
FIND = """import pathlib, shutil, time
page = pathlib.Path(os.environ["PAGE"])
while not (pattern := os.environ.get("AWAITED")) or pattern not in page.read_text():
    if not pattern or "{cell}" == "first":
        break
    time.sleep(0.05)
if page.exists():
    shutil.copy(page, os.path.join(os.environ["LABORATORY"], "before-{cell}.html"))
print("order", os.environ["FLUXBENCH_ORDER"])
"""
GATHER = """import json, os, pathlib, sys
folders = [pathlib.Path(os.environ[name]) for name in os.environ.get("UVNOTE_INPUTS", "").split(",") if name]
lines = [json.loads(line) for folder in folders for path in folder.glob("*.jsonl") for line in path.open()]
text = " ".join(f"{line['variant']}={line['timings']['sustained']['median_ms']}" for line in lines)
if os.environ.get("REFUSED") == text:
    sys.exit("fluxbench: too little")
pathlib.Path("gathered.txt").write_text(text)
"""
SHOW = """import os, pathlib
print("shown", pathlib.Path(os.environ["UVNOTE_INPUT_GATHERED"], "gathered.txt").read_text())
"""


def grow(machine: Machine) -> Machine:
    """Return a machine with two measuring cells and two that show, which use fluxbench."""
    patch = machine.monkeypatch
    patch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))
    patch.setenv("PAGE", str(machine.output / "made_up.html"))
    uv = machine.folder / "bin" / "uv"
    uv.write_text(f'#!/bin/sh\necho "$*" >> "$UV_LOG"\nshift\n"{sys.executable}" "$@"\n', encoding="utf-8")
    patch.setenv("UV_CACHE_DIR", str(machine.folder))
    measuring = {
        cell: MEASURING.format(variant=variant).replace("bench.measure()", FIND.format(cell=cell) + "bench.measure()")
        for cell, variant in (("first", "torch_math"), ("second", "torch_native"))
    }
    machine.notebook.write_text(
        f"# Made up\n```python id=shown needs=gathered\n{HEADER}{SHOW}```\n"
        f"```python id=first outputs=first.jsonl\n{measuring['first']}```\n"
        f"```python id=second outputs=second.jsonl\n{measuring['second']}```\n"
        f"```python id=gathered needs=first,second outputs=gathered.txt\n{HEADER}{GATHER}```\n",
        encoding="utf-8",
    )
    return machine


def before(machine: Machine, cell: str) -> str:
    """Return the page that a cell found when it began to measure."""
    return (machine.folder / "laboratory" / f"before-{cell}.html").read_text(encoding="utf-8")


def shown(page: str, cell: str) -> str:
    return visible(re.split(f'id="cell-{cell}">', page)[1])


def status(page: str) -> str:
    """Return what a page says of its build, without the time."""
    found = re.search('role="status">([^<]*)', page)
    return re.sub(r"\d{4}-\S+ \S+ UTC", "NOW", found[1]) if found else ""


UNFINISHED = "This page of NOW is not finished, and reloads itself until it is."
RELOAD = '<meta http-equiv="refresh" content="10">'
