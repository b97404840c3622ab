"""How long the first compilation of a variant took, which is kept beside what the compilers made."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import TINIER, TINY

from fluxbench.worker import first_compile
from fluxbench.worker.first_compile import FirstCompile

VERSIONS = {"torch": "2.11.0", "triton": "3.6.0"}


def first_s(folder: Path, measured_s: float | None, **fields: object) -> float | None:
    asked = {"variant": "flex", "workload": TINY, "versions": VERSIONS, **fields}
    return FirstCompile(folder, **asked).seconds(measured_s)  # type: ignore[arg-type]


def test_the_first_compilation_is_measured_once(tmp_path: Path) -> None:
    assert first_s(tmp_path, 8.5) == 8.5
    assert first_s(tmp_path, 0.1) == 8.5  # loaded from the caches
    assert first_s(tmp_path, 2.5, workload=TINIER) == 2.5
    assert first_s(tmp_path, 3.5, variant="flex_compile_d") == 3.5
    assert first_s(tmp_path, 4.5, versions={**VERSIONS, "triton": "3.9.0"}) == 4.5
    assert first_s(tmp_path, None, variant="torch_math") is None


def test_what_python_keeps_of_its_sources_makes_no_compilation_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "flash.py").write_text("1")
    monkeypatch.setattr(first_compile, "_PACKAGE", tmp_path)
    before = first_compile.sources.__wrapped__()
    (tmp_path / "kernels" / "__pycache__").mkdir()
    (tmp_path / "kernels" / "__pycache__" / "flash.cpython-312.pyc").write_bytes(b"2")
    assert first_compile.sources.__wrapped__() == before
    (tmp_path / "kernels" / "flash.py").write_text("3")
    assert first_compile.sources.__wrapped__() != before


def test_of_a_compilation_that_was_interrupted_nothing_is_known(tmp_path: Path) -> None:
    FirstCompile(tmp_path, "flex", TINY, VERSIONS)  # killed before it ended; the caches hold a part
    assert first_s(tmp_path, 0.1) is None
    next(tmp_path.glob("*.json")).write_text('{"', encoding="utf-8")  # a full disk
    assert first_s(tmp_path, 0.1) is None
