"""What a person may set in environment variables, and which target a device is."""

from __future__ import annotations

import dataclasses
import errno
import sys
from pathlib import Path

import pytest
from fakes import CPU, GPU, REPOSITORY, clean

from fluxbench.core.errors import SetupError, full_disk
from fluxbench.core.settings import Settings
from fluxbench.device import targets


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


def test_without_a_setting_everything_is_the_default() -> None:
    assert Settings.load() == Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")


@pytest.mark.parametrize("name", ["PYTHON", "WHEELS", "WORKLOADS", "ALL", "CACHE", "CELL_LIMIT_S"])
def test_an_empty_setting_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"FLUXBENCH_{name}", "")
    assert Settings.load() == Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")


def test_every_setting_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", sys.executable)
    monkeypatch.setenv("FLUXBENCH_WHEELS", str(tmp_path))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", "flux1-512px, wan-480p,")
    monkeypatch.setenv("FLUXBENCH_ALL", "1")
    monkeypatch.setenv("FLUXBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", "1200")
    assert Settings.load() == Settings(
        root=REPOSITORY,
        cache=tmp_path / "cache",
        python=sys.executable,
        wheels=tmp_path,
        workloads=("flux1-512px", "wan-480p"),
        all=True,
        cell_limit_s=1200.0,
    )


@pytest.mark.parametrize(("value", "all_of_it"), [("1", True), ("0", False), ("", False)])
def test_leaving_nothing_out_is_asked_for_with_a_1(
    value: str, all_of_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUXBENCH_ALL", value)
    assert Settings.load().all is all_of_it


def test_a_folder_of_wheels_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_WHEELS", str(tmp_path / "missing"))
    with pytest.raises(SetupError, match="FLUXBENCH_WHEELS must be a folder of wheels, got"):
        Settings.load()


@pytest.mark.parametrize("python", ["/missing/python", "python3-of-nobody"])
def test_an_interpreter_that_is_none_is_refused(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", python)
    with pytest.raises(SetupError, match="FLUXBENCH_PYTHON must be the full path of an interpreter, got"):
        Settings.load()


@pytest.mark.parametrize("limit", ["soon", "0", "-20", "1.5", "20 s", " 20", "nan", "inf", "1e3"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", limit)
    with pytest.raises(SetupError) as caught:
        Settings.load()
    assert str(caught.value) == f"FLUXBENCH_CELL_LIMIT_S must be a whole number of seconds, got {limit!r}"


# A full disk.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_spent_quota_are_one_sentence(number: int) -> None:
    assert full_disk(OSError(number, "no room")) == "the disk is full; free some space and run it again"
    named = OSError(number, "no room", "/a/sdpa.jsonl")
    assert full_disk(named) == "the disk is full (/a/sdpa.jsonl); free some space and run it again"


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOENT])
def test_another_error_is_no_full_disk(number: int) -> None:
    assert full_disk(OSError(number, "something else", "/a/sdpa.jsonl")) is None


def test_an_error_without_a_number_is_no_full_disk() -> None:
    assert full_disk(OSError("no room")) is None


# Targets.


def test_a_device_that_is_not_named_gets_the_defaults_under_its_own_name() -> None:
    found = targets.of(GPU, REPOSITORY)
    assert (found.name, found.locks, found.leaves_out) == ("made-up", ("torch-2.13.0.txt",), ())


def test_a_cpu_is_offered_the_cpu_build_first() -> None:
    assert targets.of(CPU, REPOSITORY).locks == ("torch-2.13.0+cpu.txt", "torch-2.13.0.txt")


def test_an_h200_leaves_out_what_tunes_for_minutes_and_expects_the_variants_of_the_report() -> None:
    found = targets.of(dataclasses.replace(GPU, name="NVIDIA H200"), REPOSITORY)
    assert (found.name, found.leaves_out) == ("h200", ("torch_math_compile_ma",))
    assert {"torch_cudnn", "torch_flash", "torch_efficient", "torch_math", "torch_native", "flex", "triton_flash"} <= (
        set(found.expects)
    )


def test_what_a_target_does_not_say_is_as_for_any(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "targets.toml").write_text(
        '[any]\nlocks = ["a.txt"]\nleaves_out = ["x"]\nexpects = ["y"]\n[made-up]\nexpects = ["z"]\n', encoding="utf-8"
    )
    found = targets.of(GPU, tmp_path)
    assert (found.locks, found.leaves_out, found.expects) == (("a.txt",), ("x",), ("z",))
