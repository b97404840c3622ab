"""What can go wrong under a build, each for real: the last good result stays and is shown as what it is, no process is
left, the exit code tells, and the next run works.

fluxbench runs as a process of its own, and so do cells; uv is a fake. A cell misbehaves by a file that it executes.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import CHILDREN
from fakes import REPOSITORY, clean, is_alive, until
from notebooks import visible

from fluxbench.notebook.document import load
from fluxbench.notebook.store import Store

HEADER = """# /// script
# dependencies = ["fluxbench"]
# ///
"""
NOTEBOOK = """---
title: Made up — überall
---
```python id=steady
HEADER
print("the stéady cell")
```
```python id=faulty outputs=left.txt
HEADER
import os, pathlib
folder = pathlib.Path(os.environ["PREPARED"])
if (folder / "fault.py").exists():
    exec((folder / "fault.py").read_text(encoding="utf-8"))
pathlib.Path("left.txt").write_text("left")
print("printed: × 2")
```
"""
KEPT = "finished cells and all earlier results are kept, and of most other cells what finished processes had measured"


def prepare(most_bytes: int) -> None:
    """Give a process that was just started the signals of a shell's, and a limit of how long its files may be."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, -1))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """A folder with a notebook, its results, its page, and what decides how its second cell behaves."""

    folder: Path
    variables: dict[str, str]

    @property
    def page(self) -> Path:
        return self.folder / "site" / "made_up.html"

    @property
    def store(self) -> Store:
        return Store(load(self.folder / "notebooks" / "made_up.md"))

    def start(self, *cells: str, most_bytes: int = -1, **variables: str) -> subprocess.Popen[str]:
        """Start a re-run as a shell does, in a process group of its own; a build where no cell is named.

        No file may grow beyond `most_bytes`: the system refuses it as it does on a full disk.
        """
        folders = {"PREPARED": ".", "PIDS": "pids.txt", "TMPDIR": "tmp", "FLUXBENCH_CACHE": "cache"}
        own = {name: str(self.folder / value) for name, value in folders.items()}
        command = ["rerun" if cells else "build", str(self.folder / "notebooks" / "made_up.md"), *cells]
        return subprocess.Popen(
            [sys.executable, "-m", "fluxbench.cli", *command, "--output", str(self.page.parent)],
            env={**self.variables, **own, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=lambda: prepare(most_bytes),
        )

    def fault(self, code: str) -> None:
        """Let the faulty cell do something else first."""
        (self.folder / "fault.py").write_text(code, encoding="utf-8")

    def pids(self) -> list[int]:
        """Return the processes that a fault started."""
        noted = self.folder / "pids.txt"
        return [int(line) for line in noted.read_text(encoding="utf-8").splitlines() if line] if noted.exists() else []

    def left(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]

    def half_done(self) -> list[Path]:
        """Return what is half done: temporary folders, and parts of results and pages."""
        folders = (self.folder / "notebooks" / ".uvnote" / "cache", self.page.parent)
        parts = [path for folder in folders for path in folder.iterdir() if path.name.startswith(".")]
        return [*parts, *(path for path in (self.folder / "tmp").iterdir() if path.is_dir())]

    def shown(self, cell_id: str) -> str:
        """Return what a reader sees of a cell above its source."""
        _, _, part = self.page.read_text(encoding="utf-8").partition(f'id="cell-{cell_id}"')
        return visible(part.partition(">")[2])

    def works(self) -> None:
        """Check that the next run shows its result without a note, and leaves nothing half done."""
        (self.folder / "fault.py").unlink(missing_ok=True)
        assert ended(self.start("faulty")) == (0, [])
        assert self.shown("faulty").startswith("printed: × 2")
        assert self.half_done() == []


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Return the exit code of fluxbench and what it prints as problems."""
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, [line for line in err.splitlines() if line.startswith("fluxbench: ")]


@pytest.fixture(scope="module", params=["", HEADER], ids=["by itself", "in a resident process"])
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Laboratory:
    """Return a laboratory in which everything was built: not to be changed."""
    folder, apart = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("apart")
    program = apart / "uv"
    program.write_text(f'#!/bin/sh\nshift; "{sys.executable}" "$@"\nexit $?\n', encoding="utf-8")  # 128 + signal, as uv
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        own = {"UV": str(program), "UV_CACHE_DIR": str(apart), "PYTHONPATH": str(REPOSITORY / "shared" / "src")}
        laboratory = Laboratory(folder=folder, variables={**os.environ, **own})
    for name in ("notebooks", "tmp"):
        (folder / name).mkdir()
    (folder / "notebooks" / "made_up.md").write_text(NOTEBOOK.replace("HEADER\n", request.param), encoding="utf-8")
    assert ended(laboratory.start()) == (0, [])
    return laboratory


@pytest.fixture
def laboratory(built: Laboratory, tmp_path: Path) -> Iterator[Laboratory]:
    """Return a laboratory of its own in the same state."""
    shutil.copytree(built.folder, tmp_path, dirs_exist_ok=True)
    laboratory = Laboratory(folder=tmp_path, variables=built.variables)
    yield laboratory
    for pid in laboratory.left():
        os.kill(pid, signal.SIGKILL)


def test_a_cell_that_is_late_leaves_no_process_and_its_last_good_result_is_shown(laboratory: Laboratory) -> None:
    laboratory.fault(CHILDREN + "time.sleep(600)")
    code, problems = ended(laboratory.start("faulty", FLUXBENCH_CELL_LIMIT_S="6"))
    failure = "it did not end within 6 s and was killed"
    assert (code, problems) == (1, [f"fluxbench: cell faulty failed: {failure}"])
    assert (len(laboratory.pids()), laboratory.left(), laboratory.half_done()) == (3, [], [])
    assert laboratory.shown("faulty").startswith(f"The last run of this cell failed: {failure}. Below is its ")
    assert "printed: × 2" in laboratory.shown("faulty")
    assert laboratory.shown("steady") == "the stéady cell"
    laboratory.works()


@pytest.mark.parametrize(
    ("end", "code", "sentences"),
    [
        # A terminal sends it to the whole process group.
        (lambda process: os.killpg(process.pid, signal.SIGINT), 130, [f"fluxbench: interrupted; {KEPT}"]),
        (lambda process: process.terminate(), 143, [f"fluxbench: terminated; {KEPT}"]),
        (lambda process: [process.terminate() for _ in range(99)], 143, [f"fluxbench: terminated; {KEPT}"]),
        (lambda process: process.kill(), -signal.SIGKILL, []),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM again and again", "SIGKILL"],
)
def test_an_end_leaves_no_process(
    laboratory: Laboratory, end: Callable[[subprocess.Popen[str]], None], code: int, sentences: list[str]
) -> None:
    before = laboratory.page.read_bytes()
    laboratory.fault(CHILDREN + "print(os.getpid(), file=pids, flush=True)\ntime.sleep(600)")
    process = laboratory.start("steady", "faulty")
    assert until(lambda: len(laboratory.pids()) == 4 and laboratory.store.numbers("steady") == [2, 1])
    end(process)
    assert ended(process) == (code, sentences)
    assert not sentences or laboratory.left() == []  # it had time to end them
    assert until(lambda: laboratory.left() == [])
    assert until(lambda: laboratory.half_done() == [])
    assert laboratory.page.read_bytes() == before
    assert (laboratory.store.numbers("steady"), laboratory.store.numbers("faulty")) == ([2, 1], [1])  # one had finished


KILL_ALL = """
parents = [os.getppid()]
for _ in range(2):
    parents.append(int(pathlib.Path(f"/proc/{parents[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
for pid in parents[1:]:
    os.kill(pid, 9)
raise SystemExit
"""


def test_a_kill_of_supervisor_and_build_leaves_a_folder_only_until_the_next_build(laboratory: Laboratory) -> None:
    laboratory.fault(KILL_ALL)
    process = laboratory.start("faulty")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert laboratory.half_done() != []
    laboratory.works()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("most_bytes", "runs"), [(8 << 10, 2), (40, 1)], ids=["the page", "a script"])
def test_a_disk_that_is_full_leaves_the_page_whole_and_the_next_build_works(
    laboratory: Laboratory, most_bytes: int, runs: int
) -> None:
    before = contents(laboratory.page.parent)
    laboratory.fault("open('left.txt', 'w').write('other'); print('new'); raise SystemExit")
    process = laboratory.start("steady", "faulty", most_bytes=most_bytes)
    process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    assert contents(laboratory.page.parent) == before
    assert [len(laboratory.store.numbers(each)) for each in ("steady", "faulty")] == [runs, runs]
    laboratory.works()
