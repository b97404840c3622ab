"""A cell's calls under plain uvnote: however one ends, the cell goes on and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import REPOSITORY, is_alive, until

CELL = """
import os, signal, sys, time
from fluxbench.core import plain

@plain.goes_on
def call():
    {}

call()
print("the cell went on")
"""
ENDS = {
    "well": ("print('shown')", "shown\n", ""),
    "a sentence": ("sys.exit('fluxbench: no uv')", "fluxbench: __main__.call did not succeed; {}\n", "no uv"),
    "an exception": ("1 / 0", "fluxbench: __main__.call did not succeed; {}\n", "ZeroDivisionError"),
    "a kill": ("os.kill(os.getpid(), 9)", "fluxbench: __main__.call was ended by SIGKILL; {}\n", ""),
    "a crash": ("os.abort()", "fluxbench: __main__.call was ended by SIGABRT; {}\n", ""),
}
SLOW_FORK = """
import os, time

fork = os.fork

def slow():
    child = fork()
    if child:
        time.sleep(0.5)
    return child

os.fork = slow
"""
AGAIN = "uvnote keeps this until the cell changes: `uvnote build --rerun` tries again"


def start(folder: Path, code: str, name: str = ".uvnote/cells") -> subprocess.Popen[str]:
    script = folder / name / "a.py"
    script.parent.mkdir(parents=True)
    script.write_text(CELL.format(code), encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'shared' / 'src'}:{folder}"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, script], env=variables, stdout=pipe, stderr=pipe, encoding="utf-8")


@pytest.mark.parametrize(("code", "out", "err"), ENDS.values(), ids=ENDS)
def test_a_cell_of_plain_uvnote_goes_on(tmp_path: Path, code: str, out: str, err: str) -> None:
    cell = start(tmp_path, code)
    stdout, stderr = cell.communicate(timeout=60)
    assert (cell.returncode, stdout) == (0, f"{out.format(AGAIN)}the cell went on\n")
    assert err in stderr
    assert bool(err) == bool(stderr)


def test_a_signal_to_a_cell_ends_its_call_alone(tmp_path: Path) -> None:
    cell = start(tmp_path, "print('begun', flush=True); time.sleep(600)")
    assert cell.stdout
    assert cell.stdout.readline() == "begun\n"
    cell.send_signal(signal.SIGTERM)
    assert "was ended by SIGTERM" in cell.stdout.readline()
    cell.send_signal(signal.SIGTERM)  # as uv hands it on
    cell.communicate(timeout=60)
    assert cell.returncode == 0


def test_a_signal_that_comes_before_the_cell_waits_for_its_call_ends_the_call_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_FORK, encoding="utf-8")
    cell = start(tmp_path, "print('begun', flush=True); time.sleep(600)")
    assert cell.stdout
    assert cell.stdout.readline() == "begun\n"
    cell.send_signal(signal.SIGTERM)
    assert "was ended by SIGTERM" in cell.communicate(timeout=60)[0]
    assert cell.returncode == 0


def test_a_killed_cell_leaves_no_process(tmp_path: Path) -> None:
    cell = start(tmp_path, "print(os.getpid(), flush=True); time.sleep(600)")
    assert cell.stdout
    call = int(cell.stdout.readline())
    cell.kill()
    assert until(lambda: not is_alive(call))
    cell.communicate(timeout=60)


def test_elsewhere_a_cell_fails_as_ever(tmp_path: Path) -> None:
    cell = start(tmp_path, "sys.exit('fluxbench: no uv')", ".uvnote/made_up.cells")
    assert (cell.communicate(timeout=60), cell.returncode) == (("", "fluxbench: no uv\n"), 1)
