"""How many workers measure, what each is asked for, and how they wait: a fake worker plays each scenario for real."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from fake_workers import (
    ALL_PASSED,
    BOTH,
    WORKER,
    at_both,
    outcomes,
    played,
    requests,
    skip_silence,
    started,
    status_of,
    when,
)
from fakes import CPU, GPU, TINY

from fluxbench.bench import pool, processes
from fluxbench.core import device_lock, progress
from fluxbench.device.model import Device
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Sampler


def test_time_that_a_worker_waits_for_the_device_is_not_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cell measures meanwhile, for longer than this one may take."""
    skip_silence(monkeypatch, tmp_path, pool)
    waits = """emit("phase", name="waiting", at=0.0); emit("phase", name="checking", at=600.0); silent(1)"""
    collected = played(tmp_path, when("(step, process) == ('ready', 0)", waits), deadline_s=99.0)
    assert outcomes(collected) == ALL_PASSED
    assert collected.waited_s == 600.0


@pytest.mark.parametrize(
    ("factors", "processes"),
    [
        ((1.0, 1.001, 1.0), 3),  # as the others
        ((1.0, 1.03, 1.0, 1.0, 1.0), 5),  # too wide for half a percent, up to the most
        ((1.0, 1.3, 0.8), 3),  # so wide that two more would decide nothing
        ((1.2, 1.21, 1.2), 3),  # slower, so that less is asked of it
        ((3.0, 3.01), 2),  # so slow that it decides nothing
    ],
)
def test_what_is_not_known_well_enough_is_measured_in_further_processes(
    tmp_path: Path, factors: tuple[float, ...], processes: int
) -> None:
    scenario = f"""
def mean_ms(name):
    of_process = [1.0, 1.0005, 0.9995, 1.0, 1.0][process]
    return of_process * {factors}[process] if name == "b" else of_process
"""
    collected = played(tmp_path, scenario, most=5)
    counts = {name: len(collected.taken(name, "tiny")) for name in ("b", "c")}
    assert counts == {"b": processes, "c": 3}


def test_as_many_processes_as_a_user_asks_for_measure_also_what_is_far_slower(tmp_path: Path) -> None:
    scenario = """
def mean_ms(name):
    return 3.0 if name == "b" else 1.0
"""
    for saves, count in ((True, 2), (False, 4)):
        folder = tmp_path / str(count)
        folder.mkdir()
        collected = played(folder, scenario, least=4, saves=saves)
        assert {name: len(collected.taken(name, "tiny")) for name in "abc"} == {"a": 4, "b": count, "c": 4}


def test_what_another_batch_does_not_know_well_enough_is_not_measured_in_this_one(tmp_path: Path) -> None:
    """Its processes have variables with which a library runs other kernels under the same name."""
    scenario = """
def mean_ms(name):
    return {"a": [1.0, 1.0005, 0.9995], "b": [1.0, 1.1, 1.2], "c": [1.0, 1.03, 1.0]}[name][process % 3]
"""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    collected = played(folders[0], scenario, ("a", "b"))
    played(folders[1], scenario, ("c",), references=("a",), most=5, before=collected)
    assert [request.variants for request in requests(folders[1])] == [("c",)] * 5
    assert {name: len(collected.taken(name, "tiny")) for name in "bc"} == {"b": 3, "c": 5}


def test_burst_samples_are_taken_in_three_processes_and_further_ones_are_for_sustained_times(tmp_path: Path) -> None:
    scenario = """
def mean_ms(name):
    return {"a": 1.0, "b": [1.0, 1.03, 1.0, 1.0, 1.0][process], "c": 3.0}[name]
"""
    collected = played(tmp_path, scenario, most=5, burst_alone=("tinier",))
    counts = {name: [len(collected.taken(name, workload)) for workload in ("tiny", "tinier")] for name in ("b", "c")}
    assert counts == {"b": [5, 3], "c": [2, 2]}  # two, as where all is sustained
    asked = {request.process: [one.name for one in request.workloads] for request in requests(tmp_path)}
    assert asked == {process: ["tiny", "tinier"] if process < 3 else ["tiny"] for process in range(5)}


def test_two_processes_of_what_is_far_slower_are_enough_when_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third process, which measures the others, hangs until the cell's deadline."""
    skip_silence(monkeypatch, tmp_path, pool)
    scenario = """
def mean_ms(name):
    return 3.0 if name == "b" else 1.0

def before(step, variant=None, workload=None):
    if (step, process) == ("ready", 2):
        silent()
"""
    found = outcomes(played(tmp_path, scenario, deadline_s=99.0))
    assert {pair: outcome for pair, outcome in found.items() if pair.startswith("b")} == {
        "b at tiny": "2",
        "b at tinier": "2",
    }
    assert {outcome for pair, outcome in found.items() if pair.startswith("c")} == {"TIMEOUT"}


def test_each_process_gets_its_number_the_clock_and_all_variants_and_the_last_one_probes(tmp_path: Path) -> None:
    collected = played(tmp_path, "", device=dataclasses.replace(GPU, sm_clock_max_mhz=1980))
    asked = requests(tmp_path)
    assert [(each.process, each.probe) for each in asked] == [(0, ()), (1, ("a", "b", "c")), (2, ())]
    assert {(each.variants, each.references, each.clock_mhz, each.skip) for each in asked} == {
        (("a", "b", "c"), ("a",), 1980, ())
    }
    assert [workload.name for workload in asked[0].workloads] == list(BOTH)
    assert set(collected.probed) == {"a", "b", "c"}
    assert collected.probed["a"]["causal"].status == "yes"


@pytest.mark.parametrize("how", ["os.abort()", "silent()", "emit('nonsense')"])
def test_a_probe_that_dies_costs_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    collected = played(tmp_path, when("(step, variant) == ('probe', 'b')", how), deadline_s=math.inf)
    assert outcomes(collected) == ALL_PASSED
    assert set(collected.probed) == {"a"}
    assert started(tmp_path) == 3


@pytest.mark.parametrize("how", ["os.abort()", "silent()", "emit('nonsense')"])
def test_a_process_that_dies_while_it_is_profiled_costs_no_time_and_the_next_one_tries_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    collected = played(tmp_path, when("(step, process) == ('profile', 1)", how), deadline_s=math.inf)
    assert outcomes(collected) == ALL_PASSED
    assert [len(each.probe) for each in requests(tmp_path)] == [0, 3, 3]
    assert set(collected.probed) == {"a", "b", "c"}
    assert started(tmp_path) == 3


def test_a_last_trial_that_gave_no_times_is_not_what_a_process_dies_of_while_it_is_profiled(tmp_path: Path) -> None:
    scenario = """
    def before(step, variant=None, workload=None):
        if (process, step) == (1, "again"):
            return "fails"
        if (process, step) == (1, "profile"):
            os.abort()
    """
    assert outcomes(played(tmp_path, scenario)) == ALL_PASSED


# A pool: workers of a GPU that are started before they are needed.

NOTES_ITSELF = "open(f'waits-{os.getpid()}', 'w').close()"
WAIT = """while len([name for name in os.listdir() if name.startswith("waits-")]) < 3:
            time.sleep(0.01)"""


def beginning(line: str) -> str:
    """Return the fake worker with a line that it runs before it waits."""
    return WORKER.replace("request_path, events_path =", f"{line}\nrequest_path, events_path =", 1)


def test_the_workers_of_a_gpu_wait_together_and_measure_one_by_one(tmp_path: Path) -> None:
    note = f"""{WAIT}
    if step in ("ready", "done"):
        open("order.txt", "a").write(f"{{step}} {{process}}\\n")"""
    scenario = when("(process, step) == (0, 'ready')", note)
    collected = played(tmp_path, scenario, device=GPU, worker=beginning(NOTES_ITSELF))
    assert (outcomes(collected), started(tmp_path), collected.workers) == (ALL_PASSED, 3, 3)
    assert (tmp_path / "order.txt").read_text(encoding="utf-8").split("\n")[:-1] == [
        f"{what} {process}" for process in range(3) for what in ("ready", "done")
    ]
    assert len(list(tmp_path.glob("waits-*"))) == 3  # no other was started


def test_a_further_worker_imports_while_the_one_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends here only when the next one has begun; else it would be killed for its silence."""
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 20.0)
    exits = list[pool.Exit | None]()

    def noted(*arguments: Any) -> pool.Exit | None:
        exits.append(pool.run_worker(*arguments))
        return exits[-1]

    monkeypatch.setattr(processes, "run_worker", noted)
    scenario = """
def mean_ms(name):
    return [1.0, 1.0005, 0.9995, 1.0][process] * ([1.0, 1.006, 1.0, 1.0][process] if name == "b" else 1.0)

def before(step, variant=None, workload=None):
    if step == "done" and process in (2, 3):
        while len([name for name in os.listdir() if name.startswith("waits-")]) < min(process + 2, MOST):
            time.sleep(0.01)
"""
    for most, folder in ((4, tmp_path / "four"), (3, tmp_path / "three")):
        folder.mkdir()
        whole = scenario.replace("MOST", str(most))
        collected = played(folder, whole, device=GPU, worker=beginning(NOTES_ITSELF), most=most)
        assert {len(collected.taken(name, "tiny")) for name in "bc"} == {most, 3}
        assert (started(folder), collected.workers, len(list(folder.glob("waits-*")))) == (most, most, most)
    assert exits == [None] * 7


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_many_processes_do_not_all_start_at_once_and_on_a_cpu_none_beside_another(
    tmp_path: Path, device: Device
) -> None:
    scenario = """
def before(step, variant=None, workload=None):
    if (step, variant, workload) == ("check", "a", "tiny"):
        with open("waiting", "a") as file:
            print(len([name for name in os.listdir() if name.startswith("waits-")]), file=file)
"""
    collected = played(tmp_path, scenario, device=device, worker=beginning(NOTES_ITSELF), least=7)
    assert {len(collected.taken(name, "tiny")) for name in "abc"} == {7}
    assert started(tmp_path) == collected.workers == 7
    begun = [int(line) for line in (tmp_path / "waiting").read_text(encoding="utf-8").split()]
    assert len(begun) == 7
    limits = [max(3, number + 2) if device is GPU else number + 1 for number in range(7)]
    assert all(count <= limit for count, limit in zip(begun, limits, strict=True))


@pytest.mark.parametrize("dies", ["os.kill(os.getpid(), signal.SIGKILL)", "silent()"], ids=["dies", "hangs"])
def test_a_library_that_ends_a_waiting_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    scenario = when("(step, variant) == ('check', 'b')", "os.kill(os.getpid(), signal.SIGKILL)")
    worker = beginning(f"if 'b' in sys.argv[4].split(','): {dies}")
    found = outcomes(played(tmp_path, scenario, device=GPU, worker=worker, deadline_s=math.inf))
    assert found == ALL_PASSED | status_of(Status.CRASHED, *at_both("b"))


def test_a_cell_reads_the_device_while_its_own_worker_has_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Asked(Sampler):
        def __enter__(self) -> Sampler:
            asked.append(self._wanted())
            return self

    monkeypatch.setattr(processes, "Sampler", Asked)
    monkeypatch.setattr(device_lock, "a_child_is_alone", lambda folder: folder == tmp_path / "lock")
    for lock in (None, str(tmp_path / "lock"), str(tmp_path)):
        played(tmp_path, "", names=("a",), shapes=(TINY,), lock=lock)
    assert asked == [True, True, False]


def test_every_step_is_reported_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=24)  # three variants at two workloads in three processes, of which the first counts double
    played(tmp_path, "")
    lines = [json.loads(line) for line in listened.read_text(encoding="utf-8").splitlines()]
    assert [(line["variant"], line["workload"]) for line in lines[1:6]] == [
        (None, "tiny"), (None, "tinier"), ("a", "tiny"), ("a", "tinier"), ("b", "tiny"),
    ]  # fmt: skip
    assert progress.read(listened) == progress.Progress(share=1.0, step="c at tinier")
