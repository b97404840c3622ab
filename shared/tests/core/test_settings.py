"""What a person may set in environment variables."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from fakes import REPOSITORY, clean

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings

DEFAULT = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


def test_without_a_setting_or_with_empty_ones_everything_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load() == DEFAULT
    numbers = ("CELL_LIMIT_S", "LIMIT_S", "UNTIL", "PROCESSES", "RUNS")
    for name in ("PYTHON", "TORCH", "WHEELS", "WORKLOADS", "ALL", "CACHE", *numbers):
        monkeypatch.setenv(f"FLUXBENCH_{name}", "")
    assert Settings.load() == DEFAULT
    monkeypatch.setenv("FLUXBENCH_ALL", "0")
    assert Settings.load() == DEFAULT


def test_every_setting_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", sys.executable)
    monkeypatch.setenv("FLUXBENCH_WHEELS", str(tmp_path))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px, wan-480p,")
    monkeypatch.setenv("FLUXBENCH_ALL", "1")
    monkeypatch.setenv("FLUXBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", "1200")
    monkeypatch.setenv("FLUXBENCH_LIMIT_S", "3600")
    monkeypatch.setenv("FLUXBENCH_UNTIL", "86400.125")
    monkeypatch.setenv("FLUXBENCH_PROCESSES", "12")
    monkeypatch.setenv("FLUXBENCH_RUNS", "4")
    assert Settings.load() == Settings(
        root=REPOSITORY,
        cache=tmp_path / "cache",
        python=sys.executable,
        wheels=tmp_path,
        workloads=("flux1-512px", "wan-480p"),
        all=True,
        cell_limit_s=1200.0,
        limit_s=3600.0,
        until=86400.125,
        processes=12,
        runs=4,
    )


def test_a_torch_is_one_that_is_locked_and_no_interpreter_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_TORCH", "2.15.0")
    assert Settings.load() == dataclasses.replace(DEFAULT, torch="2.15.0")
    monkeypatch.setenv("FLUXBENCH_PYTHON", sys.executable)
    with pytest.raises(SetupError, match=r"^FLUXBENCH_TORCH must be unset with FLUXBENCH_PYTHON, .* got '2.15.0'$"):
        Settings.load()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("WHEELS", "/missing", "a folder of wheels"),
        ("PYTHON", "/missing/python", "the full path of an interpreter"),
        ("PYTHON", "python3-of-nobody", "the full path of an interpreter"),
        *(
            ("TORCH", version, "one of 2.13.0, 2.15.0, which are locked")
            for version in ("2.14.0", "2.13.0+cpu", "../x")
        ),
        *(
            (name, limit, "a positive whole number of seconds")
            for name in ("CELL_LIMIT_S", "LIMIT_S")
            for limit in ("soon", "0", "-20", "1.5", " 20", "1e3")
        ),
        *(("PROCESSES", count, "a whole number from 3 to 99") for count in ("2", "100", "08", "many", "4.0")),
    ],
)
def test_a_setting_that_cannot_be_is_refused(name: str, value: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"FLUXBENCH_{name}", value)
    with pytest.raises(SetupError) as caught:
        Settings.load()
    of_make = {"LIMIT_S": "LIMIT", "PROCESSES": "PROCESSES"}
    shown = f"{of_make[name]} (FLUXBENCH_{name})" if name in of_make else f"FLUXBENCH_{name}"
    assert str(caught.value) == f"{shown} must be {rule}, got {value!r}"
