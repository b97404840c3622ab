"""Cells of one environment: forks of one process, each with what a cell that runs by itself has."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest
from children import CHILDREN
from fakes import REPOSITORY, is_alive, until
from notebooks import Machine

from fluxbench.notebook import runner, supervisor

HEADER = '# /// script\n# dependencies = ["fluxbench"]\n# ///\n'


@pytest.fixture
def drawing(machine: Machine) -> Machine:
    """A machine whose uv makes an environment with fluxbench, and notes what it is asked to run."""
    machine.monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))
    machine.monkeypatch.setenv("PIDS", str(machine.folder / "pids.txt"))
    uv = machine.folder / "bin" / "uv"
    uv.write_text(f'#!/bin/sh\necho "$*" >> "$UV_LOG"\nshift\n"{sys.executable}" "$@"\nexit $?\n', encoding="utf-8")
    machine.monkeypatch.setenv("UV_CACHE_DIR", str(machine.folder))
    return machine


def calls(machine: Machine) -> list[str]:
    """Return the names of the scripts that uv was to run."""
    lines = (machine.folder / "uv.log").read_text(encoding="utf-8").splitlines()
    return [re.findall(r"/([\w.]+\.py)", line)[-1] for line in lines if line.startswith("run ")]


def test_cells_with_one_header_are_forks_of_one_process_and_each_is_as_if_it_ran_alone(drawing: Machine) -> None:
    code = (
        f"{HEADER}import os, sys\n"
        "print(os.getppid(), os.nice(0) - PRIORITY, [name for name in os.listdir() if name[0] != '.'], __name__, "
        "os.listdir(os.environ['HOME']), os.environ.get('UVNOTE_INPUTS'), [arg.split('/')[-1] for arg in sys.argv], "
        "repr(sys.stdin.read()), os.getsid(0) == os.getpid(), 'fluxbench.report.figures' in sys.modules)\n"
        "print('to stderr', file=sys.stderr)"
    ).replace("PRIORITY", str(os.nice(0)))
    drawing.write(f"id=a: {code}", f"id=b needs=a: {code}", "id=c: print('by itself')")
    assert drawing.build().problems == ()
    assert sorted(calls(drawing)) == ["c.py", "resident.py"]
    parents = set()
    for cell_id, needs in (("a", "None"), ("b", "UVNOTE_INPUT_A")):
        parent, _, rest = drawing.good(cell_id).run.stdout.partition(" ")
        parents.add(parent)
        assert rest == f"0 ['home'] __main__ [] {needs} ['{cell_id}.py'] '' True True\n"
        assert drawing.good(cell_id).run.stderr == "to stderr\n"
    assert len(parents) == 2  # each has a supervisor of its own
    assert drawing.shown("c") == "by itself"


def test_a_cell_with_another_header_has_another_process(drawing: Machine) -> None:
    other = HEADER.replace('"fluxbench"', '"fluxbench", "more"')
    drawing.write(f"id=a: {HEADER}", f"id=b: {other}", f"id=c: {HEADER}# tool")
    assert drawing.build().problems == ()
    assert calls(drawing) == ["resident.py", "resident.py"]


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("", None),
        ("raise ValueError('no')", "it ended with exit code 1: ValueError: no"),
        ("sys.exit('fluxbench: it is on fire')", "it is on fire"),
        ("os.kill(os.getpid(), 11)", "it was ended by SIGSEGV"),
        ("time.sleep(600)", "it did not end within 6 s and was killed"),
        ("os.kill(os.getppid(), 9)\ntime.sleep(600)", runner.LOST),
        ("os.kill(os.getppid(), 19)", None),
    ],
    ids=["it ends", "it raises", "a sentence", "a signal", "late", "it kills its supervisor", "it stops it"],
)
def test_however_a_fork_ends_no_process_of_it_is_left_and_the_others_go_on(
    drawing: Machine, end: str, failure: str | None
) -> None:
    drawing.monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", "6")
    drawing.settings = dataclasses.replace(drawing.settings, cell_limit_s=6)
    drawing.write(f"id=a: {HEADER}{CHILDREN}{end}", f"id=b: {HEADER}import time; time.sleep(1); print('goes on')")
    built = drawing.build()
    assert built.problems == ((f"cell a failed: {failure}",) if failure else ())
    pids = [int(line) for line in (drawing.folder / "pids.txt").read_text(encoding="utf-8").split()]
    assert len(pids) == 3
    assert [pid for pid in pids if is_alive(pid)] == []
    assert drawing.shown("b") == "goes on"
    assert calls(drawing) == ["resident.py"]


@pytest.mark.parametrize("late_s", [0.0, 2.0])
def test_cells_run_by_themselves_where_one_of_them_kills_the_process_that_they_share(
    drawing: Machine, late_s: float
) -> None:
    """The supervisor of that process may take its time to end after all that it watches has."""
    text, end = Path(supervisor.__file__).read_text(encoding="utf-8"), "deadline)\n    return 0"
    assert text.count(end) == 1
    slow = drawing.folder / "supervisor.py"
    late = f"deadline)\n    time.sleep({late_s} if 'resident.py' in command[-2] else 0)\n    return 0"
    slow.write_text(text.replace(end, late), encoding="utf-8")
    drawing.monkeypatch.setattr(supervisor, "__file__", str(slow))
    kill = "import os, pathlib, time\nif 'resident' in pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text():\n"
    resident = "int(pathlib.Path(f'/proc/{os.getppid()}/stat').read_text().rpartition(')')[2].split()[1])"
    a, b = f"{HEADER}{kill}    os.kill({resident}, 9)\n    time.sleep(600)\nprint('of a')", f"{HEADER}print('of b')"
    drawing.write(f"id=a: {a}", f"id=b needs=a: {b}")
    assert drawing.build().problems == ()
    assert calls(drawing) == ["resident.py", "a.py", "b.py"]
    assert (drawing.shown("a"), drawing.shown("b")) == ("of a", "of b")


def test_a_command_of_another_thread_survives_a_cell_that_kills_its_supervisor(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("killer", "steady")]
    for folder in folders:
        folder.mkdir()
    noted = tmp_path / "pids.txt"
    steady = "import time, pathlib; pathlib.Path('begun').touch(); time.sleep(3); print('whole')"
    ended: list[runner.Ended] = []
    command = [sys.executable, "-c", steady]
    thread = threading.Thread(target=lambda: ended.append(runner.run(command, folders[1], dict(os.environ), 60.0)))
    thread.start()
    assert until(lambda: (folders[1] / "begun").exists())
    code = f"{CHILDREN}os.kill(os.getppid(), {int(signal.SIGKILL)})\ntime.sleep(600)"
    killer = runner.run([sys.executable, "-c", code], folders[0], {**os.environ, "PIDS": str(noted)}, 60.0)
    assert killer.failure == runner.LOST
    assert [pid for pid in map(int, noted.read_text(encoding="utf-8").split()) if is_alive(pid)] == []
    thread.join()
    assert (ended[0].failure, ended[0].stdout) == (None, "whole\n")
