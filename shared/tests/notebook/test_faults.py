"""What can go wrong under a build, each for real: the last good result stays and is shown as what it is, no process is
left, the exit code tells, and the next run works.

Cells run as processes of this interpreter, and so does fluxbench where it is ended from outside; uv is a fake. A test
makes a cell misbehave by a file that the cell executes.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from children import CHILDREN
from fakes import REPOSITORY, clean, is_alive, until
from notebooks import visible

from fluxbench import cli
from fluxbench.core.errors import SetupError
from fluxbench.core.formatting import utc
from fluxbench.environments import uv
from fluxbench.notebook.document import load
from fluxbench.notebook.store import Result, Store

NOTEBOOK = """---
title: Made up — überall
---

```python id=steady
print("the stéady cell")
```

```python id=faulty outputs=left.txt
import os, pathlib
folder = pathlib.Path(os.environ["PREPARED"])
if (folder / "fault.py").exists():
    exec((folder / "fault.py").read_text(encoding="utf-8"))
pathlib.Path("left.txt").write_text("left")
print("printed:", (folder / "prints.txt").read_text(encoding="utf-8"))
```

```python id=figure needs=faulty
import os, pathlib
print("the figure of what was", pathlib.Path(os.environ["UVNOTE_INPUT_FAULTY"], "left.txt").read_text())
```
"""
BEFORE, NEXT = "the last good result, × 2", "the next result"
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """A folder with a notebook, its results, its page, and what decides how its second cell behaves."""

    folder: Path
    variables: dict[str, str]
    capsys: pytest.CaptureFixture[str] | None = None

    @property
    def notebook(self) -> Path:
        return self.folder / "notebooks" / "made_up.md"

    @property
    def page(self) -> Path:
        return self.folder / "site" / "made_up.html"

    @property
    def store(self) -> Store:
        return Store(load(self.notebook))

    @property
    def good(self) -> Result:
        """The last good run of the faulty cell."""
        result = self.store.last_good("faulty")
        assert result
        return result

    def arguments(self, command: str, *cells: str) -> list[str]:
        return [command, str(self.notebook), *cells, "--output", str(self.page.parent)]

    def environment(self) -> dict[str, str]:
        own = {"PREPARED": "prepared", "PIDS": "pids.txt", "TMPDIR": "tmp", "FLUXBENCH_CACHE": "cache"}
        return {**self.variables, **{name: str(self.folder / value) for name, value in own.items()}}

    def start(self, *cells: str, **variables: str) -> subprocess.Popen[str]:
        """Start a re-run as a shell does: in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "fluxbench.cli", *self.arguments("rerun", *cells)],
            env={**self.environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM)],
        )

    def run(self, command: str, *cells: str, **variables: str) -> Done:
        """Run fluxbench in this process."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            clean(monkeypatch)
            monkeypatch.setattr("tempfile.tempdir", str(self.folder / "tmp"))
            for name, value in {**self.environment(), **variables}.items():
                monkeypatch.setenv(name, value)
            code = cli.main(self.arguments(command, *cells))
        out, err = self.capsys.readouterr() if self.capsys else ("", "")
        return Done([], code, out, err)

    def prints(self, text: str) -> None:
        """Set what the faulty cell prints from now on."""
        (self.folder / "prepared" / "prints.txt").write_text(text, encoding="utf-8")

    def fault(self, code: str) -> None:
        """Let the faulty cell do something else first."""
        (self.folder / "prepared" / "fault.py").write_text(code, encoding="utf-8")

    def pids(self) -> list[int]:
        """Return the processes that a fault started."""
        noted = self.folder / "pids.txt"
        return [int(line) for line in noted.read_text(encoding="utf-8").splitlines() if line] if noted.exists() else []

    def left(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]

    def half_done(self) -> list[Path]:
        """Return what is half done: temporary folders, and parts of results and pages."""
        folders = (self.notebook.parent / ".uvnote" / "cache", self.page.parent)
        parts = [path for folder in folders for path in folder.iterdir() if path.name.endswith(".part")]
        return [*parts, *(path for path in (self.folder / "tmp").iterdir() if path.is_dir())]

    def shown(self, cell_id: str) -> str:
        """Return what a reader sees of a cell above its source."""
        _, _, part = self.page.read_text(encoding="utf-8").partition(f'id="cell-{cell_id}"')
        return visible(part.partition(">")[2])

    def works(self) -> None:
        """Check that the next run shows its result without a note, and leaves nothing half done."""
        (self.folder / "prepared" / "fault.py").unlink(missing_ok=True)
        done = self.run("rerun", "faulty")
        assert (done.returncode, problems(done)) == (0, [])
        assert self.shown("faulty").startswith(f"printed: {NEXT}")
        assert self.shown("figure") == "the figure of what was left"
        assert self.half_done() == []


def problems(done: Done) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("fluxbench: ")]


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=60)
    return Done([], process.returncode, out, err)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Return a laboratory in which everything was built: not to be changed."""
    folder, apart = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("apart")
    program = apart / "uv"
    program.write_text(f'#!/bin/sh\n"{sys.executable}" "$2"\nexit $?\n', encoding="utf-8")  # 128 + signal, as uv
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        own = {"UV": str(program), "UV_CACHE_DIR": str(apart), "PYTHONPYCACHEPREFIX": str(apart / "compiled")}
        variables = {**os.environ, **own, "PYTHONPATH": str(REPOSITORY / "shared" / "src")}
    found = Laboratory(folder=folder, variables=variables)
    for name in ("notebooks", "prepared", "tmp"):
        (folder / name).mkdir()
    found.notebook.write_text(NOTEBOOK, encoding="utf-8")
    found.prints(BEFORE)
    assert found.run("build").returncode == 0
    return found


@pytest.fixture
def laboratory(built: Laboratory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Laboratory]:
    """Return a laboratory of its own in the same state, whose faulty cell prints something else from now on."""
    shutil.copytree(built.folder, tmp_path, dirs_exist_ok=True)
    found = dataclasses.replace(built, folder=tmp_path, capsys=capsys)
    found.prints(NEXT)
    yield found
    for pid in found.left():
        os.kill(pid, signal.SIGKILL)


# A cell that fails. Each leaves three processes behind, which no session, group or parent gives away.


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (
            "raise ValueError('é, the GPU is on fire')",
            "it ended with exit code 1: ValueError: é, the GPU is on fire",
        ),
        ("os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
        ("time.sleep(600)", "it did not end within 3 s and was killed"),
        (
            "with open('/dev/full', 'w') as file: file.write('x')",
            "it ended with exit code 1: OSError: [Errno 28] No space left on device",
        ),
        ("sys.stderr.buffer.write(b'caf\\xe9\\n'); sys.exit(1)", "it ended with exit code 1: caf\ufffd"),
        (
            "for _ in range(20): sys.stderr.write('x' * 1_000_000)\nsys.exit(1)",
            f"it ended with exit code 1: {'x' * 300}",
        ),
    ],
    ids=["it raises", "it is killed", "it hangs", "its disk is full", "it prints no UTF-8", "it prints 20 MB"],
)
def test_a_cell_that_fails_costs_itself_and_what_needs_it_and_leaves_no_process(
    laboratory: Laboratory, code: str, failure: str
) -> None:
    laboratory.fault(CHILDREN + code)
    limit = {"FLUXBENCH_CELL_LIMIT_S": "3"} if "3 s" in failure else {}
    done = laboratory.run("rerun", "faulty", **limit)
    assert done.returncode == 1
    assert problems(done) == [
        f"fluxbench: cell faulty failed: {failure}",
        "fluxbench: cell figure was not run: it needs faulty, which failed",
    ]
    assert len(laboratory.pids()) == 3
    assert laboratory.left() == []
    assert laboratory.half_done() == []
    assert laboratory.shown("faulty").startswith(
        f"The last run of this cell failed: {failure}. What follows is its last good result, of "
        f"{utc(laboratory.good.run.ran_at)}. printed: {BEFORE}"
    )
    not_run = "Not run: it needs faulty, which failed. What follows is its last good result, of "
    assert laboratory.shown("figure").startswith(not_run)
    assert laboratory.shown("figure").endswith("the figure of what was left")
    assert laboratory.shown("steady") == "the stéady cell"
    assert laboratory.page.stat().st_size < 2e6
    laboratory.works()


def test_a_package_that_does_not_exist_costs_its_cell_and_is_named(laboratory: Laboratory) -> None:
    try:
        program = uv.find()
    except SetupError:
        pytest.skip("needs a uv, on PATH or named by UV")
    (laboratory.folder / "wheels").mkdir()
    text = laboratory.notebook.read_text(encoding="utf-8")
    header = '# /// script\n# dependencies = ["no-such-package-of-fluxbench==1.0"]\n# ///\n'
    laboratory.notebook.write_text(text.replace("import os", f"{header}import os", 1), encoding="utf-8")
    offline = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(laboratory.folder / "wheels")}
    done = laboratory.run("build", UV=program, UV_CACHE_DIR=str(laboratory.folder / "uv-cache"), **offline)
    failed, _ = problems(done)
    assert failed.startswith("fluxbench: cell faulty failed: ")
    assert "no-such-package-of-fluxbench" in failed


# What a cell prints.


def test_of_a_cell_that_prints_100_mb_the_page_shows_both_ends_and_how_much_is_left_out(laboratory: Laboratory) -> None:
    laboratory.fault("print('BEGINS')\nfor _ in range(1000): print('x' * 99_999)\nprint('ENDS')")
    measured = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[2:]); "
        "open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); sys.exit(code)"
    )  # a child's peak begins at that of its parent, which with torch loaded may be large
    command = [sys.executable, "-m", "fluxbench.cli", *laboratory.arguments("rerun", "faulty")]
    most = laboratory.folder / "most.txt"
    done = subprocess.run([sys.executable, "-c", measured, str(most), *command], env=laboratory.environment())
    assert done.returncode == 0
    assert int(most.read_text(encoding="utf-8")) * 1024 < 300e6
    assert laboratory.page.stat().st_size < 2e6
    shown = laboratory.shown("faulty")
    assert shown.startswith("BEGINS x")
    assert re.search(r"x \[\.\.\. 99\.\d MB of output are left out here \.\.\.\] x", shown)
    assert f"x ENDS printed: {NEXT}" in shown


def test_a_locale_that_knows_ascii_alone_changes_nothing(laboratory: Laboratory) -> None:
    laboratory.prints("ü × —")
    laboratory.fault(
        "import sys\nsys.stdout.buffer.write(b'caf\\xe9 \\xff\\x00 ' + 'é\\n'.encode()); sys.stdout.flush()"
    )
    ascii_alone = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ended(laboratory.start("steady", "faulty", **ascii_alone))
    assert (done.returncode, problems(done)) == (0, [])
    assert laboratory.shown("steady") == "the stéady cell"
    assert laboratory.shown("faulty").startswith("caf\ufffd \ufffd\x00 é printed: ü × —")
    assert "<title>Made up — überall</title>" in laboratory.page.read_text(encoding="utf-8")


# fluxbench itself is interrupted, terminated or killed, in the middle of a cell.


def kill_by_name(process: subprocess.Popen[str]) -> None:
    """Kill what `pkill -9 -f fluxbench` would: whatever has the name in its command line."""
    for pid in [process.pid, *descendants(process.pid)]:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(b"fluxbench" in argument for argument in line[1:]):  # without the interpreter, which may lie anywhere
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text(encoding="utf-8").split()]
    return [*children, *(further for child in children for further in descendants(child))]


KEPT = "finished cells and all earlier results are kept"


@pytest.mark.parametrize(
    ("end", "code", "sentences"),
    [
        # A terminal sends it to the whole process group.
        (lambda process: os.killpg(process.pid, signal.SIGINT), 130, [f"fluxbench: interrupted; {KEPT}"]),
        (lambda process: process.terminate(), 143, [f"fluxbench: terminated; {KEPT}"]),
        (lambda process: process.kill(), -signal.SIGKILL, []),
        (kill_by_name, -signal.SIGKILL, []),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGKILL", "SIGKILL by name"],
)
def test_however_a_build_is_ended_no_process_is_left_and_results_and_page_stay(
    laboratory: Laboratory, end: Callable[[subprocess.Popen[str]], None], code: int, sentences: list[str]
) -> None:
    before = laboratory.page.read_bytes()
    laboratory.fault(CHILDREN + "print(os.getpid(), file=pids, flush=True)\ntime.sleep(600)")
    process = laboratory.start("steady", "faulty")
    assert until(lambda: len(laboratory.pids()) == 4)
    end(process)
    done = ended(process)
    assert (done.returncode, problems(done)) == (code, sentences)
    assert "Traceback" not in done.stderr
    assert not sentences or laboratory.left() == []  # it had time to end them
    assert until(lambda: laboratory.left() == [])
    assert until(lambda: laboratory.half_done() == [])
    assert laboratory.page.read_bytes() == before
    assert laboratory.store.numbers("steady") == [2, 1]  # which had finished
    assert laboratory.good.run.stdout == f"printed: {BEFORE}\n"


def test_what_was_half_done_when_fluxbench_was_killed_is_cleared_by_the_next_run(laboratory: Laboratory) -> None:
    part = laboratory.notebook.parent / ".uvnote" / "cache" / ".made_up.faulty.00002.part"
    part.mkdir()
    (part / "left.txt").write_text("le", encoding="utf-8")
    (laboratory.page.parent / "made_up.html.part").write_text("<html><bo", encoding="utf-8")
    (laboratory.notebook.parent / ".uvnote" / "fluxbench.lock").touch()  # which nobody holds
    laboratory.works()
    assert laboratory.good.number == 2


# A full disk. /dev/full is one as soon as it is written to.


@pytest.mark.parametrize(
    ("file", "printed"),
    [
        ("site/made_up.html.part", NEXT),
        ("site/artifacts/faulty/left.txt.part", NEXT),
        ("notebooks/.uvnote/cells/faulty.py", BEFORE),
    ],
    ids=["the page", "an artifact", "a cell's script"],
)
def test_a_disk_that_is_full_at_any_file_leaves_the_page_and_finished_results(
    laboratory: Laboratory, file: str, printed: str
) -> None:
    before = laboratory.page.read_bytes()
    path = laboratory.folder / file
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/full")
    done = laboratory.run("rerun", "steady", "faulty")
    assert done.returncode == 2
    [sentence] = problems(done)
    assert re.fullmatch(r"fluxbench: the disk is full( \([^)]*\))?; free some space and run it again", sentence)
    assert laboratory.page.read_bytes() == before
    assert laboratory.store.numbers("steady") == [2, 1]
    assert laboratory.good.run.stdout == f"printed: {printed}\n"
    path.unlink(missing_ok=True)
    laboratory.works()


@pytest.mark.parametrize("step", ["shutil.copy2", "os.fsync"], ids=["an artifact", "result.json"])
def test_a_disk_that_is_full_at_any_file_of_a_result_leaves_the_results_before(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = laboratory.page.read_bytes()

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(step, full)
    done = laboratory.run("rerun", "faulty")
    assert (done.returncode, problems(done)) == (2, ["fluxbench: the disk is full; free some space and run it again"])
    assert laboratory.page.read_bytes() == before
    assert laboratory.good.run.stdout == f"printed: {BEFORE}\n"
    assert laboratory.half_done() == []
