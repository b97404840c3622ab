"""A row that runs out of memory beside others is measured again with nothing else in memory, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_workers import ALL_PASSED, outcomes, played, skip_silence

from fluxbench.bench import pool, series, timings
from fluxbench.bench.collected import Collected
from fluxbench.bench.processes import Batch
from fluxbench.records.schema import Shortage
from fluxbench.records.status import Status
from fluxbench.worker.request import ALONE, USUAL, Effort, Request

LACK = {"asked_bytes": 9 << 30, "free_bytes": 2 << 30, "total_bytes": 10 << 30, "own_bytes": 7 << 30}
SCENARIO = f"""
def before(step, variant=None, workload=None):
    alone = request["alone"]
    if step == "check" and (PAIR) and (CONDITION):
        emit("failed", variant=variant, workload=workload, status="OUT_OF_MEMORY",
             reason="asked for 9 GiB" + " alone" * alone, shortage={LACK})
        return "fails"
"""


def lacking(condition: str, pair: str = "(variant, workload) == ('b', 'tiny')") -> str:
    return SCENARIO.replace("PAIR", pair).replace("CONDITION", condition)


def requests(folder: Path) -> list[Request]:
    paths = sorted(folder.glob("request-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
    return [Request.from_json(path.read_text(encoding="utf-8")) for path in paths]


@pytest.mark.parametrize("condition", ["not alone", "process == 1 and not alone", "process == 2 and not alone"])
def test_a_row_that_lacks_memory_beside_others_passes_alone(tmp_path: Path, condition: str) -> None:
    """An allocator that is fragmented, or another process that takes memory for a while."""
    collected = played(tmp_path, lacking(condition))
    assert outcomes(collected) == ALL_PASSED
    assert [(each.variant, each.workload, each.reason) for each in collected.lacked] == [
        ("b", "tiny", "asked for 9 GiB")
    ]
    alone = [each for each in requests(tmp_path) if each.effort.held_bytes == ALONE]
    together = [each for each in requests(tmp_path) if each.effort.held_bytes is None]
    assert len(together) == 3
    assert alone
    assert {(each.variants, tuple(of.name for of in each.workloads)) for each in alone} == {(("b",), ("tiny",))}
    assert len({trial.timed.process for trial in collected.taken("b", "tiny")}) == 3


@pytest.mark.parametrize(
    ("factors", "processes"),
    [((3.0, 3.0, 3.0), 2), ((1.0, 1.0, 3.0), 3), ((1.0, 1.03, 1.01, 1.01, 1.01), 3)],  # of the others, of a row alone
)
def test_a_row_that_passes_alone_has_as_many_processes_as_it_needs_beside_the_others(
    tmp_path: Path, factors: tuple[float, ...], processes: int
) -> None:
    """Two are enough of what is far slower; where its other rows have more, one of two has no interval beside them."""
    slow = f"""
def mean_ms(name):
    return (3.0 if request["alone"] else {factors}[process]) if name == "b" else 1.0
"""
    collected = played(tmp_path, lacking("not alone") + slow, most=len(factors))
    others = len(collected.taken("b", "tinier"))
    assert (len(collected.taken("b", "tiny")), others) == (processes, {2: 2, 3: len(factors)}[processes])
    assert timings.timings_of(series.of_cell(collected), {})["b"].keys() == {"tiny", "tinier"}


def test_what_lacks_memory_alone_too_stands_with_what_was_asked_for_and_free(tmp_path: Path) -> None:
    collected = played(tmp_path, lacking("True"))
    assert outcomes(collected) == ALL_PASSED | {"b at tiny": "OUT_OF_MEMORY"}
    failed = collected.failed["b", "tiny"]
    assert (failed.reason, failed.shortage) == ("asked for 9 GiB alone", Shortage(**LACK))
    assert [each.effort.held_bytes for each in requests(tmp_path)].count(
        ALONE
    ) == 1  # the process after that has nothing left to do


@pytest.mark.parametrize("effort", [Effort(held_bytes=ALONE), USUAL])
def test_inputs_that_lack_memory_are_tried_once_more_alone(tmp_path: Path, effort: Effort) -> None:
    """Also of a process that holds one workload at a time: those of other cells may have taken the memory."""
    of_inputs = lacking("True", "workload == 'tiny'").replace("shortage=", "of_inputs=True, shortage=")
    collected = played(tmp_path, of_inputs, effort=effort)
    assert outcomes(collected) == ALL_PASSED | {f"{name} at tiny": "OUT_OF_MEMORY" for name in "abc"}
    asked = [(each.variants, each.alone) for each in requests(tmp_path) if each.workloads[0].name == "tiny"]
    assert asked == [(("a", "b", "c"), False), (("a", "b", "c"), True)]


def test_what_asks_for_more_at_once_than_the_device_has_is_not_tried_again(tmp_path: Path) -> None:
    larger = lacking("True").replace(str(LACK), str({**LACK, "asked_bytes": 11 << 30}))
    collected = played(tmp_path, larger)
    assert outcomes(collected) == ALL_PASSED | {"b at tiny": "OUT_OF_MEMORY"}
    assert not any(each.alone for each in requests(tmp_path))


def test_a_reference_that_lacks_memory_is_tried_again_for_those_that_were_timed_beside_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reference of this cell is a variant of another one."""
    asked, left = [], []

    def measure(batch: Batch, collected: Collected, *_: object) -> None:
        asked.append((batch.variants, tuple(each.name for each in batch.workloads), batch.alone))
        left.append(dict(collected.failed))
        collected.fail("a", "tiny", Status.OUT_OF_MEMORY, "asked for 9 GiB")

    monkeypatch.setattr(Batch, "measure", measure)
    played(tmp_path, "", names=("b", "c"), references=("a",))
    assert asked == [(("b", "c"), ("tiny", "tinier"), False), (("b", "c"), ("tiny",), True)]
    assert left == [{}, {}]


def test_several_rows_without_memory_cost_no_other(tmp_path: Path) -> None:
    collected = played(tmp_path, lacking("True", "workload == 'tiny' and variant != 'a'"))
    lost = {f"{name} at tiny": "OUT_OF_MEMORY" for name in "bc"}
    assert outcomes(collected) == ALL_PASSED | lost
    alone = [each for each in requests(tmp_path) if each.effort.held_bytes == ALONE]
    assert [each.variants for each in alone] == [("b", "c")]  # in one process


def test_a_row_that_time_is_too_short_to_try_alone_is_not_said_to_need_more_than_the_device_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_silence(monkeypatch, tmp_path, pool)
    late = lacking("True").replace("    alone = ", "    step == 'done' and silent(1)\n    alone = ")
    collected = played(tmp_path, late, deadline_s=99.0)
    assert not any(each.effort.held_bytes for each in requests(tmp_path))
    assert {failed.status for failed in collected.failed.values()} == {Status.TIMEOUT}
    assert collected.failed["b", "tiny"].reason.endswith(" (out of memory beside others: asked for 9 GiB)")
    assert collected.cut
