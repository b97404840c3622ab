"""What becomes of workers that die, hang, are late or write nonsense: a fake worker plays each scenario for real."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from fake_workers import (
    ALL_PASSED,
    at_both,
    is_gone,
    outcomes,
    played,
    requests,
    skip_silence,
    started,
    status_of,
    when,
)
from fakes import TINY, tokens

from fluxbench.bench import pool, processes
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Reading, Sampler
from fluxbench.worker.request import Effort

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


@pytest.mark.parametrize(
    ("at", "lost", "workers"),
    [("backward", ["b at backward"], 4), ("training", ["b at training", "b at backward"], 5)],
)
def test_a_crash_in_the_backward_pass_costs_no_record_of_both_passes(
    tmp_path: Path, at: str, lost: list[str], workers: int
) -> None:
    both = tokens("training", 96, "attention_training"), tokens("backward", 96, "attention_backward")
    crashes = f"step == 'time' and variant == 'b' and ['b', {at!r}] not in request['skip']"
    collected = played(tmp_path, when(crashes, "os.abort()"), shapes=both, burst_alone=("backward",))
    found = outcomes(collected)
    assert {pair for pair, outcome in found.items() if outcome == "CRASHED"} == set(lost)
    assert {outcome for pair, outcome in found.items() if pair not in lost} == {"3"}
    assert started(tmp_path) == workers


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
    write = f"events.write({line + chr(10)!r}); events.flush(); time.sleep(600)"
    condition = f"(step, variant) == ({step!r}, 'b') and workload != 'tinier'"
    collected = played(tmp_path, when(condition, write))
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
    skip_silence(monkeypatch, tmp_path, pool)
    collected = played(tmp_path, when(condition, "silent()"), deadline_s=math.inf)
    assert outcomes(collected) == ALL_PASSED | status_of(Status.TIMEOUT, *pairs)
    reason = f"{doing}silent for 150 s; the process was killed"
    assert {failed.reason for failed in collected.failed.values()} == {reason}


def test_a_worker_that_is_heard_of_in_time_may_take_as_long_as_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    slow = when("process == 0 and step in ('check', 'time')", "silent(1)")
    assert outcomes(played(tmp_path, slow, deadline_s=math.inf)) == ALL_PASSED


def test_a_worker_that_compiles_may_be_silent_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    compiles = "emit('phase', name='compiling', at=0.0); silent(4); emit('phase', name='checking', at=0.0)"
    scenario = when("(process, variant) == (0, 'b')", compiles)
    assert outcomes(played(tmp_path, scenario, deadline_s=math.inf)) == ALL_PASSED
    monkeypatch.setattr(pool, "COMPILING_LIMIT_S", 120.0)
    collected = played(tmp_path, scenario, deadline_s=math.inf)
    assert {failed.reason.split(";")[0] for failed in collected.failed.values()} == {"silent for 120 s"}


@pytest.mark.parametrize("then", ["silent()", "pass"])
def test_the_children_of_a_worker_are_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    leave = f"open('child.txt', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); {then}"
    played(tmp_path, when("(process, step) == (0, 'ready')", leave), names=("a",), shapes=(TINY,), deadline_s=math.inf)
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def test_at_the_deadline_what_is_left_times_out_and_what_is_measured_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    hang = when("(process, step, variant) == (2, 'time', 'c')", "silent()")
    collected = played(tmp_path, hang, deadline_s=99.0)
    assert outcomes(collected) == ALL_PASSED | status_of(Status.TIMEOUT, *at_both("c"))
    assert "the cell's time was up" in collected.failed["c", "tinier"].reason


def test_when_the_build_s_time_is_up_a_cell_that_waits_for_the_device_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell's own time goes on while its worker waits; the build's does not."""
    skip_silence(monkeypatch, tmp_path, pool)
    waits = """emit("phase", name="waiting", at=0.0); emit("phase", name="checking", at=600.0); silent()"""
    hang = when("(process, step, variant) == (2, 'time', 'c')", waits)
    collected = played(tmp_path, hang, deadline_s=99.0, until_s=200.0)
    assert collected.waited_s == 600.0
    assert outcomes(collected) == ALL_PASSED | status_of(Status.TIMEOUT, *at_both("c"))
    reason = "the build's time was up before it was measured; build again, with a larger LIMIT if that repeats"
    assert collected.failed["c", "tiny"].reason == reason


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
