"""What becomes of workers that die, hang, are late or write nonsense: a fake worker plays each scenario for real."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from fake_workers import ALL_PASSED, WORKER, is_gone, outcomes, played, started
from fakes import GPU, TINY

from fluxbench.bench import pool, processes
from fluxbench.core import progress
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Reading, Sampler
from fluxbench.worker.request import Effort, Request

BOTH = ("tiny", "tinier")


def when(condition: str, action: str) -> str:
    """Return a scenario in which a worker does something before a step."""
    return f"""
def before(step, variant=None, workload=None):
    if {condition}:
        {action}
"""


def status_of(status: Status, *pairs: str) -> dict[str, str]:
    return dict.fromkeys(pairs, status.value)


def at_both(*names: str) -> list[str]:
    return [f"{name} at {workload}" for name in names for workload in BOTH]


def test_time_that_a_worker_waits_for_the_device_is_not_the_cells(tmp_path: Path) -> None:
    """Another cell measures meanwhile, for longer than this one may take."""
    waits = """emit("phase", name="waiting", at=0.0); emit("phase", name="checking", at=60.0); time.sleep(1.2)"""
    collected = played(tmp_path, when("(step, process) == ('ready', 0)", waits), deadline_s=1.0)
    assert outcomes(collected) == ALL_PASSED
    assert collected.waited_s == 60.0


@pytest.mark.parametrize(
    ("factors", "processes"),
    [
        ((1.0, 1.001, 1.0), 3),  # as the others
        ((1.0, 1.03, 1.0, 1.0, 1.0), 5),  # too wide for half a percent, up to the most
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


def test_two_processes_of_what_is_far_slower_are_enough_when_time_is_up(tmp_path: Path) -> None:
    """The third process, which measures the others, hangs until the cell's deadline."""
    scenario = """
def mean_ms(name):
    return 3.0 if name == "b" else 1.0

def before(step, variant=None, workload=None):
    if (step, process) == ("ready", 2):
        time.sleep(60)
"""
    found = outcomes(played(tmp_path, scenario, deadline_s=4.0))
    assert {pair: outcome for pair, outcome in found.items() if pair.startswith("b")} == {
        "b at tiny": "2",
        "b at tinier": "2",
    }
    assert {outcome for pair, outcome in found.items() if pair.startswith("c")} == {"TIMEOUT"}


SEGFAULT = "print('RuntimeError: illegal access', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
ABORTED = "the process ended with signal SIGABRT"
CRASHES: list[tuple[str, str, list[str], str, int]] = [
    # When a worker does what, which pairs that costs, the reason, and how many workers are started.
    (
        "(variant, workload) == ('b', 'tiny')", SEGFAULT, ["b at tiny"],
        "the process ended with signal SIGSEGV: RuntimeError: illegal access", 4,
    ),
    (
        "(process, variant, workload) == (1, 'c', 'tinier')", "sys.exit(7)", ["c at tinier"],
        "the process ended with exit code 7", 4,
    ),
    (
        "(process, workload) == (2, 'tiny') and variant in ('a', 'c')", "os.abort()", ["a at tiny", "c at tiny"],
        ABORTED, 5,
    ),
    ("(step, variant) == ('time', 'b')", "os.abort()", at_both("b"), f"while it was timed, {ABORTED}", 4),
    (
        "(step, variant) == ('time', 'b')", """events.write('{"event": "timed", "var'); events.flush(); os.abort()""",
        at_both("b"), f"while it was timed, {ABORTED}", 4,
    ),
    (
        "(step, workload) == ('prepare', 'tinier')", "os.abort()", ["a at tinier", "b at tinier", "c at tinier"],
        f"while inputs were made, {ABORTED}", 4,  # it is not asked for again
    ),
    ("(process, step) == (0, 'again')", "os.abort()", at_both("a"), f"while it was timed, {ABORTED}", 3),
    ("(step, variant) == ('after', 'b')", "os.abort()", [], "", 6),  # between two trials nothing has failed
    ("step == 'done'", "os.abort()", [], "", 3),  # all is measured
    ("True", "sys.exit('no torch')", [*ALL_PASSED], "the process ended with exit code 1: no torch", 1),
]  # fmt: skip


PART_BY_PART = Effort(held_bytes=1)  # each workload by itself


@pytest.mark.parametrize(
    ("condition", "pairs"),
    [
        ("(step, variant, shapes) == ('time', 'b', ['tiny'])", ["b at tiny"]),
        ("(step, variant, shapes) == ('time', 'b', ['tinier'])", ["b at tinier"]),
        ("(step, variant, shapes) == ('after', 'b', ['tiny']) and not request['done']", []),
    ],
)
def test_a_crash_in_a_part_costs_the_workloads_of_that_part(tmp_path: Path, condition: str, pairs: list[str]) -> None:
    """What the process had timed before it is not timed again, and the others are."""
    collected = played(tmp_path, when(f"process == 1 and {condition}", "os.abort()"), effort=PART_BY_PART)
    assert outcomes(collected) == ALL_PASSED | status_of(Status.CRASHED, *pairs)
    taken = Counter(
        (trial.timed.process, trial.timed.variant, workload)
        for trial in collected.trials if trial.timed.burst for workload in trial.timed.workloads
        if trial.timed.variant != "a"
    )  # fmt: skip
    assert set(taken.values()) == {1}


@pytest.mark.parametrize(("condition", "action", "pairs", "reason", "workers"), CRASHES)
def test_a_crash_costs_what_the_worker_was_at(
    tmp_path: Path, condition: str, action: str, pairs: list[str], reason: str, workers: int
) -> None:
    collected = played(tmp_path, when(condition, action))
    assert outcomes(collected) == ALL_PASSED | status_of(Status.CRASHED, *pairs)
    assert {failed.reason for failed in collected.failed.values()} == ({reason} if pairs else set())
    assert started(tmp_path) == workers
    if "'c', 'tinier'" in condition:  # a process that goes on is asked for what is left without what failed
        asked = requests(tmp_path)[2]
        assert (asked.process, asked.variants, asked.skip) == (1, ("c",), (("c", "tinier"),))
    if "again" in condition:  # the next one takes the place of a reference that crashed
        assert {trial.timed.reference for trial in collected.trials if trial.timed.process == 1} == {"b"}


def test_a_worker_that_always_dies_after_the_reference_is_given_up(tmp_path: Path) -> None:
    collected = played(tmp_path, when("(process, step, variant) == (1, 'after', 'a')", "os.abort()"))
    assert started(tmp_path) == 4  # in the second process twice
    lost = {pair: status for pair, status in outcomes(collected).items() if status != "3"}
    assert lost == status_of(Status.CRASHED, *at_both("b", "c"))
    assert collected.failed["b", "tiny"].reason == f"after a was timed, {ABORTED}"


@pytest.mark.parametrize(("then", "workers"), [("return 'fails'", 3), ("SAY; os.abort()", 4)])
def test_a_failure_that_was_written_stands(tmp_path: Path, then: str, workers: int) -> None:
    say = "emit('failed', variant='b', workload='tiny', status='INCORRECT', reason='it is wrong')"
    collected = played(tmp_path, when("(variant, workload) == ('b', 'tiny')", then.replace("SAY", say)))
    assert outcomes(collected) == ALL_PASSED | {"b at tiny": Status.INCORRECT}
    assert collected.failed["b", "tiny"].reason == "it is wrong"
    assert started(tmp_path) == workers


@pytest.mark.parametrize(
    ("step", "line", "pairs", "reason"),
    [
        ("check", '{"event": "begin", "variant": "b", "workload": "tiny", "more": 1}', ["b at tiny"], "unknown field"),
        ("time", '{"event": "rates", "rates": {"event_us": NaN}}', at_both("b"), "while it was timed, a worker must"),
        ("time", '{"event": "timed", "variant": 7}', at_both("b"), "Expected `str`, got `int`"),
    ],
)
def test_what_is_no_event_is_an_error(tmp_path: Path, step: str, line: str, pairs: list[str], reason: str) -> None:
    write = f"events.write({line + chr(10)!r}); events.flush(); time.sleep(60)"
    condition = f"(step, variant) == ({step!r}, 'b') and workload != 'tinier'"
    collected = played(tmp_path, when(condition, write), deadline_s=30.0)
    assert outcomes(collected) == ALL_PASSED | status_of(Status.ERROR, *pairs)
    for failed in collected.failed.values():
        assert "a worker must write events, got something else: " in failed.reason
        assert reason in failed.reason


@pytest.mark.parametrize(
    ("condition", "pairs", "doing"),
    [
        ("(variant, workload) == ('b', 'tiny')", ["b at tiny"], ""),
        ("(step, variant) == ('time', 'c')", at_both("c"), "while it was timed, "),
    ],
)
def test_a_hang_is_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, pairs: list[str], doing: str
) -> None:
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 1.0)
    collected = played(tmp_path, when(condition, "time.sleep(600)"))
    assert outcomes(collected) == ALL_PASSED | status_of(Status.TIMEOUT, *pairs)
    reason = f"{doing}silent for 1 s; the process was killed"
    assert {failed.reason for failed in collected.failed.values()} == {reason}


def test_a_worker_that_is_heard_of_in_time_may_take_as_long_as_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 1.0)
    slow = when("process == 0 and step in ('check', 'time')", "time.sleep(0.4)")
    assert outcomes(played(tmp_path, slow)) == ALL_PASSED


@pytest.mark.parametrize("then", ["time.sleep(600)", "pass"])
def test_the_children_of_a_worker_are_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 1.0)
    leave = f"open('child.txt', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); {then}"
    played(tmp_path, when("(process, step) == (0, 'ready')", leave), names=("a",), shapes=(TINY,))
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def test_at_the_deadline_what_is_left_times_out_and_what_is_measured_stays(tmp_path: Path) -> None:
    hang = when("(process, step, variant) == (2, 'time', 'c')", "time.sleep(600)")
    collected = played(tmp_path, hang, deadline_s=3.0)
    assert outcomes(collected) == ALL_PASSED | status_of(Status.TIMEOUT, *at_both("c"))
    assert "the cell's time was up" in collected.failed["c", "tinier"].reason


def test_after_the_deadline_every_pair_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneReading(Sampler):
        def __enter__(self) -> Sampler:
            self.readings.append(Reading(time_s=0.5, sm_clock_mhz=1755.0, power_w=640.0, temperature_c=61.0))
            return self

    monkeypatch.setattr(processes, "Sampler", OneReading)
    collected = played(tmp_path, "time.sleep(600)", deadline_s=0.0)
    assert outcomes(collected) == status_of(Status.TIMEOUT, *ALL_PASSED)
    reason = "the cell's time was up before it was measured; measure fewer variants or workloads in a cell"
    assert collected.failed["c", "tiny"].reason == reason
    assert len(collected.readings) == 1


def requests(folder: Path) -> list[Request]:
    return [Request.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("request-*.json"))]


def test_each_process_gets_its_number_the_clock_and_all_variants_and_the_last_one_probes(tmp_path: Path) -> None:
    collected = played(tmp_path, "", device=dataclasses.replace(GPU, sm_clock_max_mhz=1980))
    asked = requests(tmp_path)
    assert [(each.process, each.probe) for each in asked] == [(0, False), (1, True), (2, False)]
    assert {(each.variants, each.references, each.clock_mhz, each.skip) for each in asked} == {
        (("a", "b", "c"), ("a",), 1980, ())
    }
    assert [workload.name for workload in asked[0].workloads] == list(BOTH)
    assert set(collected.probed) == {"a", "b", "c"}
    assert collected.probed["a"]["causal"].status == "yes"


@pytest.mark.parametrize("how", ["os.abort()", "time.sleep(60)", "emit('nonsense')"])
def test_a_probe_that_dies_costs_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 1.0)
    collected = played(tmp_path, when("(step, variant) == ('probe', 'b')", how))
    assert outcomes(collected) == ALL_PASSED
    assert set(collected.probed) == {"a"}
    assert started(tmp_path) == 3


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
    collected = played(tmp_path, scenario, device=GPU, worker=beginning(NOTES_ITSELF), deadline_s=30.0)
    assert (outcomes(collected), started(tmp_path), collected.workers) == (ALL_PASSED, 3, 3)
    assert (tmp_path / "order.txt").read_text(encoding="utf-8").split("\n")[:-1] == [
        f"{what} {process}" for process in range(3) for what in ("ready", "done")
    ]
    assert len(list(tmp_path.glob("waits-*"))) == 3  # no other was started


@pytest.mark.parametrize("dies", ["os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"], ids=["dies", "hangs"])
def test_a_library_that_ends_a_waiting_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    monkeypatch.setattr(pool, "SILENCE_LIMIT_S", 1.0)
    scenario = when("(step, variant) == ('check', 'b')", "os.kill(os.getpid(), signal.SIGKILL)")
    worker = beginning(f"if 'b' in sys.argv[4].split(','): {dies}")
    found = outcomes(played(tmp_path, scenario, device=GPU, worker=worker, deadline_s=30.0))
    assert found == ALL_PASSED | status_of(Status.CRASHED, *at_both("b"))


def test_every_step_is_reported_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    progress.say(steps=18)  # three variants at two workloads in three processes
    played(tmp_path, "", deadline_s=30.0)
    lines = [json.loads(line) for line in listened.read_text(encoding="utf-8").splitlines()]
    assert [(line["variant"], line["workload"]) for line in lines[1:6]] == [
        (None, "tiny"), (None, "tinier"), ("a", "tiny"), ("a", "tinier"), ("b", "tiny"),
    ]  # fmt: skip
    assert progress.read(listened) == progress.Progress(share=1.0, step="c at tinier")
