"""Which times are believed: a rule needs two processes that agree, or the only one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes import CPU, GPU, TINIER, TINY
from sample_events import READY, checked, collected, parsed, timed

from fluxbench.bench import recording
from fluxbench.bench.recording import Context
from fluxbench.environments.cell import Cell
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import FlagKind, Status

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
Process = dict[str, Any]
HONEST: Process = {}
STEP: Process = {"replayed": True, "led": False, "wall_s": 0.04}  # of a model
OURS = ("repeated", "processor", "wall_s", "launch_ms", "replayed", "led", "lead_ms")  # what no helper makes


def record(
    processes: Sequence[Process], *, on_gpu: bool = True, name: str = "flex", others: Sequence[str] = ()
) -> Record:
    """Return the record of a variant of which each process took what is given, else 10 ms in both regimes."""
    seen: list[Any] = [checked(name)]
    for number, given in enumerate(processes):
        begin, of = 1000.0 * number, {"burst_ms": (10.0,) * 4, "block_ms": (10.0,) * 6, **given}
        ours = {key: of.pop(key) for key in OURS if key in of}
        reference = of.pop("reference", {"burst_ms": (10.0,) * 4, "block_ms": (10.0,) * 6})
        usual = timed("torch_flash", number, began=begin, **reference)
        own = timed(name, number, began=begin + 100, beside_ms=reference["burst_ms"], **of)
        if "repeated" in ours:
            own["repeated_over_new"] = {TINY.name: ours["repeated"]}
        if "processor" in ours:
            own["burst"]["processor"] = processor(*ours["processor"])
            usual["burst"]["processor"] = processor(0.5, 0.1, 60.0)
        if "launch_ms" in ours:
            own["burst"]["launch_ms"] = {TINY.name: ours["launch_ms"]}
        if "replayed" in ours:
            own["blocks"][0] |= {"replayed": True, "launched_ms": {TINY.name: 10.0}}
        for block in own.get("blocks", ()):
            block |= {key: ours[key] for key in ("led", "lead_ms") if key in ours}
        if "wall_s" in ours:
            own["blocks"][0]["windows"] = [[begin, begin + ours["wall_s"]] for begin, _ in own["blocks"][0]["windows"]]
        seen += [READY, usual, own]
    context = Context(
        cell=CELL, device=GPU if on_gpu else CPU, processes=len(processes), fingerprint={}, measured_at="", powers={}
    )
    whole = collected(seen)
    whole.others = [*others]
    [made] = recording.of_cell(whole, [name], [TINY], context)
    return made


def processor(others_ms: float, resting_ms: float, call_cpu_ms: float) -> dict[str, Any]:
    return {
        "resting_ms": [resting_ms] * 4, "others_ms": {TINY.name: [others_ms] * 4},
        "call_cpu_ms": {TINY.name: [call_cpu_ms] * 4},
    }  # fmt: skip


SKIPS: Process = {"block_ms": (1.9,) * 6}
REPEATS: Process = {"repeated": 0.94}
ASIDE: Process = {"wall_s": 0.16}
THREADS: Process = {"processor": (31.0, 0.1, 0.5)}  # the reference 0.6 ms, a call of it 60 ms
OF: dict[
    str, tuple[Process, Process, bool, str]
] = {  # by rule: a process that it finds, one that it does not, on which device, and what is said
    "side by side": (REPEATS, {"repeated": 0.96}, True, "a call on repeated inputs takes 94% of one on new inputs"),
    "between regimes": (
        {"block_ms": (7.9,) * 6},
        {"block_ms": (8.1,) * 6},
        True,
        "7.9 ms a call on repeated inputs, 10",
    ),
    "between regimes of a CPU": (SKIPS, {"block_ms": (2.6,) * 6}, False, "1.9 ms a call on repeated inputs, 10 ms on"),
    "windows": (ASIDE, {"wall_s": 0.14}, False, "0.6 s in calls of windows that lasted 0.96 s"),
    "threads": (THREADS, {"processor": (30.0, 0.1, 0.5)}, False, "took 31.1 ms before a call, 0.6 ms beside the"),
}


@pytest.mark.parametrize("led", [True, False])
def test_what_is_before_a_window_is_no_work_aside(*, led: bool) -> None:
    """A call of another length, or of models' steps some replays: of a step of 0.25 s one is timed in a second."""
    given: Process = {"replayed": True, "led": led, "calls": 1, "wall_s": 0.02}
    for lead_ms, status in ((10.0, Status.PASSED), (4.1, Status.PASSED), (3.9, Status.ERROR)):
        assert record([{**given, "lead_ms": lead_ms}] * 3).status is status


@pytest.mark.parametrize(
    ("calls", "wall_s", "status"), [(1, 0.031, "PASSED"), (1, 0.052, "ERROR"), (2, 0.061, "ERROR")]
)
def test_on_a_cpu_threads_that_spin_after_a_call_are_no_work_aside(calls: int, wall_s: float, status: str) -> None:
    """Up to 20 ms before each call that is a turn by itself; between several calls nothing is waited for."""
    given: Process = {"burst_ms": (20.0,) * 4, "block_ms": (20.0,) * 6, "calls": calls, "wall_s": wall_s}
    of_reference = {"burst_ms": (20.0,) * 4, "block_ms": (20.0,) * 6}
    assert record([{**given, "reference": of_reference}] * 3, on_gpu=False).status == status


def test_what_works_outside_of_the_calls_of_one_length_is_found_there_whatever_the_others_do() -> None:
    """In windows of both together it would be within what a block may wait."""
    events: list[dict[str, Any]] = []
    for process in range(2):
        for name, began in (("torch_flash", 1000.0 * process), ("flex", 1000.0 * process + 100)):
            event = timed(name, process, began=began, workloads=("tiny", "tinier"), block_ms=(10.0,) * 6)
            [whole] = event["blocks"]
            fields = ("samples_ms", "calls")
            blocks = [{**whole, **{of: {own: whole[of][own]} for of in fields}} for own in ("tiny", "tinier")]
            if name == "flex":
                blocks[1]["windows"] = [[begin, begin + 0.16] for begin, _ in whole["windows"]]
            events += [{**event, "blocks": blocks}]
    whole = collected([READY, *events])
    context = Context(cell=CELL, device=GPU, processes=2, fingerprint={}, measured_at="", powers={})
    for name in ("tiny", "tinier"):
        whole.add(parsed(checked("flex", name)))
    at = {one.workload.name: one for one in recording.of_cell(whole, ["flex"], [TINY, TINIER], context)}
    assert at["tiny"].status is Status.PASSED
    assert (at["tinier"].status, at["tinier"].flags[0].kind) == (Status.ERROR, FlagKind.WORKS_ASIDE)


@pytest.mark.parametrize("rule", OF)
def test_two_processes_that_agree_decide_or_the_only_one(rule: str) -> None:
    found, not_found, on_gpu, said = OF[rule]
    for processes in ([found, not_found, found], [found], [found, found, HONEST]):
        made = record(processes, on_gpu=on_gpu)
        assert (made.status, made.timings) == (Status.ERROR, {})
        assert said in str(made.reason)
        [flag] = made.flags
        kind, regime = (
            (FlagKind.WORKS_ASIDE if rule in ("windows", "threads") else FlagKind.SKIPS_WORK),
            BURST if rule in ("side by side", "threads") else SUSTAINED,
        )
        assert (flag.kind, flag.regime) == (kind, regime)
    busy = [found, not_found, not_found]  # a machine that was busy in one of them
    assert record(busy, on_gpu=on_gpu).status is Status.PASSED
    assert record([not_found] * 3, on_gpu=on_gpu).status is Status.PASSED


def test_who_used_the_device_too_is_named_where_times_are_not_believed() -> None:
    made = record([REPEATS], others=["12 python3 2000 MiB"])
    assert str(made.reason).endswith(" of one on new inputs (12 python3 2000 MiB used the device too)")


@pytest.mark.parametrize(
    ("given", "on_gpu", "status"),
    [
        # The reference is as much shorter on repeated inputs, or longer: its launch is, or its clock falls.
        ({"block_ms": (6.0,) * 6, "reference": {"burst_ms": (10.0,) * 4, "block_ms": (7.0,) * 6}}, True, "PASSED"),
        ({"block_ms": (9.0,) * 6, "reference": {"burst_ms": (10.0,) * 4, "block_ms": (30.0,) * 6}}, True, "PASSED"),
        # So short that what lies between two events, or other programs on a CPU, are what is seen.
        ({"burst_ms": (0.09,) * 4, "block_ms": (0.05,) * 6}, True, "PASSED"),
        ({"burst_ms": (0.11,) * 4, "block_ms": (0.05,) * 6}, True, "ERROR"),
        ({"burst_ms": (0.09,) * 4, "block_ms": None, "repeated": 0.9}, True, "PASSED"),
        ({"burst_ms": (0.11,) * 4, "block_ms": None, "repeated": 0.9}, True, "ERROR"),
        ({"burst_ms": (9.9,) * 4, "block_ms": (0.1,) * 6}, False, "PASSED"),
        ({"burst_ms": (10.1,) * 4, "block_ms": (0.1,) * 6}, False, "ERROR"),
        ({"burst_ms": (12.0, 20.0, 60.0, 90.0), "block_ms": (4.0,) * 6}, False, "PASSED"),  # by the shortest of a CPU
        # Both times of a call are the host's that takes as long to launch it.
        ({"block_ms": (7.0,) * 6, "launch_ms": 8.6}, True, "PASSED"),
        ({"block_ms": (7.0,) * 6, "launch_ms": 8.4}, True, "ERROR"),
        ({"block_ms": (5.9,) * 6, "launch_ms": 8.6}, True, "ERROR"),
        # A CUDA graph's time is the device's, and a launched step's that of the host.
        ({"block_ms": (4.0,) * 6, "launch_ms": 8.6, "replayed": True}, True, "PASSED"),
        ({"block_ms": (7.0,) * 6, "launch_ms": 8.4, "replayed": True}, True, "ERROR"),
        # A host that is held up makes a launched step longer, by its launch at most.
        ({**STEP, "block_ms": (17.6,) * 6, "burst_ms": (28.2,) * 4, "launch_ms": 12.0}, True, "PASSED"),
        ({**STEP, "block_ms": (7.0,) * 6, "launch_ms": 8.4}, True, "PASSED"),
        ({**STEP, "block_ms": (5.7,) * 6, "launch_ms": 3.0}, True, "PASSED"),
        ({**STEP, "block_ms": (5.5,) * 6, "launch_ms": 3.0}, True, "ERROR"),
        ({"block_ms": (4.0,) * 6, "launch_ms": 8.6, "replayed": True, "repeated": 1.0}, True, "ERROR"),
        ({"block_ms": None}, True, "PASSED"),  # burst samples alone were asked for
    ],
)
def test_what_differs_for_other_reasons_is_believed(given: Process, on_gpu: bool, status: str) -> None:
    assert record([given] * 3, on_gpu=on_gpu).status == status


def test_the_untimed_first_call_of_a_gpu_s_window_counts_as_one() -> None:
    long_calls: Process = {"burst_ms": (60.0,) * 4, "block_ms": (60.0,) * 6, "calls": 1, "wall_s": 0.12}
    assert record([long_calls] * 3, on_gpu=True).status is Status.PASSED
    assert record([long_calls] * 3, on_gpu=False).status is Status.ERROR
    unled: Process = {**long_calls, "led": False}
    assert record([unled] * 3, on_gpu=True).status is Status.ERROR
    assert record([{**unled, "wall_s": 0.08}] * 3, on_gpu=True).status is Status.PASSED
