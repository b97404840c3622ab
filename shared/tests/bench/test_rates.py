"""The device's own rates: medians over fresh processes, or one sentence why there are none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_workers import HEADER, in_cell, interpreter
from fakes import CPU, without_uv

from fluxbench import bench

# Each process finds other rates.
RATES = """
def before(step, variant=None, workload=None):
    if step == "done" and request["rates"]:
        speed = {"request-0.json": 700.0, "request-1.json": 500.0, "request-2.json": 640.0}
        speed = speed[os.path.basename(request_path)]
        emit("phase", name="measuring", at=__import__("time").monotonic())
        emit("rates", rates={"matmul_tflops": speed, "matmul_size": 8192, "copy_gb_s": 5 * speed, "event_us": 1.5})
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return in_cell(monkeypatch, tmp_path, HEADER.format("flux", 'measures = "rates"'))


def measured(folder: Path) -> dict[str, Any]:
    bench.measure()
    assert [path.name for path in folder.iterdir()] == ["rates.json"]
    found: dict[str, Any] = json.loads((folder / "rates.json").read_text(encoding="utf-8"))
    assert found["processes"] == 3
    assert found["fingerprint"]["device"] == CPU.name
    assert "code.timing" in found["fingerprint"]
    return found


def test_rates_are_medians_over_the_processes(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", RATES)))
    found = measured(here)
    assert (found["matmul_tflops"], found["copy_gb_s"], found["event_us"]) == (640.0, 3200.0, 1.5)
    assert (found["copy_gb_s_low"], found["copy_gb_s_high"]) == (2500.0, 3500.0)
    assert repr(found["matmul_size"]) == "8192"
    assert [name for name, begin, end in found["phases"] if begin <= end] == ["environment", *["measuring"] * 3]
    assert "reason" not in found


def test_rates_of_a_build_whose_time_is_up_make_no_environment(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(monkeypatch, tmp_path)
    monkeypatch.setenv("FLUXBENCH_UNTIL", "0")
    assert (
        measured(here)["reason"]
        == "the build's time was up before it was measured; build again, with a larger LIMIT if that repeats"
    )


@pytest.mark.parametrize(
    ("scenario", "limit", "reason"),
    [
        ("sys.exit('ImportError: no torch')", "1200", "the process ended with exit code 1: ImportError: no torch"),
        ("time.sleep(600)", "1", "the cell's time was up; the process was killed"),
        ("", "1200", "torch cannot use this device"),
        (None, "1200", "uv must be on PATH to build the measured environment, got none; run `make setup`"),
    ],
)
def test_missing_rates_have_a_reason(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str | None, limit: str, reason: str
) -> None:
    if scenario is None:
        without_uv(monkeypatch, tmp_path)
    else:
        monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", scenario)))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", limit)
    began = time.monotonic()
    found = measured(here)
    assert found["reason"] == reason
    assert "matmul_tflops" not in found
    assert time.monotonic() - began < 60
