"""A clone of the repository in which notebooks measure in no time: a fake worker, a fake uv, three made-up targets.

Everything else is real: fluxbench runs as a process, builds are its own, and the records follow from their samples.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_workers
from fakes import REPOSITORY, spreads_toml

from fluxbench.device.targets import BetweenRuns

TARGETS = ("cpu-a", "cpu-b", "cpu-c")
NOTEBOOKS = {"one": ("first", "second"), "two": ("first",), "three": ("first",)}  # their measuring cells
_HEADER = """# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
"""
_MEASURING = f"""```python id={{cell}} outputs={{cell}}.jsonl,{{cell}}.samples.json.gz,{{cell}}.control.json
{_HEADER.replace("{", "{{").replace("}", "}}")}# [tool.fluxbench]
# notebook = "{{notebook}}"
# study = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# variants = ["{{variant}}"]
# ///
from fluxbench import bench
import gate
gate.enter(__file__)
bench.measure()
gate.leave(__file__)
```
"""
_SHOWING = """```python id=shown needs=first
print("shown")
```
"""
# What lets a test hold a cell before it measures, and notes what was measured where.
_GATE = """
import os, pathlib, time

def name(path):
    parts = pathlib.Path(path).parts
    fleet = parts.index("targets")
    return f"{parts[fleet + 1]} {parts[fleet + 2]} {pathlib.Path(path).stem}"

def enter(path):
    gates = pathlib.Path(os.environ["GATES"])
    closed, reached = gates / f"{name(path)} closed", gates / f"{name(path)} reached"
    reached.touch()
    while closed.exists():
        time.sleep(0.05)

def leave(path):
    gpus = os.environ.get("SLURM_GPUS_ON_NODE", "0")
    with open(os.environ["MEASURED"], "a") as log:
        print(f"{name(path)} {gpus}", file=log)
"""
# Errors as of rounding to bfloat16, and samples that no two processes share, as verification wants them.
_BELIEVABLE = """
import random
ERRORS |= {"rel_l2": 2e-3, "mse": 4e-6}
plain = emit
def emit(event, **fields):
    for of_workloads in [fields["burst"][kind] for kind in ("samples_ms", "reference_ms") if fields.get("burst")]:
        for name in of_workloads:
            of_workloads[name] = [1.0 + random.random() / 1000 for _ in of_workloads[name]]
    plain(event, **fields)
"""
_UV = """#!/bin/sh
case "$1" in
run) shift; exec "{python}" "$@" ;;
cache) echo "$HOME/.cache/uv" ;;
esac
"""
_SETTINGS = """[any]
locks = ["torch-2.13.0.txt"]
exclude = []
required = ["torch_math", "torch_native"]
SPREADS
[cpu-a]
slurm = { partition = "pa" }
[cpu-b]
slurm = { constraint = "fb" }
[cpu-c]
slurm = { partition = "pc", gpus = 2 }
[cpu-unknown]
slurm = { partition = "nowhere" }
[cpu-far]
slurm = { partition = "pfar" }
[cpu-many]
slurm = { partition = "pc", gpus = 3 }
[cpu-other]
slurm = { partition = "pa", constraint = "fz" }
[cpu-typo]
slurm = { partitions = "pa" }
[gpu]
slurm = { partition = "pb" }
""".replace("SPREADS\n", spreads_toml(BetweenRuns(variant=0.04, workload=0.0, df=5, source="made up")))


@dataclass(frozen=True)
class Clone:
    """The folder of a clone, and the variables with which fluxbench runs in it."""

    folder: Path
    variables: dict[str, str]

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    @property
    def fleet(self) -> Path:
        return self.folder / ".fleet" / "targets"

    @property
    def notebooks(self) -> list[str]:
        return [f"notebooks/{name}.md" for name in NOTEBOOKS]

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of fluxbench to its end."""
        return subprocess.run(
            [sys.executable, "-m", "fluxbench.cli", *arguments],
            **{"cwd": self.folder, "env": self.variables, "capture_output": True, "encoding": "utf-8", **options},
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of fluxbench; `log` returns what it prints."""
        with (self.folder / "front.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "fluxbench.cli", *arguments],
                cwd=self.folder,
                env=self.variables,
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        """Return what the last command printed that was started."""
        return (self.folder / "front.log").read_text(encoding="utf-8")

    def gate(self, cell: str, what: str) -> Path:
        """Return the file that closes a cell's gate, or that shows that it was reached."""
        return self.folder / "gates" / f"{cell} {what}"

    def measured(self) -> list[str]:
        """Return `target notebook cell GPUS` for each time that a cell measured, sorted."""
        log = self.folder / "measured.log"
        return sorted(log.read_text(encoding="utf-8").splitlines()) if log.exists() else []


def until(is_so: Callable[[], object], seconds: float = 240.0) -> None:
    """Wait until something is so, and fail where it never is."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def clone(folder: Path, **variables: str) -> Clone:
    """Make a clone."""
    shared = folder / "shared"
    code = REPOSITORY / "shared" / "src"
    shutil.copytree(code, shared / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "environment").mkdir()
    shutil.copytree(REPOSITORY / "environment" / "locks", folder / "environment" / "locks")
    (folder / "environment" / "targets.toml").write_text(_SETTINGS, encoding="utf-8")
    for name in ("notebooks", "gates", "lib", "reports"):
        (folder / name).mkdir()
    (folder / "lib" / "gate.py").write_text(_GATE, encoding="utf-8")
    for notebook, cells in NOTEBOOKS.items():
        variants = ("torch_math", "torch_native")
        codes = [
            _MEASURING.format(cell=cell, notebook=notebook, variant=variant)
            for cell, variant in zip(cells, variants, strict=False)
        ]
        text = "\n".join((f"# {notebook.title()}", *codes, _SHOWING))
        (folder / "notebooks" / f"{notebook}.md").write_text(text, encoding="utf-8")
    uv = folder / "uv"
    uv.write_text(_UV.format(python=sys.executable), encoding="utf-8")
    uv.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLUXBENCH_", "UV_"))}
    own = {
        "PYTHONPATH": f"{shared / 'src'}:{folder / 'lib'}",
        "UV": str(uv),
        "FLUXBENCH_PYTHON": str(fake_workers.interpreter(folder / "python", _BELIEVABLE)),
        "FLUXBENCH_WORKLOADS": "flux1-512px-t128",
        "GATES": str(folder / "gates"),
        "MEASURED": str(folder / "measured.log"),
    }
    return Clone(folder=folder, variables={**inherited, **own, **variables})
