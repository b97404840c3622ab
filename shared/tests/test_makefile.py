"""What `make` passes on to fluxbench, which is a fake here, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import REPOSITORY, clean, executable

# Prints what it was called with, and ends with the code of FAKE_CODE.
FAKE = """import os, sys
print(os.environ.get("FLUXBENCH_PYTHON"), *sys.argv[1:])
sys.exit(int(os.environ["FAKE_CODE"]))
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clean(monkeypatch)
    for name in ("AMBIENT", "NOTEBOOK", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("Makefile", "environment", "shared"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    executable(tmp_path / ".venv" / "bin" / "fluxbench", FAKE)
    (tmp_path / ".venv" / "ready").touch()
    monkeypatch.setenv("FAKE_CODE", "0")
    return tmp_path


def make(clone: Path, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of `make`."""
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=clone, capture_output=True, encoding="utf-8", timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("target", ["report", "publish", "status", "rerun", "doctor"])
def test_an_interpreter_that_is_not_there_is_refused_before_anything_runs(clone: Path, target: str) -> None:
    code, out, err = make(clone, target, "CELL=sdpa", "AMBIENT=python-of-nobody")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "AMBIENT must be an interpreter, got 'python-of-nobody', which is not there; name one on PATH" in err


def test_an_interpreter_that_is_there_is_passed_on_with_its_full_path(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(executable(clone / "own" / "python-of-ours", ""))
    monkeypatch.setenv("HOME", str(clone))
    monkeypatch.setenv("PATH", f"{clone / 'own'}:{os.environ['PATH']}")
    monkeypatch.setenv("FLUXBENCH_PYTHON", sys.executable)
    assert make(clone, "report") == (0, f"{sys.executable} build notebooks/flux.md\n", "")
    for name in ("python-of-ours", "own/python-of-ours", "./own/python-of-ours", "~/own/python-of-ours", here):
        assert make(clone, "report", f"AMBIENT={name}") == (0, f"{here} build notebooks/flux.md\n", "")


@pytest.mark.parametrize(("target", "called"), [("status", "status notebooks/flux.md"), ("doctor", "doctor")])
def test_a_stale_cell_or_what_lacks_does_not_fail_make_and_what_else_its_command_ends_with_does(
    clone: Path, monkeypatch: pytest.MonkeyPatch, target: str, called: str
) -> None:
    for code, made in (("0", 0), ("1", 0), ("2", 2), ("70", 2), ("130", 2)):
        monkeypatch.setenv("FAKE_CODE", code)
        ended, out, err = make(clone, target)
        assert (ended, out) == (made, f"None {called}\n")
        assert err.endswith(f" {target}] Error {code}\n") if made else not err


def test_doctor_is_asked_of_a_notebook_only_where_one_is_named(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(clone, "doctor") == (0, "None doctor\n", "")
    assert make(clone, "doctor", "NOTEBOOK=notebooks/flux.md") == (0, "None doctor notebooks/flux.md\n", "")
    monkeypatch.setenv("NOTEBOOK", "notebooks/sdpa.md")
    assert make(clone, "doctor") == (0, "None doctor notebooks/sdpa.md\n", "")
