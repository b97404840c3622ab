"""A broken .venv is noticed, and `make setup` makes it anew."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fakes import REPOSITORY, executable

from fluxbench.environments.installed import problem


def test_every_file_of_a_locked_package_must_be_there_and_as_long_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, module, facts = tmp_path / "lock.txt", tmp_path / "made_up.py", tmp_path / "made_up-1.0.dist-info"
    lock.write_text("made-up==1.0 \\\n    --hash=sha256:0\n", encoding="utf-8")
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n", encoding="utf-8")
    (facts / "RECORD").write_text("made_up.py,sha256=0,4\nmade_up.pyc,,\nmade_up-1.0.dist-info/RECORD,,\n")
    module.write_text("1+1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert problem([lock]) is None
    module.write_text("1+", encoding="utf-8")
    assert problem([lock]) == f"{module} of made-up is missing or truncated"
    module.unlink()
    assert problem([lock]) == f"{module} of made-up is missing or truncated"
    (facts / "RECORD").unlink()
    assert problem([lock]) == "RECORD of made-up is missing or truncated"
    shutil.rmtree(facts)
    assert problem([lock]) == "made-up is missing"


@pytest.mark.parametrize("python", [None, "raise SystemExit('it is broken')"])
def test_setup_begins_anew_where_parts_are_missing(tmp_path: Path, python: str | None) -> None:
    for name in ("Makefile", "environment", "shared"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "ready").touch()
    if python:
        executable(tmp_path / ".venv" / "bin" / "python", python)
    base = executable(tmp_path / "base", "import sys; print('base', *sys.argv[1:3]); sys.exit('-m' in sys.argv)")
    done = subprocess.run(
        ["make", "setup", f"PYTHON={base}"], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60
    )
    assert "\nbase -m venv\n" in done.stdout
    assert done.returncode == 2
    assert not (tmp_path / ".venv" / "ready").exists()
