"""What becomes of workers that die, hang or are late: a fake worker plays each scenario in a real process."""

from __future__ import annotations

import json
import os
import textwrap
import time
from pathlib import Path

import pytest
from fakes import CPU, TINIER, TINY, executable

from fluxbench import processes, progress
from fluxbench.environments import Environment
from fluxbench.observations import Observations
from fluxbench.processes import run_variants
from fluxbench.records import Status
from fluxbench.telemetry import Reading, Sampler
from fluxbench.workloads import Workload

# A worker that measures what it is asked for in no time. A scenario redefines `before`, called at each of its steps.
WORKER = """
import json, os, signal, subprocess, sys, time

request = json.load(open(sys.argv[3]))
events = open(sys.argv[4], "a")
process = request["process"]

def emit(event, **fields):
    events.write(json.dumps({"event": event, **fields}) + "\\n")
    events.flush()

def before(step, variant=None, workload=None):
    pass

SCENARIO

before("ready")
emit("ready", versions={"torch": "made up"})
for workload in (shape["name"] for shape in request["workloads"]):
    emit("begin", variant=None, workload=workload)
    before("prepare", None, workload)
    names = [name for name in request["variants"] if [name, workload] not in request["skip"]]
    for name in list(names):
        emit("begin", variant=name, workload=workload)
        if before("check", name, workload) == "fails":
            emit("failed", variant=name, workload=workload, status="INCORRECT", reason="it is wrong")
            names.remove(name)
        else:
            emit("checked", variant=name, workload=workload)
    if names:
        emit("begin", variant=None, workload=workload)
        before("time", None, workload)
        samples = {name: [1.0, 1.1] for name in names}
        emit("timed", workload=workload, reference=names[0], samples_ms=samples, began=0.0, ended=1.0)
before("done")
emit("done")
"""


def played(
    folder: Path,
    scenario: str,
    names: tuple[str, ...] = ("a", "b", "c"),
    shapes: tuple[Workload, ...] = (TINY, TINIER),
    deadline_s: float = 60.0,
) -> Observations:
    """Run three processes of the fake worker in a scenario and return what was observed."""
    worker = executable(folder / "python", WORKER.replace("SCENARIO", textwrap.dedent(scenario)))
    observed = Observations()
    run_variants(
        folder,
        Environment(python=str(worker)),
        CPU,
        shapes,
        names,
        names[:1],
        observed,
        processes=3,
        deadline=time.monotonic() + deadline_s,
    )
    return observed


def outcomes(observed: Observations) -> dict[str, str]:
    """Return the number of processes that timed each pair, or the status of its failure: {"a at tiny": "3"}."""
    found = {}
    for workload, blocks in observed.blocks.items():
        for name in {name for block in blocks for name in block.samples_ms}:
            found[f"{name} at {workload}"] = str(sum(name in block.samples_ms for block in blocks))
    return found | {f"{name} at {workload}": status for (name, workload), (status, _, _) in observed.failed.items()}


ALL_PASSED = {f"{name} at {shape.name}": "3" for name in "abc" for shape in (TINY, TINIER)}


def started(folder: Path) -> int:
    return len(list(folder.glob("request-*.json")))


def test_workers_that_do_as_they_should_are_started_once_a_process(tmp_path: Path) -> None:
    assert outcomes(played(tmp_path, "")) == ALL_PASSED
    assert started(tmp_path) == 3


def test_a_crash_costs_one_status_and_a_fresh_process_goes_on_with_the_rest(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                print("RuntimeError: CUDA error: an illegal memory access was encountered")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.CRASHED}
    reason = observed.failed["b", "tiny"][1]
    assert reason == (
        "the process ended with signal SIGSEGV: RuntimeError: CUDA error: an illegal memory access was encountered"
    )


def test_an_exit_in_the_second_process_costs_one_status(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, variant, workload) == (1, "c", "tinier"):
                sys.exit(7)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"c at tinier": Status.CRASHED}
    assert observed.failed["c", "tinier"][1] == "the process ended with exit code 7"


def test_two_crashes_in_one_process_cost_two_statuses(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, workload) == (2, "tiny") and variant in ("a", "c"):
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"a at tiny": Status.CRASHED, "c at tiny": Status.CRASHED}


def test_a_crash_while_timing_costs_the_workload_and_says_how_it_ended(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, workload) == ("time", "tiny"):
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tiny": Status.CRASHED for name in "abc"}
    assert {reason for _, reason, _ in observed.failed.values()} == {
        "while inputs were made or all variants timed together, the process ended with signal SIGKILL"
    }


def test_a_worker_that_never_begins_is_given_up_before_the_deadline(tmp_path: Path) -> None:
    observed = played(tmp_path, "sys.exit('ImportError: no module named torch')")
    assert set(outcomes(observed).values()) == {Status.CRASHED}
    assert len(observed.failed) == 6
    assert started(tmp_path) <= 2
    assert observed.failed["a", "tinier"][1] == (
        "while inputs were made or all variants timed together, the process ended with exit code 1: "
        "ImportError: no module named torch"
    )


def test_a_crash_while_inputs_are_made_costs_no_workload_that_was_measured_before(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, workload) == ("prepare", "tinier"):
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tinier": Status.CRASHED for name in "abc"}


def test_a_failure_that_the_worker_survives_needs_no_fresh_process(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                return "fails"
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.INCORRECT}
    assert started(tmp_path) == 3


def test_a_crash_after_a_failure_that_was_said_keeps_what_was_said(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                emit("failed", variant="b", workload="tiny", status="ERROR", reason="what was said")
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.ERROR}
    assert observed.failed["b", "tiny"][1] == "what was said"


def test_a_hang_is_a_timeout_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                time.sleep(600)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.TIMEOUT}


def test_a_hang_while_timing_is_a_timeout_of_the_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, workload) == ("time", "tiny"):
                time.sleep(600)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tiny": Status.TIMEOUT for name in "abc"}


def test_the_children_of_a_worker_that_hangs_are_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            child = subprocess.Popen(["sleep", "600"])
            open("child.txt", "w").write(str(child.pid))
            time.sleep(600)
        """,
        names=("a",),
        shapes=(TINY,),
    )
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def test_a_child_that_a_finished_worker_left_behind_is_ended(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if step == "done":
                child = subprocess.Popen(["sleep", "600"])
                open("child.txt", "w").write(str(child.pid))
        """,
    )
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def is_gone(pid: int) -> bool:
    """Whether a process is gone, or is a zombie that nobody has waited for, within two seconds."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except (ProcessLookupError, FileNotFoundError):
            return True
        if "State:\tZ" in status:
            return True
        time.sleep(0.02)
    return False


def test_at_the_deadline_what_is_left_times_out_and_what_is_measured_stays(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, workload) == (2, "tinier"):
                time.sleep(600)
        """,
        deadline_s=2.0,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tinier": Status.TIMEOUT for name in "abc"}
    assert "time was up" in observed.failed["a", "tinier"][1]


def test_a_deadline_that_has_passed_leaves_no_pair_without_a_status(tmp_path: Path) -> None:
    observed = played(tmp_path, "time.sleep(600)", deadline_s=0.0)
    assert outcomes(observed) == dict.fromkeys(ALL_PASSED, Status.TIMEOUT)


def test_an_event_cut_in_half_is_not_taken_in(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, workload) == ("time", "tiny"):
                events.write('{"event": "timed", "workload": "tiny", "samp')
                events.flush()
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tiny": Status.CRASHED for name in "abc"}


def test_an_event_that_arrives_in_two_parts_is_taken_in_whole(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def emit(event, **fields):
            line = json.dumps({"event": event, **fields}) + "\\n"
            events.write(line[:9])
            events.flush()
            time.sleep(0.01)
            events.write(line[9:])
            events.flush()
        """,
    )
    assert outcomes(observed) == ALL_PASSED


def test_later_processes_take_as_many_samples_as_the_first(tmp_path: Path) -> None:
    played(tmp_path, "")
    second = (tmp_path / "request-1.json").read_text(encoding="utf-8")
    assert '"rounds": {"tiny": {"a": 2, "b": 2, "c": 2}, "tinier": {"a": 2, "b": 2, "c": 2}}' in second


def test_whoever_waits_is_told_of_every_step_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=18)  # three variants at two workloads in three processes
    played(tmp_path, "")
    said = [json.loads(line) for line in listened.read_text(encoding="utf-8").splitlines()]
    assert [(line["variant"], line["workload"]) for line in said[1:6]] == [
        (None, "tiny"),
        ("a", "tiny"),
        ("b", "tiny"),
        ("c", "tiny"),
        (None, "tiny"),
    ]
    assert progress.read(listened) == progress.Progress(share=1.0, step="all variants at tinier")


def test_a_step_is_said_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=18)
    scenario = """
    def before(step, variant=None, workload=None):
        if (process, variant, workload) == (0, "c", "tiny"):
            said = ""
            while '"c"' not in said:
                time.sleep(0.01)
                said = open(os.environ["FLUXBENCH_PROGRESS"]).read()
            open("said.jsonl", "w").write(said)
    """
    assert outcomes(played(tmp_path, scenario, deadline_s=20.0)) == ALL_PASSED
    assert progress.read(tmp_path / "said.jsonl") == progress.Progress(share=3 / 18, step="c at tiny")


def test_a_worker_that_dies_after_all_was_measured_costs_nothing(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if step == "done":
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED


def test_what_the_device_said_until_the_deadline_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneReading(Sampler):
        def __enter__(self) -> Sampler:
            self.readings.append(Reading(time_s=0.5, sm_clock_mhz=1755.0, power_w=640.0, temperature_c=61.0))
            return self

    monkeypatch.setattr(processes, "Sampler", OneReading)
    assert len(played(tmp_path, "time.sleep(600)", deadline_s=0.0).readings) == 1
