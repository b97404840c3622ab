"""fluxbench as a process of its own, and so its cells, in a folder with a notebook of one cell; uv is a fake."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import REPOSITORY, clean

# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h: without them modes hold for root.
WHAT_ROOT_MAY = (1, 2)
CELL = "import os, pathlib\nexec(os.environ.get('FAULT', ''))\nprint('done')"
UV = f'''#!/bin/sh
case "$1" in
run) shift; exec "{sys.executable}" "$@" ;;
cache) echo "${{UV_CACHE_DIR:-$HOME/.cache/uv}}" ;;
esac
'''
BUILD, RERUN, STATUS = ("build", "x.md"), ("rerun", "x.md", "a"), ("status", "x.md")


def one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a notebook of one cell that was never run."""
    clean(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("x.md").write_text(f"```python id=a\n{CELL}\n```\n", encoding="utf-8")
    for name in ("tmp", "home"):
        Path(name).mkdir()
    uv = Path("uv")
    uv.write_text(UV, encoding="utf-8")
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv.absolute()))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("FLUXBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "shared" / "src"))


def fluxbench(*arguments: str, first: Callable[[], object] = bool) -> tuple[int, str, str]:
    """Run a command, `first` in its process before it starts; return its exit code, stdout and stderr."""

    def prepare() -> None:
        for capability in WHAT_ROOT_MAY:
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP of linux/prctl.h
        first()

    done = subprocess.run(
        [sys.executable, "-m", "fluxbench.cli", *arguments],
        capture_output=True,
        encoding="utf-8",
        preexec_fn=prepare,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr
