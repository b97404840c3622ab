"""A made-up machine for the tests of notebooks: a GPU behind NVML's module, a folder, settings, a notebook and a uv.

Cells run for real, in processes of this interpreter. What they call `bench` copies the records that a test prepared, as
measured on the machine as it is then, and shows them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fakes import REPOSITORY, clean
from sample_records import make_record

from fluxbench.bench import dependencies
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import cell
from fluxbench.notebook.build import Built, Listener, build
from fluxbench.notebook.document import load
from fluxbench.notebook.freshness import check
from fluxbench.notebook.store import Result, Store
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Sentinel

DRIVER, NEWER = "580.65.06", "580.159.04"
HEADER = """# /// script
# requires-python = ">=3.11"
#
# [tool.fluxbench]
# notebook = "made_up"
# packages = ["torch==2.13.0"]
# ///
import os, sys
sys.path.insert(0, os.environ["LABORATORY"])
import bench
"""
# Two measuring cells, and a showing one after each; a target that is not known expects torch_math and torch_native.
NOTEBOOK = """# Made up

```python id=first outputs=first.jsonl,first.sentinel.json
{HEADER}bench.measure("torch_math")
```

```python id=second outputs=second.jsonl,second.sentinel.json
{HEADER}bench.measure("torch_native")
```

```python id=figure needs=first outputs=figure.svg,table.csv
import os, sys
sys.path.insert(0, os.environ["LABORATORY"])
import bench
bench.show("first")
```

```python id=other needs=second
import os, sys
sys.path.insert(0, os.environ["LABORATORY"])
import bench
bench.show("second")
```
""".replace("{HEADER}", HEADER)
ALL = ["first", "second", "figure", "other"]
_BENCH = """
import json, os, sys

def measure(*names):
    cell = os.path.basename(sys.argv[0]).removesuffix(".py")
    for name in (f"{cell}.jsonl", f"{cell}.sentinel.json"):
        prepared = os.path.join(os.environ["LABORATORY"], name)
        if os.path.exists(prepared):
            with open(prepared) as source, open(name, "w") as copy:
                copy.write(source.read())
    print("measured", *times(f"{cell}.jsonl"))

def show(cell):
    found = times(os.path.join(os.environ[f"UVNOTE_INPUT_{cell.upper()}"], f"{cell}.jsonl"))
    print("shown", *found)
    if cell == "first":
        with open("figure.svg", "w") as figure, open("table.csv", "w") as table:
            figure.write(f"<svg xmlns='http://www.w3.org/2000/svg'><text>drawn {' '.join(found)}</text></svg>")
            table.write(",".join(found))

def times(path):
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return [f"{each['variant']}: {each['timing']['median_ms']} ms" for each in lines if each["timing"]]
"""
# A shell script, as it is run at every cell: Python would take as long to start as the cell itself.
_UV = f"""#!/bin/sh
echo "$*" >> "$UV_LOG"
case "$1" in
    cache) echo /a/cache/of/uv ;;
    run) exec '{sys.executable}' -S "$2" ;;
esac
"""


def nvml(monkeypatch: pytest.MonkeyPatch, driver: str = DRIVER, name: str = "NVIDIA Made Up") -> None:
    """Put a GPU where fluxbench asks for one: behind the module `pynvml`."""
    fake: Any = ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})
    fake.NVMLError_LibraryNotFound = fake.NVMLError_DriverNotLoaded = type("Absent", (fake.NVMLError,), {})
    fake.NVML_CLOCK_SM, fake.NVML_CLOCK_MEM = 1, 2
    fake.nvmlInit = fake.nvmlShutdown = lambda: None
    fake.nvmlDeviceGetCount = lambda: 1
    fake.nvmlDeviceGetHandleByIndex = lambda index: "gpu"
    fake.nvmlDeviceGetName = lambda gpu: name
    fake.nvmlSystemGetDriverVersion = lambda: driver
    fake.nvmlSystemGetCudaDriverVersion_v2 = lambda: 13000
    fake.nvmlDeviceGetCudaComputeCapability = lambda gpu: [9, 0]
    fake.nvmlDeviceGetEnforcedPowerLimit = lambda gpu: 700_000
    monkeypatch.setitem(sys.modules, "pynvml", fake)


@dataclass
class Machine:
    """A folder that stands for a machine: its settings, its notebook and what its cells are to measure."""

    folder: Path
    settings: Settings
    notebook: Path
    monkeypatch: pytest.MonkeyPatch
    _prepared: dict[str, tuple[tuple[Record, ...], Mapping[str, Any], Sentinel | None]] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        return self.folder / "site"

    @property
    def page(self) -> str:
        return (self.output / f"{self.notebook.stem}.html").read_text(encoding="utf-8")

    @property
    def store(self) -> Store:
        return Store(load(self.notebook))

    def good(self, cell_id: str) -> Result:
        result = self.store.last_good(cell_id)
        assert result
        return result

    def build(self, *only: str, listener: Listener | None = None) -> Built:
        self._prepare()
        return build(self.notebook, self.settings, self.output, only=only, listener=listener)

    def ran(self) -> list[str]:
        """Return the cells that were run since this was asked the last time, in order."""
        log = self.folder / "uv.log"
        calls = log.read_text(encoding="utf-8").splitlines()
        log.write_text("", encoding="utf-8")
        return [Path(call).stem for call in calls if call.startswith("run ")]

    def states(self) -> dict[str, str]:
        """Return the state of every cell."""
        document = load(self.notebook)
        found = check(document, Store(document), hardware.detect(), self.settings)
        return {cell_id: each.state.value for cell_id, each in found.items()}

    def reasons(self, cell_id: str) -> tuple[str, ...]:
        """Return why a cell is in its state."""
        document = load(self.notebook)
        return check(document, Store(document), hardware.detect(), self.settings)[cell_id].reasons

    def html(self, cell_id: str) -> str:
        """Return a cell's part of the page."""
        parts = re.split(r'(?=<div class="cell[^"]*" id="cell-)', self.page)
        [its] = [part for part in parts if re.match(rf'<div class="cell[^"]*" id="cell-{cell_id}"', part)]
        return its

    def shown(self, cell_id: str) -> str:
        """Return what a reader sees of a cell above its source, line breaks as spaces."""
        _, _, its = (
            self.html(cell_id).partition('<details class="cell-source"')[0].partition(f'<div id="output-{cell_id}"')
        )
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", its.partition(">")[2])).split())

    def measures(
        self, cell_id: str, *found: Record, marks: Mapping[str, Any] | None = None, sentinel: Sentinel | None = None
    ) -> None:
        """Say what a cell is to measure from now on; `marks` replace those that the machine would give."""
        self._prepared[cell_id] = (found, marks or {}, sentinel)

    def rewrite(self, old: str, new: str) -> None:
        text = self.notebook.read_text(encoding="utf-8")
        assert old in text
        self.notebook.write_text(text.replace(old, new), encoding="utf-8")

    def driver(self, version: str) -> None:
        nvml(self.monkeypatch, driver=version)

    def set(self, **changes: Any) -> None:
        """Change settings, as environment variables would."""
        self.settings = dataclasses.replace(self.settings, **changes)

    def command(self, name: str, *arguments: str) -> int:
        """Run `fluxbench NAME NOTEBOOK ARGUMENTS` and return its exit code."""
        from fluxbench import cli

        if name != "status":
            self._prepare()
        where = [] if name == "status" else ["--output", str(self.output)]
        return cli.main([name, str(self.notebook), *arguments, *where])

    def _prepare(self) -> None:
        """Write what the cells are to measure, as of this machine now; what cannot be built needs nothing."""
        with contextlib.suppress(SetupError):
            for code in load(self.notebook).cells:
                if code.id in self._prepared:
                    found, changed, sentinel = self._prepared[code.id]
                    this, names = cell.parse(code.code, code.id), cell.measured(code.code)
                    marks = {**dependencies.of(this, names, hardware.detect(), self.settings), **changed}
                    stamped = (
                        dataclasses.replace(each, notebook="made_up", cell=code.id, fingerprint=marks) for each in found
                    )
                    records.write(self.folder / "laboratory" / f"{code.id}.jsonl", stamped)
                    path = self.folder / "laboratory" / f"{code.id}.sentinel.json"
                    path.unlink(missing_ok=True)
                    if sentinel:
                        records.write_text(path, sentinel.to_json())


def made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine whose two measuring cells measure torch_math and torch_native, 1 ms each."""
    clean(monkeypatch)
    nvml(monkeypatch)
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(_UV, encoding="utf-8")
    uv.chmod(0o755)
    (folder / "uv.log").touch()
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("UV_LOG", str(folder / "uv.log"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("SYS", "PROC"):
        monkeypatch.setattr(hardware, name, folder / name.lower())
    (folder / "laboratory").mkdir()
    (folder / "laboratory" / "bench.py").write_text(_BENCH, encoding="utf-8")
    monkeypatch.setenv("LABORATORY", str(folder / "laboratory"))
    (folder / "environment").symlink_to(REPOSITORY / "environment")
    settings = Settings(root=folder, cache=folder / "cache")
    notebook = folder / "notebooks" / "made_up.md"
    notebook.parent.mkdir()
    notebook.write_text(NOTEBOOK, encoding="utf-8")
    found = Machine(folder=folder, settings=settings, notebook=notebook, monkeypatch=monkeypatch)
    monkeypatch.setattr(Settings, "load", lambda: found.settings)
    found.measures("first", make_record("torch_math"))
    found.measures("second", make_record("torch_native"))
    return found


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


def tree(folder: Path) -> dict[str, str]:
    """Return every file below a folder with its text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return everything below a folder with its size and time of change: what must be equal if nothing was written."""
    found = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {path.relative_to(folder).as_posix(): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}
