"""The certificate's trials: runs of slowed kernels, each as a measuring cell takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_workers import HEADER, in_cell, interpreter, skip_silence
from fakes import CPU, GPU, TINIER, TINY
from sample_events import collected, readings, timed

from fluxbench import bench
from fluxbench.bench import pool, trials
from fluxbench.device import detect
from fluxbench.device.model import Device

FORMS = ("plus_0", "plus_1")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return in_cell(
        monkeypatch, tmp_path, HEADER.format("certificate", 'variants = ["torch_math"]\n# measures = "trials"')
    )


def measured(folder: Path) -> dict[str, Any]:
    bench.measure()
    assert [path.name for path in folder.iterdir()] == ["trials.json"]
    found: dict[str, Any] = json.loads((folder / "trials.json").read_text(encoding="utf-8"))
    assert (found["schema"], found["asked"], found["device"]) == (2, 10, CPU.name)
    return found


def test_runs_of_every_slowed_form_in_turn(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", log=log)))
    found = measured(here)
    names = [f"torch_math_{form}" for form in FORMS]
    asked = [json.loads(line)["request"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert [request["variants"] for request in asked[::3]] == [
        *([*names[i:], *names[:i]] for i in (0, 1)),
        *([names[0]] for _ in range(8)),  # the unslowed ones alone
    ]
    assert {(request["sustained"], *request["probe"]) for request in asked} == {(True,)}
    assert found["variants"] == {
        f"torch_math_{form}": {"base": "torch_math", "percent": percent, "twin": False}
        for form, percent in zip(FORMS, (0.0, 1.0), strict=True)
    }
    assert found["fingerprint"]["workloads"] == "flux1-512px-t128"
    assert len(found["runs"]) == 10
    for run in found["runs"][:2]:
        assert {record["status"] for record in run["records"]} == {"PASSED"}
        assert all("fingerprint" not in record for record in run["records"])
        assert run["control"]["samples_ms"]["torch_math_plus_1"] == [[0.5, 0.6]] * 3
        assert len(run["places"]) == 3 * 2
        assert run["seconds"] > 0
        assert run["others"] == []


def test_a_user_may_ask_for_fewer_runs(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python")))
    monkeypatch.setenv("FLUXBENCH_RUNS", "1")
    bench.measure()
    found = json.loads((here / "trials.json").read_text(encoding="utf-8"))
    assert (found["asked"], len(found["runs"])) == (1, 1)


def test_where_nothing_runs_one_run_is_enough(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", "sys.exit('no torch')")))
    found = measured(here)
    assert (len(found["runs"]), found["reason"]) == (1, "no slowed variant ran")
    assert found["runs"][0]["control"] is None


def test_no_run_begins_that_would_end_too_late(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = """
def before(step, variant=None, workload=None):
    if step == "ready":
        silent(1)
"""
    skip_silence(monkeypatch, tmp_path, pool, trials)
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python", scenario)))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", "600")  # of which the last 30 s are for writing; a run takes 300 s
    found = measured(here)
    assert len(found["runs"]) == 1
    assert "reason" not in found


def test_when_the_build_s_time_is_up_the_next_one_goes_on(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(tmp_path / "python")))
    monkeypatch.setenv("FLUXBENCH_UNTIL", "0")
    found = measured(here)
    assert found["runs"] == []
    assert found["reason"] == "the build's time was up in run 1 of 10; another build measures it"


def test_places_are_those_of_ranked_samples_in_their_rounds_and_of_trials_in_their_process() -> None:
    def clock_mhz(time_s: float) -> float:
        return 1500.0 if 100.09 < time_s < 100.17 else 1980.0

    both = {TINY.name: 1.0, TINIER.name: 0.5}
    of = collected(
        [
            timed("torch_flash", 0, began=0.0, workloads=both, control_ms=(0.5,) * 4),
            timed("b", 0, began=200.0, control_ms=(0.5,) * 4),
            timed("a", 0, began=100.0, burst_ms=(1.0, 2.0, 3.0, 4.00000049), workloads=both, control_ms=(0.5,) * 4),
            timed("a", 1, began=300.0),
            timed("torch_flash", 0, began=400.0, burst_ms=None),
        ],
        readings(100.0, 100.4, clock_mhz=clock_mhz),
    )
    first, second, third, fourth = trials.places(of)
    assert first == {
        "process": 0, "variant": "a", "workload": "tiny", "trial": 0, "trials": 2, "places": [0, 2, 3], "of": 5,
        "samples_ms": [1.0, 3.0, 4.0],
    }  # fmt: skip
    assert (second["workload"], second["samples_ms"]) == ("tinier", [0.5, 1.5, 2.0])
    assert (third["variant"], third["trial"], third["trials"], third["of"]) == ("b", 1, 2, 3)
    assert (fourth["process"], fourth["trial"], fourth["trials"], fourth["of"]) == (1, 0, 1, 2)


@pytest.mark.parametrize(("device", "asked", "processes"), [(CPU, "", 3), (GPU, "", 8), (CPU, "5", 5), (GPU, "4", 4)])
def test_a_run_has_as_many_processes_as_find_a_change_of_1_percent_or_as_a_user_asks_for(
    here: Path, monkeypatch: pytest.MonkeyPatch, device: Device, asked: str, processes: int
) -> None:
    given: list[Any] = []

    def noted(*arguments: Any) -> list[Any]:
        given.append(arguments[-1])
        return []

    monkeypatch.setattr(detect, "detect", lambda: device)
    monkeypatch.setattr(trials, "measure", noted)
    monkeypatch.setenv("FLUXBENCH_PROCESSES", asked)
    bench.measure()
    assert given == [(processes, processes)]
