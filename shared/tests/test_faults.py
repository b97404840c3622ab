"""What can go wrong under a build, each for real: after it the last good result is there and shown as what it is, no
process is left, the exit code tells, and the next run works.

`fluxbench` runs as a process of its own and its cells as processes below it; uv is a fake that runs them in this
interpreter. A test makes a cell misbehave by a file that the cell executes.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from fakes import REPOSITORY, clean, is_alive, until
from sample_records import make_record
from test_runner import CHILDREN

from fluxbench import cli
from fluxbench.bench import dependencies
from fluxbench.core.formatting import utc
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import cell
from fluxbench.environments import prepare as environments
from fluxbench.notebook import execution
from fluxbench.notebook.document import load
from fluxbench.notebook.store import Store
from fluxbench.records import schema as records

NOTEBOOK = """---
title: Made up — überall
---

```python id=steady
print("the steady cell")
```

```python id=measuring outputs=measuring.jsonl
# /// script
# requires-python = ">=3.11"
#
# [tool.fluxbench]
# notebook = "made_up"
# packages = ["torch==2.13.0"]
# ///
import os, pathlib, shutil
folder = pathlib.Path(os.environ["PREPARED"])
if (folder / "fault.py").exists():
    exec((folder / "fault.py").read_text(encoding="utf-8"))
shutil.copy(folder / "measuring.jsonl", "measuring.jsonl")
print("measured:", (folder / "says.txt").read_text(encoding="utf-8"))
```

```python id=figure needs=measuring
import os, pathlib
lines = pathlib.Path(os.environ["UVNOTE_INPUT_MEASURING"], "measuring.jsonl").read_text().splitlines()
print("the figure of", len(lines), "record")
```
"""
GOOD, BETTER, NEXT = "the first good result", "the last good result, × 2", "the next result"


@dataclass(frozen=True, kw_only=True)
class Done:
    """A fluxbench that has ended."""

    code: int
    out: str
    err: str

    @property
    def problems(self) -> list[str]:
        """What it said was wrong."""
        return [line for line in self.err.splitlines() if line.startswith("fluxbench: ")]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A folder with a notebook, its results, its page, and what decides how its cells behave."""

    folder: Path
    variables: dict[str, str]

    @property
    def notebook(self) -> Path:
        return self.folder / "notebooks" / "made_up.md"

    @property
    def page(self) -> Path:
        return self.folder / "site" / "made_up.html"

    @property
    def store(self) -> Store:
        return Store(load(self.notebook))

    def arguments(self, command: str, *cells: str) -> list[str]:
        where = [] if command == "status" else ["--output", str(self.page.parent)]
        return [command, str(self.notebook), *cells, *where]

    def environment(self) -> dict[str, str]:
        own = {"PREPARED": "prepared", "PIDS": "pids.txt", "TMPDIR": "tmp", "FLUXBENCH_CACHE": "cache"}
        return {**self.variables, **{name: str(self.folder / value) for name, value in own.items()}}

    def start(self, command: str, *cells: str, **variables: str) -> subprocess.Popen[str]:
        """Start fluxbench as a shell does: in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "fluxbench.cli", *self.arguments(command, *cells)],
            env={**self.environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=listening,
        )

    def run(self, command: str, *cells: str, **variables: str) -> Done:
        return ended(self.start(command, *cells, **variables))

    def says(self, text: str) -> None:
        """Say what the measuring cell prints from now on."""
        (self.folder / "prepared" / "says.txt").write_text(text, encoding="utf-8")

    def fault(self, code: str) -> None:
        """Let the measuring cell do something else before it measures, and leave no trace of an earlier fault."""
        (self.folder / "pids.txt").unlink(missing_ok=True)
        (self.folder / "prepared" / "fault.py").write_text(code, encoding="utf-8")

    def mend(self) -> None:
        (self.folder / "prepared" / "fault.py").unlink(missing_ok=True)

    def pids(self) -> list[int]:
        """Return the processes that a fault left behind."""
        noted = self.folder / "pids.txt"
        return [int(line) for line in noted.read_text(encoding="utf-8").splitlines() if line] if noted.exists() else []

    def left(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]

    def tidy(self) -> None:
        """End what should not have been left."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)

    def temporary(self) -> list[Path]:
        """Return the temporary folders that are there."""
        return [path for path in (self.folder / "tmp").iterdir() if path.is_dir()]

    def shown(self, cell_id: str) -> str:
        """Return what a reader sees of a cell above its source, every space and line break as one space."""
        _, _, its = self.page.read_text(encoding="utf-8").partition(f'<div id="output-{cell_id}"')
        its = its.partition('<details class="cell-source"')[0].partition(">")[2]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", its)).split())

    def good(self, cell_id: str = "measuring") -> str:
        """Return what the last good run of a cell printed."""
        result = self.store.last_good(cell_id)
        assert result
        assert result.records is not None
        return result.stdout

    def states(self) -> dict[str, str]:
        """Return what `fluxbench status` says of each cell."""
        done = self.run("status", "--json")
        found = json.loads(done.out)
        assert done.code == (0 if found["fresh"] else 1)
        return {each["cell"]: each["state"] for each in found["cells"]}

    def works(self, command: str = "build", *cells: str) -> None:
        """Check that the next run works: it measures anew, shows that and no note, and leaves nothing half done."""
        self.mend()
        self.says(NEXT)
        done = self.run(command, *cells)
        assert (done.code, done.problems) == (0, [])
        assert self.shown("measuring").startswith(f"measured: {NEXT}")
        assert self.shown("figure") == "the figure of 1 record"
        assert self.good() == f"measured: {NEXT}\n"
        assert hidden(self.folder / "notebooks" / ".uvnote" / "cache") == []
        assert hidden(self.page.parent) == []
        assert self.temporary() == []


def listening() -> None:
    """Take the signals that whoever runs the tests may have had ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def hidden(folder: Path) -> list[Path]:
    """Return what is half done in a folder."""
    return [path for path in folder.iterdir() if path.name.startswith(".") or path.name.endswith(".tmp")]


def ended(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return Done(code=process.returncode, out=out, err=err)


def copy(machine: Machine, folder: Path) -> Machine:
    """Return a machine of its own in the same state."""
    shutil.copytree(machine.folder, folder, dirs_exist_ok=True)
    return dataclasses.replace(machine, folder=folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine after two good runs of its measuring cell: not to be changed."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        uv = tmp_path_factory.mktemp("bin") / "uv"
        uv.write_text(f'#!/bin/sh\n"{sys.executable}" "$2"\nexit $?\n', encoding="utf-8")  # 128 and the signal, as uv
        uv.chmod(0o755)
        monkeypatch.setenv("UV", str(uv))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv-cache")))
        monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))
        monkeypatch.setenv("FLUXBENCH_CACHE", str(folder / "cache"))
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        found = Machine(folder=folder, variables=dict(os.environ))
        for name in ("notebooks", "prepared", "tmp"):
            (folder / name).mkdir()
        found.notebook.write_text(NOTEBOOK, encoding="utf-8")
        code = load(found.notebook).find("measuring").code
        marks = dependencies.of(cell.parse(code, "measuring"), cell.measured(code), hardware.detect(), Settings.load())
    measured = dataclasses.replace(make_record("torch_math"), fingerprint=marks)
    records.write(folder / "prepared" / "measuring.jsonl", [measured])
    found.says(GOOD)
    assert found.run("build").code == 0
    found.says(BETTER)
    assert found.run("rerun", "measuring").code == 0
    assert found.shown("measuring").startswith(f"measured: {BETTER}")
    assert set(found.states().values()) == {"fresh"}
    return found


@pytest.fixture
def machine(built: Machine, tmp_path: Path) -> Iterator[Machine]:
    found = copy(built, tmp_path)
    yield found
    found.tidy()


@pytest.fixture
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine whose fluxbench can be run in this process, by `cli.main`."""
    for name in {*os.environ, *machine.environment()}:
        if name in machine.environment():
            monkeypatch.setenv(name, machine.environment()[name])
        elif not name.startswith("PYTEST"):
            monkeypatch.delenv(name)
    return machine


# A cell that fails. Each leaves three processes behind, which no session, group or parent gives away.

FAULTS = {
    "it raises": (
        "raise ValueError('é, the GPU is on fire')",
        "it ended with exit code 1: ValueError: é, the GPU is on fire",
    ),
    "it exits": ("sys.exit(7)", "it ended with exit code 7"),
    "it says why": ("sys.exit('fluxbench: the GPU is on fire')", "the GPU is on fire"),
    "it is killed": ("os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
    "it dumps core": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.abort()",
        "it was ended by SIGABRT",
    ),
    "it hangs": ("time.sleep(600)", "it did not end within 3 s and was killed"),
}


@dataclass(frozen=True, kw_only=True)
class Faulted:
    """A machine after a fault of its measuring cell, and how that is said."""

    machine: Machine
    done: Done
    failure: str


@pytest.fixture(scope="module", params=FAULTS)
def faulted(
    request: pytest.FixtureRequest, built: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulted]:
    """Return a machine after a re-run of its measuring cell that failed: not to be changed."""
    code, failure = FAULTS[request.param]
    machine = copy(built, tmp_path_factory.mktemp("faulted"))
    machine.says(NEXT)
    machine.fault(CHILDREN + code)
    limit = {"FLUXBENCH_CELL_LIMIT_S": "3"} if "hang" in request.param else {}
    try:
        yield Faulted(machine=machine, done=machine.run("rerun", "measuring", **limit), failure=failure)
    finally:
        machine.tidy()


def test_a_cell_that_fails_ends_the_command_with_1_and_a_sentence_that_says_how(faulted: Faulted) -> None:
    assert faulted.done.code == 1
    assert faulted.done.problems == [
        f"fluxbench: cell measuring failed: {faulted.failure}",
        "fluxbench: cell figure was not run: it needs measuring, which failed",
    ]


def test_no_process_of_a_cell_that_fails_survives(faulted: Faulted) -> None:
    assert len(faulted.machine.pids()) == 3
    assert faulted.machine.left() == []


def test_the_page_shows_the_last_good_result_of_a_cell_that_failed_and_says_why(faulted: Faulted) -> None:
    last = faulted.machine.store.last_good("measuring")
    assert last
    assert faulted.machine.shown("measuring").startswith(
        f"[The last run of this cell failed: {faulted.failure}. What follows is its last good result, "
        f"of {utc(last.ran_at)}.] measured: {BETTER}"
    )
    assert NEXT not in faulted.machine.page.read_text(encoding="utf-8")


def test_the_page_shows_the_last_good_result_of_a_cell_that_needs_one_that_failed(faulted: Faulted) -> None:
    last = faulted.machine.store.last_good("figure")
    assert last
    assert faulted.machine.shown("figure") == (
        "[Not run: it needs measuring, which failed. What follows is its last good result, "
        f"of {utc(last.ran_at)}.] the figure of 1 record"
    )


def test_the_page_shows_a_cell_that_did_not_fail_as_ever(faulted: Faulted) -> None:
    assert faulted.machine.shown("steady") == "the steady cell"


def test_the_last_good_result_of_a_cell_that_failed_is_kept(faulted: Faulted) -> None:
    assert faulted.machine.good() == f"measured: {BETTER}\n"
    assert faulted.machine.good("figure") == "the figure of 1 record\n"


def test_the_status_tells_which_cells_failed(faulted: Faulted) -> None:
    assert faulted.machine.states() == {"steady": "fresh", "measuring": "failed", "figure": "stale"}


def test_the_build_after_a_cell_failed_works(faulted: Faulted, tmp_path: Path) -> None:
    copy(faulted.machine, tmp_path).works()


def test_a_cell_that_fails_at_first_is_on_the_page_with_what_it_said(machine: Machine) -> None:
    shutil.rmtree(machine.notebook.parent / ".uvnote")
    machine.fault("print('what it printed', flush=True)\nraise ValueError('the GPU is on fire')")
    done = machine.run("build")
    assert (done.code, len(done.problems)) == (1, 2)
    shown = machine.shown("measuring")
    assert shown.startswith(
        "[The last run of this cell failed: it ended with exit code 1: ValueError: the GPU is on fire.] what it printed"
    )
    assert "Traceback (most recent call last)" in shown
    machine.works()


# What a cell prints.


def test_of_a_cell_that_prints_100_mb_the_page_shows_both_ends_and_how_much_is_left_out(machine: Machine) -> None:
    machine.fault("print('BEGINS')\nfor _ in range(1000): print('x' * 99_999)\nprint('ENDS')")
    measured = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[2:]); "
        "open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); sys.exit(code)"
    )  # a child's peak begins at that of who starts it, which with torch loaded may be any
    command = [sys.executable, "-m", "fluxbench.cli", *machine.arguments("rerun", "measuring")]
    most = machine.folder / "most.txt"
    done = subprocess.run([sys.executable, "-c", measured, str(most), *command], env=machine.environment())
    assert done.returncode == 0
    assert int(most.read_text(encoding="utf-8")) * 1024 < 300e6
    assert machine.page.stat().st_size < 2e6
    shown = machine.shown("measuring")
    assert shown.startswith("BEGINS x")
    assert re.search(r"x \[\.\.\. 99\.\d MB of output are left out here \.\.\.\] x", shown)
    assert f"x ENDS measured: {BETTER}" in shown
    machine.works("rerun", "measuring")


def test_of_a_cell_that_complains_without_a_line_break_and_fails_the_sentence_is_short(machine: Machine) -> None:
    machine.fault("import sys\nfor _ in range(20): sys.stderr.write('x' * 1_000_000)\nsys.exit(1)")
    done = machine.run("rerun", "measuring")
    assert done.code == 1
    assert len(done.problems[0]) < 500
    assert machine.page.stat().st_size < 2e6
    assert f"] measured: {BETTER}" in machine.shown("measuring")
    machine.works()


def test_bytes_that_are_not_utf_8_are_shown_as_replacement_characters(machine: Machine) -> None:
    machine.fault("import sys\nsys.stdout.buffer.write(b'caf\\xe9 \\xff\\x00 ' + 'é\\n'.encode())\nsys.stdout.flush()")
    assert machine.run("rerun", "measuring").code == 0
    assert machine.shown("measuring").startswith("caf\ufffd \ufffd\x00 é measured")
    machine.works("rerun", "measuring")


def test_a_failure_in_bytes_that_are_not_utf_8_is_said_with_replacement_characters(machine: Machine) -> None:
    machine.fault("import sys\nsys.stderr.buffer.write(b'caf\\xe9\\n')\nsys.exit(1)")
    done = machine.run("rerun", "measuring")
    assert done.code == 1
    assert done.problems[0] == "fluxbench: cell measuring failed: it ended with exit code 1: caf\ufffd"
    assert f"] measured: {BETTER}" in machine.shown("measuring")
    machine.works()


# A package that does not exist, which uv alone can tell.


def test_a_package_that_does_not_exist_costs_its_cell_and_says_which(machine: Machine) -> None:
    try:
        uv = environments.uv()
    except SetupError:
        pytest.skip("needs a uv, on PATH or named by UV")
    (machine.folder / "wheels").mkdir()
    text = machine.notebook.read_text(encoding="utf-8")
    asks = '# requires-python = ">=3.11"\n# dependencies = ["no-such-package-of-fluxbench==1.0"]\n'
    machine.notebook.write_text(text.replace('# requires-python = ">=3.11"\n', asks), encoding="utf-8")
    offline = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(machine.folder / "wheels")}
    done = machine.run("build", UV=uv, UV_CACHE_DIR=str(machine.folder / "uv-cache"), **offline)
    assert done.code == 1
    failed, not_run = done.problems
    assert failed.startswith("fluxbench: cell measuring failed: ")
    assert "no-such-package-of-fluxbench" in failed
    assert not_run == "fluxbench: cell figure was not run: it needs measuring, which failed"
    assert f"] measured: {BETTER}" in machine.shown("measuring")
    machine.notebook.write_text(text, encoding="utf-8")
    machine.works()


# fluxbench itself is interrupted, terminated, hung up or killed, in the middle of a measurement.


def by_name(process: subprocess.Popen[str]) -> None:
    """Kill what `pkill -9 -f fluxbench` would: whatever has the name in its command line."""
    for pid in [process.pid, *descendants(process.pid)]:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(b"fluxbench" in argument for argument in line[1:]):  # without the interpreter, which may lie anywhere
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="utf-8").split():
            found += [int(child), *descendants(int(child))]
    return found


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """What ends fluxbench, and what is to come of it."""

    send: Callable[[subprocess.Popen[str]], None]
    code: int
    said: str = ""


KEPT = "finished cells and all earlier results are kept"
INTERRUPTIONS = {
    # A terminal sends it to the whole process group.
    "Ctrl-C": Interruption(
        send=lambda process: os.killpg(process.pid, signal.SIGINT), code=130, said=f"fluxbench: interrupted; {KEPT}"
    ),
    "SIGTERM": Interruption(send=lambda process: process.terminate(), code=143, said=f"fluxbench: terminated; {KEPT}"),
    "SIGHUP": Interruption(send=lambda process: process.send_signal(signal.SIGHUP), code=-signal.SIGHUP),
    "SIGKILL": Interruption(send=lambda process: process.kill(), code=-signal.SIGKILL),
    "SIGKILL by name": Interruption(send=by_name, code=-signal.SIGKILL),
}


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """A machine after its fluxbench was ended, and what is to come of it."""

    machine: Machine
    done: Done
    expected: Interruption
    at_once: list[int]  # who was alive when fluxbench had ended


@pytest.fixture(scope="module", params=INTERRUPTIONS)
def interrupted(
    request: pytest.FixtureRequest, built: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Interrupted]:
    """Return a machine whose fluxbench was ended while its second cell measured: not to be changed."""
    expected = INTERRUPTIONS[request.param]
    machine = copy(built, tmp_path_factory.mktemp("interrupted"))
    machine.says(NEXT)
    machine.fault(CHILDREN + "print(os.getpid(), file=pids, flush=True)\ntime.sleep(600)")
    process = machine.start("rerun", "steady", "measuring")
    try:
        assert until(lambda: len(machine.pids()) == 4)
        expected.send(process)
        done = ended(process)
        yield Interrupted(machine=machine, done=done, expected=expected, at_once=machine.left())
    finally:
        process.kill()
        machine.tidy()


def test_the_exit_code_tells_how_fluxbench_was_ended(interrupted: Interrupted) -> None:
    assert interrupted.done.code == interrupted.expected.code


def test_fluxbench_says_so_in_one_sentence_where_it_is_let(interrupted: Interrupted) -> None:
    assert interrupted.done.problems == ([interrupted.expected.said] if interrupted.expected.said else [])
    assert "Traceback" not in interrupted.done.err


def test_no_process_survives_the_end_of_fluxbench(interrupted: Interrupted) -> None:
    assert until(lambda: interrupted.machine.left() == [])
    if interrupted.expected.said:  # it had time to see to it
        assert interrupted.at_once == []


def test_the_folder_of_the_cell_is_removed_after_the_end_of_fluxbench(interrupted: Interrupted) -> None:
    assert until(lambda: interrupted.machine.temporary() == [])


def test_the_page_is_the_one_before_fluxbench_was_ended(interrupted: Interrupted, built: Machine) -> None:
    assert interrupted.machine.page.read_bytes() == built.page.read_bytes()


def test_finished_cells_and_earlier_results_are_kept_when_fluxbench_is_ended(interrupted: Interrupted) -> None:
    machine = interrupted.machine
    assert machine.store.numbers("steady") == [2, 1]
    assert machine.store.numbers("measuring") == [2, 1]
    assert machine.good() == f"measured: {BETTER}\n"
    assert machine.states() == {"steady": "fresh", "measuring": "fresh", "figure": "fresh"}


def test_the_run_after_fluxbench_was_ended_works(interrupted: Interrupted, tmp_path: Path) -> None:
    assert until(lambda: interrupted.machine.left() == [])
    assert until(lambda: interrupted.machine.temporary() == [])
    copy(interrupted.machine, tmp_path).works("rerun", "measuring")


def test_what_was_half_kept_or_half_drawn_when_fluxbench_was_killed_is_cleared_by_the_next_run(
    machine: Machine,
) -> None:
    part = machine.notebook.parent / ".uvnote" / "cache" / ".made_up.measuring.00003.part"
    part.mkdir()
    (part / "measuring.jsonl").write_text('{"half', encoding="utf-8")
    for name in (".made_up.html", ".made_up.html.tmp"):
        (machine.page.parent / name).write_text("<html><bo", encoding="utf-8")
    machine.works("rerun", "measuring")
    assert machine.store.numbers("measuring") == [3, 2, 1]


# Two builds of one notebook at once.


def test_a_second_build_is_refused_and_the_first_goes_on(machine: Machine) -> None:
    machine.says(NEXT)
    machine.fault("import time\n(folder / 'begun').touch()\nwhile not (folder / 'go').exists(): time.sleep(0.01)")
    before = machine.page.read_bytes()
    first = machine.start("rerun", "measuring")
    try:
        assert until((machine.folder / "prepared" / "begun").exists)
        second = machine.run("build")
        assert (second.code, second.out) == (2, "")
        assert second.err == f"fluxbench: another build runs in {machine.notebook.parent}; wait until it ends\n"
        assert machine.page.read_bytes() == before
    finally:
        (machine.folder / "prepared" / "go").touch()
        done = ended(first)
    assert (done.code, done.problems) == (0, [])
    assert machine.shown("measuring").startswith(f"measured: {NEXT}")
    assert machine.store.numbers("steady") == [1]
    machine.works("rerun", "measuring")


def test_a_lock_that_nobody_holds_keeps_nobody_out(machine: Machine) -> None:
    with (machine.notebook.parent / ".uvnote" / "fluxbench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    machine.works("rerun", "measuring")


# A full disk. /dev/full is one as soon as it is written to.

FULL = "fluxbench: the disk is full"


def test_a_disk_that_is_full_when_the_page_is_drawn_leaves_the_page_before(machine: Machine) -> None:
    before = machine.page.read_bytes()
    (machine.page.parent / ".made_up.html.tmp").symlink_to("/dev/full")
    machine.says(NEXT)
    done = machine.run("rerun", "measuring")
    assert (done.code, done.problems) == (2, [f"{FULL}; free some space and run it again"])
    assert machine.page.read_bytes() == before
    assert machine.good() == f"measured: {NEXT}\n"
    machine.works()


def test_a_disk_that_is_full_when_the_artifacts_are_copied_leaves_the_page_before(machine: Machine) -> None:
    before = machine.page.read_bytes()
    (machine.page.parent / "artifacts" / "measuring" / "measuring.jsonl.tmp").symlink_to("/dev/full")
    machine.says(NEXT)
    done = machine.run("rerun", "measuring")
    assert (done.code, len(done.problems)) == (2, 1)
    assert done.problems[0].startswith(FULL)
    assert machine.page.read_bytes() == before
    (machine.page.parent / "artifacts" / "measuring" / "measuring.jsonl.tmp").unlink()
    machine.works("rerun", "measuring")


def test_a_disk_that_is_full_when_a_cell_is_written_down_leaves_everything(machine: Machine) -> None:
    before = machine.page.read_bytes()
    script = machine.notebook.parent / ".uvnote" / "cells" / "measuring.py"
    script.unlink()
    script.symlink_to("/dev/full")
    machine.says(NEXT)
    done = machine.run("rerun", "steady", "measuring")
    assert (done.code, done.problems) == (2, [f"{FULL}; free some space and run it again"])
    assert machine.page.read_bytes() == before
    assert machine.store.numbers("steady") == [2, 1]  # which had finished
    assert machine.good() == f"measured: {BETTER}\n"
    script.unlink()
    machine.works("rerun", "measuring")


def test_a_disk_that_is_full_in_a_cell_is_a_failure_of_the_cell(machine: Machine) -> None:
    machine.fault("with open('/dev/full', 'w') as file: file.write('x')")
    done = machine.run("rerun", "measuring")
    assert done.code == 1
    assert done.problems[0] == (
        "fluxbench: cell measuring failed: it ended with exit code 1: OSError: [Errno 28] No space left on device"
    )
    assert f"] measured: {BETTER}" in machine.shown("measuring")
    machine.works()


# A file system of a few pages on the notebook's folder, full but for what the lock needs.
FULL_FOLDER = """
set -e
cp -r "$1" "$1.copy"
mount -t tmpfs -o size=2m tmpfs "$1"
cp -r "$1.copy/." "$1"
dd if=/dev/zero of="$1/filler" bs=4k 2> /dev/null || true
code=0
"$3" -m fluxbench.cli rerun "$1/made_up.md" measuring --output "$2" || code=$?
rm -rf "$1.copy"
cp -r "$1" "$1.copy"
exit $code
"""


def test_a_disk_that_is_full_when_a_result_is_kept_leaves_the_results_before(machine: Machine) -> None:
    notebooks = machine.notebook.parent
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = [*namespace, 'mount -t tmpfs none "$0"', str(machine.folder / "tmp")]
    if not shutil.which("unshare") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs a file system of its own, by unshare and mount")
    before = machine.page.read_bytes()
    machine.says(NEXT)
    ran = subprocess.run(
        [*namespace, FULL_FOLDER, "sh", str(notebooks), str(machine.page.parent), sys.executable],
        env=machine.environment(),
        capture_output=True,
        encoding="utf-8",
    )
    done = Done(code=ran.returncode, out=ran.stdout, err=ran.stderr)
    assert (done.code, len(done.problems)) == (2, 1)
    assert done.problems[0].startswith(FULL)
    assert "Traceback" not in done.err
    assert machine.page.read_bytes() == before
    shutil.rmtree(notebooks)
    (notebooks.parent / "notebooks.copy").rename(notebooks)
    (notebooks / "filler").unlink()
    assert machine.store.numbers("measuring") == [2, 1]
    assert machine.good() == f"measured: {BETTER}\n"
    machine.works("rerun", "measuring")


def full(*arguments: Any, **named: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["shutil.copy2", "os.fsync"], ids=["records", "result.json"])
def test_a_disk_that_is_full_at_any_file_of_a_result_leaves_the_results_before(
    here: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    before = here.page.read_bytes()
    here.says(NEXT)
    with monkeypatch.context() as patch:
        patch.setattr(step, full)
        assert cli.main(here.arguments("rerun", "measuring")) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fluxbench: ")]
    assert said == [f"{FULL}; free some space and run it again"]
    assert here.page.read_bytes() == before
    assert hidden(here.notebook.parent / ".uvnote" / "cache") == []
    assert here.good() == f"measured: {BETTER}\n"
    here.works("rerun", "measuring")


# A record or a result that is damaged.


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def garbled(path: Path) -> None:
    path.write_bytes(b"\x89PNG\xff\xfe")


DAMAGES = [("result.json", cut), ("result.json", garbled), ("measuring.jsonl", cut), ("measuring.jsonl", Path.unlink)]


@pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_of_a_damaged_result_the_one_before_is_shown_until_the_next_build(
    here: Machine, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    last = here.store.last_good("measuring")
    assert last
    damage(last.folder / name)
    assert cli.main(here.arguments("status")) == 1
    assert "measuring  stale" in (said := capsys.readouterr().out)
    assert "its last result is damaged; this is the one before" in said
    assert cli.main(here.arguments("rerun", "steady")) == 0  # which draws the page and leaves the damage
    before = here.store.last_good("measuring")
    assert before
    assert here.shown("measuring").startswith(
        "[Not as this machine is now: its last result is damaged; this is the one before. "
        f"This is its last good result, of {utc(before.ran_at)}.] measured: {GOOD}"
    )
    here.says(NEXT)
    here.works()


def test_a_damaged_result_without_one_before_is_none_until_the_next_build(
    here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in here.store.numbers("measuring"):
        result = here.store.get("measuring", number)
        assert result
        cut(result.folder / "result.json")
    assert cli.main(here.arguments("status")) == 1
    assert "its result is damaged" in capsys.readouterr().out
    assert cli.main(here.arguments("rerun", "steady")) == 0
    assert here.shown("measuring") == "[Not run: its result is damaged.]"
    here.works()


def test_records_that_are_garbled_in_place_are_measured_again(
    here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    last = here.store.last_good("measuring")
    assert last
    file = last.folder / "measuring.jsonl"
    file.write_bytes(b"\0" * file.stat().st_size)  # as a power cut leaves it
    assert cli.main(here.arguments("status")) == 1
    assert "its records are damaged" in capsys.readouterr().out
    here.works()


# A clock that is set back.


class Back(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Back:
        return cls(1999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_after_the_clock_is_set_back_the_last_result_is_the_last(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "datetime", Back)
    here.says(NEXT)
    assert cli.main(here.arguments("rerun", "measuring")) == 0
    assert here.shown("measuring").startswith(f"measured: {NEXT}")
    assert here.good() == f"measured: {NEXT}\n"
    assert here.states() == {"steady": "fresh", "measuring": "fresh", "figure": "fresh"}
    here.fault("raise ValueError")
    assert cli.main(here.arguments("rerun", "measuring")) == 1
    assert f"its last good result, of 1999-12-31 23:59:59 UTC.] measured: {NEXT}" in here.shown("measuring")
    monkeypatch.undo()
    here.works()


# A locale that knows ASCII alone.


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["C", "ASCII"],
)
def test_a_locale_without_a_letter_beyond_ascii_changes_nothing(machine: Machine, variables: dict[str, str]) -> None:
    machine.says("ü × —")
    text = machine.notebook.read_text(encoding="utf-8")
    machine.notebook.write_text(text.replace("the steady cell", "the stéady cell"), encoding="utf-8")
    done = machine.run("rerun", "steady", "measuring", **variables)
    assert (done.code, done.problems) == (0, [])
    assert machine.shown("steady") == "the stéady cell"
    assert machine.shown("measuring").startswith("measured: ü × —")
    assert "<title>Made up — überall</title>" in machine.page.read_text(encoding="utf-8")
    machine.fault("raise ValueError('ü × —')")
    done = machine.run("rerun", "measuring", **variables)
    assert (done.code, len(done.problems)) == (1, 2)
    assert "ValueError: ü × —. What follows is its last good result" in machine.shown("measuring")
