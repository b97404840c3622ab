"""A made-up machine for the tests of notebooks: a GPU behind NVML's module, a folder, settings, a notebook and a uv.

Cells run for real, in processes of this interpreter. Their `bench` copies the records that a test prepared, as measured
on the machine as it is then, and shows them.
"""

from __future__ import annotations

import contextlib
import html
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_nvml import fake_nvml, gpu
from fakes import REPOSITORY, clean
from sample_records import record

from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_text
from fluxbench.core.settings import Settings
from fluxbench.device import cpu, detect, system
from fluxbench.notebook.build import Built, build
from fluxbench.notebook.document import load
from fluxbench.notebook.freshness import Freshness, check, depends_on
from fluxbench.notebook.listeners import Listener
from fluxbench.notebook.store import Result, Store
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import Record

Capture = pytest.CaptureFixture[str]
DRIVER, NEWER = "580.65.06", "580.159.04"
MEASURING = """# /// script
# [tool.fluxbench]
# notebook = "made_up"
# study = "flux"
# packages = ["torch==2.13.0"]
# variants = ["{variant}"]
# ///
import os, sys
sys.path.insert(0, os.environ["LABORATORY"])
import bench
bench.measure()
"""
SHOWING = """import os, sys
sys.path.insert(0, os.environ["LABORATORY"])
import bench
bench.show("{needed}")
"""
# Two measuring cells and a showing one of each. A target that is not known requires torch_math and torch_native.
NOTEBOOK = f"""# Made up

```python id=first outputs=first.jsonl,first.control.json
{MEASURING.format(variant="torch_math")}```

```python id=second outputs=second.jsonl,second.control.json
{MEASURING.format(variant="torch_native")}```

```python id=figure needs=first outputs=figure.svg,table.csv
{SHOWING.format(needed="first")}```

```python id=other needs=second
{SHOWING.format(needed="second")}```
"""
ALL = ["first", "second", "figure", "other"]
_BENCH = """
import json, os, sys

def measure():
    cell = os.path.basename(sys.argv[0]).removesuffix(".py")
    for name in (f"{cell}.jsonl", f"{cell}.control.json"):
        prepared = os.path.join(os.environ["LABORATORY"], name)
        if os.path.exists(prepared):
            with open(prepared) as source, open(name, "w") as copy:
                copy.write(source.read())
        else:
            with open(os.environ["FLUXBENCH_ABSENT"], "a") as absent:
                print(name, file=absent)
    if os.path.exists(os.path.join(os.environ["LABORATORY"], "partly")):
        with open(os.environ["FLUXBENCH_PROGRESS"], "a") as progress:
            print(json.dumps({"partly": True}), file=progress)
    print("measured", *times(f"{cell}.jsonl"))

def show(cell):
    lines = times(os.path.join(os.environ[f"UVNOTE_INPUT_{cell.upper()}"], f"{cell}.jsonl"))
    print("shown", *lines)
    if cell == "first":
        with open("figure.svg", "w") as figure, open("table.csv", "w") as table:
            figure.write(f"<svg xmlns='http://www.w3.org/2000/svg'><text>drawn {' '.join(lines)}</text></svg>")
            table.write(",".join(lines))

def times(path):
    with open(path) as file:
        records = [json.loads(line) for line in file]
    passed = [each for each in records if "timings" in each]
    return [f"{each['variant']}: {each['timings']['sustained']['median_ms']} ms" for each in passed]
"""
# A shell script, as it is run at every cell: Python would take as long to start as the cell itself.
_UV = f"""#!/bin/sh
echo "$*" >> "$UV_LOG"
case "$1" in
    cache) echo /a/cache/of/uv ;;
    run) shift; exec '{sys.executable}' -S "$@" ;;
esac
"""


@dataclass
class Machine:
    """A folder that stands for a machine: its settings, its notebook and what its cells measure."""

    folder: Path
    settings: Settings
    notebook: Path
    monkeypatch: pytest.MonkeyPatch
    _prepared: dict[str, tuple[tuple[Record, ...], Mapping[str, Any], ControlTimes | None]]

    @property
    def output(self) -> Path:
        return self.folder / "site"

    @property
    def page(self) -> str:
        return (self.output / f"{self.notebook.stem}.html").read_text(encoding="utf-8")

    def good(self, cell_id: str) -> Result:
        result = Store(load(self.notebook)).last_good(cell_id)
        assert result
        return result

    def build(self, *only: str, listener: Listener | None = None) -> Built:
        self._prepare()
        return build(self.notebook, self.settings, self.output, only=only, listener=listener)

    def ran(self) -> list[str]:
        """Return the cells that were run since this was called the last time, in order."""
        log = self.folder / "uv.log"
        calls = log.read_text(encoding="utf-8").splitlines()
        log.write_text("", encoding="utf-8")
        return [Path(call).stem for call in calls if call.startswith("run ") and "/resident.py " not in call]

    def cells(self) -> dict[str, Freshness]:
        """Return the freshness of every cell."""
        document = load(self.notebook)
        return check(document, Store(document), detect.detect(), self.settings)

    def states(self) -> dict[str, str]:
        """Return the state of every cell."""
        return {cell_id: freshness.state.value for cell_id, freshness in self.cells().items()}

    def reasons(self, cell_id: str) -> tuple[str, ...]:
        """Return why a cell is in its state."""
        return self.cells()[cell_id].reasons

    def html(self, cell_id: str) -> str:
        """Return a cell's part of the page."""
        parts = re.split(r'(?=<div class="cell[^"]*" id="cell-)', self.page)
        [part] = [part for part in parts if re.match(rf'<div class="cell[^"]*" id="cell-{cell_id}"', part)]
        return part

    def shown(self, cell_id: str) -> str:
        """Return what a reader sees of a cell above its source, line breaks as spaces."""
        return visible(self.html(cell_id))

    def measures(
        self,
        cell_id: str,
        *records: Record,
        facts: Mapping[str, Any] | None = None,
        control: ControlTimes | None = None,
    ) -> None:
        """Set what a cell measures from now on; `facts` replace those of the fingerprint that the machine gives."""
        self._prepared[cell_id] = (records, facts or {}, control)

    def write(self, *cells: str) -> None:
        """Make a notebook of these cells, each `ATTRIBUTES: CODE`."""
        parts = (cell.partition(": ") for cell in cells)
        text = "".join(f"```python {attributes}\n{code or 'print()'}\n```\n" for attributes, _, code in parts)
        self.notebook.write_text(text, encoding="utf-8")

    def rewrite(self, old: str, new: str) -> None:
        text = self.notebook.read_text(encoding="utf-8")
        assert old in text
        self.notebook.write_text(text.replace(old, new), encoding="utf-8")

    def has(self, **changes: Any) -> None:
        """Give the machine another GPU or driver."""
        driver = changes.pop("driver", DRIVER)
        nvml = fake_nvml(gpu(**{"name": "NVIDIA Made Up", **changes}))
        nvml.nvmlSystemGetDriverVersion = lambda: driver
        self.monkeypatch.setitem(sys.modules, "pynvml", nvml)

    def command(self, name: str, *arguments: str) -> int:
        """Run `fluxbench NAME NOTEBOOK ARGUMENTS` and return its exit code."""
        from fluxbench import cli

        if name != "status":
            self._prepare()
        where = [] if name == "status" else ["--output", str(self.output)]
        return cli.main([name, str(self.notebook), *arguments, *where])

    def _prepare(self) -> None:
        """Write what the cells measure, as of this machine now; a notebook that cannot be built needs nothing."""
        with contextlib.suppress(SetupError):
            document = load(self.notebook)
            for code in document.cells:
                if code.id in self._prepared:
                    records, facts, control = self._prepared[code.id]
                    depends = {**depends_on(code, document, detect.detect(), self.settings), **facts}
                    changes = {"notebook": "made_up", "cell": code.id, "fingerprint": depends}
                    path = self.folder / "laboratory" / f"{code.id}.jsonl"
                    files.write(path, [msgspec.structs.replace(each, **changes) for each in records])
                    path.with_suffix(".control.json").unlink(missing_ok=True)
                    if control:
                        write_text(path.with_suffix(".control.json"), control.to_json())


def visible(markup: str) -> str:
    """Return what a reader sees of a cell's markup above its source, line breaks as spaces."""
    given = markup.partition('<details class="source"')[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", given)).split())


def made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with two cores, whose two measuring cells measure torch_math and torch_native, 1 ms each."""
    clean(monkeypatch)
    monkeypatch.setattr("fluxbench.core.cores.available", lambda: 2)  # with more, several cells begin at once
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(_UV, encoding="utf-8")
    uv.chmod(0o755)
    (folder / "uv.log").touch()
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("UV_LOG", str(folder / "uv.log"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for module, name in ((system, "SYS"), (cpu, "PROC")):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, folder / name.lower())
    (folder / "laboratory").mkdir()
    (folder / "laboratory" / "bench.py").write_text(_BENCH, encoding="utf-8")
    monkeypatch.setenv("LABORATORY", str(folder / "laboratory"))
    (folder / "environment").symlink_to(REPOSITORY / "environment")
    settings = Settings(root=folder, cache=folder / "cache")
    notebook = folder / "notebooks" / "made_up.md"
    notebook.parent.mkdir()
    notebook.write_text(NOTEBOOK, encoding="utf-8")
    machine = Machine(folder=folder, settings=settings, notebook=notebook, monkeypatch=monkeypatch, _prepared={})
    machine.has()
    monkeypatch.setattr(Settings, "load", lambda: machine.settings)
    machine.measures("first", record("torch_math"))
    machine.measures("second", record("torch_native"))
    return machine


_built: list[Path] = []  # the folder of a machine on which everything was built, once for all tests


def with_results(machine: Machine, factory: pytest.TempPathFactory) -> Machine:
    """Give a machine the results and the page of one on which everything was built."""
    if not _built:
        folder = factory.mktemp("machine")
        with pytest.MonkeyPatch.context() as monkeypatch:
            assert made_up(folder, monkeypatch).build().problems == ()
        _built.append(folder)
    for name in ("notebooks", "site"):
        shutil.copytree(_built[0] / name, machine.folder / name, dirs_exist_ok=True)
    return machine


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return everything below a folder with its size and time of change: what must be equal if nothing was written."""
    stats = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {path.relative_to(folder).as_posix(): (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}
