"""Workers that wait for their turn, and whoever waits for them: a fake worker in a real process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fake_workers import ALL_PASSED, WORKER, is_gone, outcomes, played, started
from fakes import GPU, REPOSITORY, executable

from fluxbench.bench import measuring as bench
from fluxbench.bench import processes
from fluxbench.bench.observations import Observations
from fluxbench.core import progress
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.environments.prepare import Environment
from fluxbench.records.schema import Status

NOTES_ITSELF = "open(f'waits-{os.getpid()}', 'w').close()"


def beginning(line: str) -> str:
    """Return the fake worker with a line that it runs before it waits."""
    return WORKER.replace("request_path, events_path =", f"{line}\nrequest_path, events_path =", 1)


def noted(folder: Path) -> list[int]:
    """Return the processes that noted themselves in a folder."""
    return [int(path.name.removeprefix("waits-")) for path in folder.glob("waits-*")]


def test_the_workers_of_a_gpu_are_started_before_they_are_needed_and_have_their_turn_one_by_one(tmp_path: Path) -> None:
    scenario = """
    def before(step, variant=None, workload=None):
        if step == "ready":
            waiting = len([name for name in os.listdir() if name.startswith("waits-")])
            while process == 0 and waiting < 3:
                time.sleep(0.01)
                waiting = len([name for name in os.listdir() if name.startswith("waits-")])
            open("order.txt", "a").write(f"ready {process}\\n")
        if step == "done":
            open("order.txt", "a").write(f"done {process}\\n")
    """
    observed = played(tmp_path, scenario, device=GPU, worker=beginning(NOTES_ITSELF), deadline_s=20.0)
    assert outcomes(observed) == ALL_PASSED
    assert (tmp_path / "order.txt").read_text(encoding="utf-8").split("\n")[:-1] == [
        f"{what} {process}" for process in range(3) for what in ("ready", "done")
    ]
    assert len(noted(tmp_path)) == 3  # no other was started


def test_a_worker_is_told_the_highest_clock_of_its_device(tmp_path: Path) -> None:
    played(tmp_path, "", device=dataclasses.replace(GPU, sm_clock_max_mhz=1980))
    asked = [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("request-*.json")]
    assert [request["clock_mhz"] for request in asked] == [1980] * 3


@pytest.mark.parametrize("dies", [1, 2, 3])
def test_a_worker_that_died_while_it_waited_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: int
) -> None:
    begun: list[int] = []
    start = processes._start

    def fragile(*arguments: Any) -> subprocess.Popen[str]:
        worker = start(*arguments)
        begun.append(worker.pid)
        if len(begun) == dies:
            worker.kill()
            worker.wait()
        return worker

    monkeypatch.setattr(processes, "_start", fragile)
    assert outcomes(played(tmp_path, "", device=GPU)) == ALL_PASSED
    assert len(begun) == 4


@pytest.mark.parametrize("dies", ["os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"], ids=["dies", "hangs"])
def test_a_library_that_takes_a_waiting_worker_with_it_costs_its_own_variant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    scenario = """
    def before(step, variant=None, workload=None):
        if step == "check" and variant == "b":
            os.kill(os.getpid(), signal.SIGKILL)
    """
    worker = beginning(f"if 'b' in sys.argv[4].split(','): {dies}")
    found = outcomes(played(tmp_path, scenario, device=GPU, worker=worker, deadline_s=30.0))
    assert {pair: outcome for pair, outcome in found.items() if pair[0] != "b"} == {
        pair: outcome for pair, outcome in ALL_PASSED.items() if pair[0] != "b"
    }
    assert all(found[f"b at {workload}"].startswith("CRASHED") for workload in ("tiny", "tinier"))


def test_workers_that_still_wait_are_ended(tmp_path: Path) -> None:
    scenario = """
    def before(step, variant=None, workload=None):
        if step == "check":
            while len([name for name in os.listdir() if name.startswith("waits-")]) < 3:
                time.sleep(0.01)
            return "fails"
    """
    played(tmp_path, scenario, device=GPU, worker=beginning(NOTES_ITSELF), deadline_s=20.0)
    assert started(tmp_path) == 1
    waited = noted(tmp_path)
    assert len(waited) == 3
    assert all(is_gone(pid) for pid in waited)


def test_a_cell_whose_time_is_up_in_its_first_group_of_variants_ends_the_workers_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = """
def before(step, variant=None, workload=None):
    if step == "check":
        time.sleep(60)
"""
    worker = beginning(f"os.chdir({str(tmp_path)!r}); {NOTES_ITSELF}")  # its own folder is gone afterwards
    python = executable(tmp_path / "python", worker.replace("SCENARIO", scenario))
    monkeypatch.setattr(environments, "prepare", lambda *_: Environment(python=str(python)))
    monkeypatch.setattr(hardware, "other_processes", lambda _: ())
    this = Cell(id="te", notebook="flux", packages=(), source_sha256="")
    settings = Settings(root=REPOSITORY, cache=tmp_path / "cache", workloads=("flux1-512px-t128",))
    deadline = time.monotonic() + 2.5
    found = bench.measure_cell(this, ["te_fused", "te_flash"], GPU, settings, deadline, Observations())
    assert [record.status for record in found] == [Status.TIMEOUT] * 2
    waited = noted(tmp_path)
    assert len(waited) == 6  # three a group
    assert all(is_gone(pid) for pid in waited)
    assert list((tmp_path / "cache" / "runs").iterdir()) == []


# Progress.


def test_whoever_waits_is_told_of_every_step_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=18)  # three variants at two workloads in three processes
    played(tmp_path, "")
    said = [json.loads(line) for line in listened.read_text(encoding="utf-8").splitlines()]
    assert [(line["variant"], line["workload"]) for line in said[1:6]] == [
        (None, "tiny"),
        (None, "tinier"),
        ("a", "tiny"),
        ("a", "tinier"),
        ("b", "tiny"),
    ]
    assert progress.read(listened) == progress.Progress(share=1.0, step="c at tinier")


def test_a_step_is_said_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=18)
    scenario = """
    def before(step, variant=None, workload=None):
        if (process, step, variant, workload) == (0, "check", "b", "tiny"):
            said = ""
            while '"b"' not in said:
                time.sleep(0.01)
                said = open(os.environ["FLUXBENCH_PROGRESS"]).read()
            open("said.jsonl", "w").write(said)
    """
    assert outcomes(played(tmp_path, scenario, deadline_s=20.0)) == ALL_PASSED
    assert progress.read(tmp_path / "said.jsonl") == progress.Progress(share=3 / 18, step="b at tiny")
