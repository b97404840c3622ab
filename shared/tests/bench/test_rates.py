"""The device's own rates: medians over fresh processes, or one sentence why there are none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_workers import in_cell, interpreter
from fakes import CPU, without_uv

from fluxbench import bench

HEADER = """\
# /// script
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# measures = "rates"
# ///
"""
# Each process finds other rates.
RATES = """
def before(step, variant=None, workload=None):
    if step == "done" and request["rates"]:
        speed = {"request-0.json": 700.0, "request-1.json": 500.0, "request-2.json": 640.0}
        speed = speed[os.path.basename(request_path)]
        emit("rates", rates={"matmul_tflops": speed, "matmul_size": 8192, "copy_gb_s": 4000.0, "event_us": 1.5})
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return in_cell(monkeypatch, tmp_path, HEADER)


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
    assert (found["matmul_tflops"], found["copy_gb_s"], found["event_us"]) == (640.0, 4000.0, 1.5)
    assert repr(found["matmul_size"]) == "8192"
    assert "reason" not in found


@pytest.mark.parametrize(
    ("scenario", "limit", "reason"),
    [
        ("sys.exit('ImportError: no torch')", "1200", "the process ended with exit code 1: ImportError: no torch"),
        ("time.sleep(600)", "1", "the cell's time was up; the process was ended"),
        ("", "1200", "torch cannot use this device"),
    ],
)
def test_rates_that_cannot_be_measured_have_a_reason(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, limit: str, reason: str
) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", scenario)))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", limit)
    began = time.monotonic()
    found = measured(here)
    assert found["reason"] == reason
    assert "matmul_tflops" not in found
    assert time.monotonic() - began < 60


def test_without_an_environment_the_reason_says_what_to_do(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = str(tmp_path / "cache")
    without_uv(monkeypatch, tmp_path)
    monkeypatch.setenv("FLUXBENCH_CACHE", cache)
    assert measured(here)["reason"].startswith("uv must be on PATH to build the measured environment")
