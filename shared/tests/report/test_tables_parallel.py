"""The table of steps on several GPUs: speedups over one GPU of the same host, and what a step is spent on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sample_records import H200, record, results
from tabled import rows_of, table_of, words

from fluxbench.operations import sets
from fluxbench.records.schema import Cupti, Record
from fluxbench.records.status import Status
from fluxbench.report.tables import parallel

PARTS = {"attention": 20.0, "products": 40.0, "communication": 10.0, "waiting": 5.0}


def step(way: str, ms: float, gpus: int = 2, variant: str = "torch_cudnn", **fields: Any) -> Record:
    workload = sets.by_name()[f"flux1-1024px-{way}-of-{gpus}"]
    return record(variant, workload, ms, ci=0.0005, reference_ms=180.0, **fields)


ALONE, ULYSSES = step("alone", 180.0), step("ulysses", 100.0)
RING = step("ring", 120.0, launch_ms=33.0, cupti=Cupti(events_ms=180.0, kernels_ms=73.0, span_ms=79.0, parts_ms=PARTS))


def test_a_speedup_is_over_one_gpu_of_the_same_host_with_its_interval() -> None:
    rows = rows_of(table_of(parallel.blocks(results(ALONE, ULYSSES, RING)), "A step alone"))
    assert [(row[1], row[2], row[5]) for row in rows] == [
        ("alone", "1", "-"), ("Ulysses", "2", "90.0%"), ("ring", "2", "75.0%"),
    ]  # fmt: skip
    assert rows[0][4] == "-"
    assert rows[1][4].startswith("1.80")
    assert rows[2][4].startswith("1.50")


def test_the_split_is_of_computing_communicating_waiting_and_no_kernel() -> None:
    *_, ring = rows_of(table_of(parallel.blocks(results(ALONE, ULYSSES, RING)), "A step as the host launches it"))
    # Of the profiled step alone, whose parts overlap for 2 ms; a step that was timed may have waited for longer.
    assert ring[-6:] == ("33.0", "79.0", "60.0", "10.0", "5.00", "6.00")


def test_steps_that_the_host_launches_too_slowly_do_not_widen_the_intervals_of_others() -> None:
    def of_ring(launch_ms: float) -> Any:
        times: dict[str, Any] = {"ci": 0.05, "reference_ms": 180.0, "launch_ms": launch_ms, "cupti": None}
        late = record("torch_cudnn", ULYSSES.workload, 100.0, **times)
        header, *found = parallel.rows(results(ALONE, late, step("ring", 120.0)))
        [row] = (row for each in found if (row := dict(zip(header, each, strict=True)))["way"] == "ring")
        return row["speedup_high"] / row["speedup_low"] - 1  # type: ignore[operator]

    assert of_ring(99.0) < 0.2 * of_ring(20.0)


def test_the_step_on_one_gpu_is_one_row_however_many_hosts_it_is_measured_beside() -> None:
    four = [step("alone", 182.0, 4), step("both", 52.0, 4)]
    rows = rows_of(table_of(parallel.blocks(results(ALONE, ULYSSES, *four)), "A step alone"))
    assert [(row[1], row[2]) for row in rows] == [("alone", "1"), ("Ulysses", "2"), ("Ulysses with ring", "4")]
    assert rows[-1][4].startswith("3.50")  # over the one of its own processes
    assert "Run on 2 and 4 GPUs of one host." in words(parallel.blocks(results(ALONE, ULYSSES, *four))[:1])


def test_the_fastest_way_of_each_model_is_named_with_its_speedup_if_it_is_one() -> None:
    [said] = [words([block]) for block in parallel.blocks(results(ALONE, ULYSSES, RING))[:1]]
    assert "FLUX.1 with 4,096 image tokens takes 100 ms on 2 by Ulysses (cuDNN (SDPA)), 1.80" in said
    assert said.endswith(" times as fast as on one GPU.")
    [said] = [words([block]) for block in parallel.blocks(results(ALONE, step("ring", 180.1)))[:1]]
    assert said.endswith("By its fastest way FLUX.1 with 4,096 image tokens is not measurably faster on 2 than on one.")


def test_one_block_of_a_model_is_not_given_as_the_model() -> None:
    times = {"alone": 180.0, "ring": 100.0}
    block = [record("torch_cudnn", sets.by_name()[f"wan-720p-{way}-of-2"], ms, ci=0.0005, reference_ms=180.0)
             for way, ms in times.items()]  # fmt: skip
    [said] = [words([one]) for one in parallel.blocks(results(*block))[:1]]
    assert "One block of Wan 2.1 with 75,600 image tokens takes 100 ms on 2 by ring" in said


def test_ways_that_may_be_as_fast_are_named_together_and_no_speedup_is_that_is_hardly_known() -> None:
    [said] = [words([block]) for block in parallel.blocks(results(ALONE, ULYSSES, step("ring", 100.02)))[:1]]
    assert "takes 100 ms on 2 by Ulysses (cuDNN (SDPA)), 1.80" in said
    assert said.endswith(" times as fast as on one GPU; ring is level with it.")
    wide = [record(one.variant, one.workload, 100.0, ci=0.4, reference_ms=180.0) for one in (ULYSSES,)]
    [said] = [words([block]) for block in parallel.blocks(results(ALONE, *wide))[:1]]
    assert "How much faster FLUX.1 with 4,096 image tokens is on 2 than on one is too uncertain to tell: 1.8" in said


def test_a_host_of_one_gpu_says_so_and_has_a_row_with_the_reason() -> None:
    reason = "needs 2 GPUs in one host; this one has 1"
    refused = [step(way, 1.0, status=Status.UNSUPPORTED, reason=reason) for way in ("alone", "ulysses")]
    blocks = parallel.blocks(results(*refused, device=replace(H200, count=1)))
    assert "This host has 1 GPU: no step was shared." in words(blocks)
    assert reason in words(blocks)


@pytest.mark.parametrize("count", [2, 8])
def test_the_csv_has_what_the_table_has(count: int) -> None:
    shared = [step("alone", 180.0, count), step("ring", 60.0, count)]
    header, alone, ring = parallel.rows(results(*shared))
    found = dict(zip(header, ring, strict=True))
    assert (found["gpus"], found["way"], found["speedup"]) == (count, "ring", pytest.approx(3.0, rel=1e-3))
    assert dict(zip(header, alone, strict=True))["speedup"] is None
