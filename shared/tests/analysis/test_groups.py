"""Records become curves: by operation and group, over x, the newest of each."""

from __future__ import annotations

import dataclasses

import pytest
from sample_records import LAUNCH_BOUND, PARTLY_REPLAYED, REPLAYED, record

from fluxbench.analysis import groups as of
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.operations.workload import Cost
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status

LENGTHS = sets.sets()["flux1-1024px"]


def curve(variant: str, *which: int) -> list[Record]:
    return [record(variant, LENGTHS[index]) for index in which]


def test_a_group_is_a_curve_over_x_whatever_the_order_of_its_records() -> None:
    [group] = groups([*curve("flex", 5, 0, 3), *curve("torch_flash", 0)])
    assert [workload.x for workload in group.workloads] == [128, 384, 512]
    assert (group.name, group.operation, group.axis) == ("flux1-1024px", "attention", "text tokens")
    assert group.longest == LENGTHS[5]
    assert group.variants == ("flex", "torch_flash")
    assert [each.workload.x for each in group.curve("flex")] == [128, 384, 512]


def test_variants_are_ranked_at_the_longest_workload_that_one_passed() -> None:
    out = [record(name, LENGTHS[5], status=Status.OUT_OF_MEMORY) for name in ("flex", "torch_flash")]
    [group] = groups([*curve("flex", 0, 3), *out])
    assert group.longest == LENGTHS[3]
    assert group.workloads[-1] == LENGTHS[5]
    [failed] = groups(out)
    assert failed.longest == LENGTHS[5], "nothing passed anywhere"


def test_groups_of_one_name_are_apart_where_the_operation_differs() -> None:
    backward = dataclasses.replace(sets.by_name()["flux1-1024px-t512-backward"], group="flux1-1024px")
    found = groups([record(), record(workload=backward), record(workload="wan-480p"), record(workload="wan-720p")])
    assert [(group.operation, group.name) for group in found] == [
        ("attention", "flux1-1024px"),
        ("attention_backward", "flux1-1024px"),
        ("attention", "wan"),
    ]


def test_the_workloads_of_an_operation_come_with_their_group_smallest_x_first() -> None:
    backward = sets.by_name()["flux1-1024px-t512-backward"]
    records = [record(workload=backward), record(workload="wan-480p"), *curve("flex", 5, 0)]
    found = [(group.name, workload.name) for group, workload in of.workloads_of(records, "attention")]
    assert found == [("wan", "wan-480p"), *(("flux1-1024px", LENGTHS[index].name) for index in (0, 5))]
    assert [workload for _, workload in of.workloads_of(records, "attention_backward")] == [backward]


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_records_of_the_same_thing_the_newer_one_counts(newer_first: bool) -> None:
    old = record(sustained_ms=5.0, measured_at="2026-01-01T00:00:00+00:00")
    new = record(sustained_ms=0.8, measured_at="2026-01-02T00:00:00+00:00")
    [group] = groups([new, old] if newer_first else [old, new])
    assert group.records == (new,)
    [of_one_time] = groups([record(sustained_ms=5.0), record(sustained_ms=0.8)])
    assert of.timing_of(of_one_time.records[0]).median_ms == 0.8


@pytest.mark.parametrize(
    ("fields", "distrusted"),
    [
        ({"status": Status.INCORRECT}, True),
        ({"status": Status.ERROR, "flags": [Flag(kind=FlagKind.FASTER_THAN_ROOFLINE)]}, True),
        ({"status": Status.ERROR, "flags": [Flag(kind=FlagKind.SKIPS_WORK)]}, True),
        ({"status": Status.ERROR}, False),
        ({"status": Status.CRASHED}, False),
        ({"flags": [LAUNCH_BOUND]}, False),
    ],
)
def test_a_wrong_answer_and_a_time_that_cannot_be_disqualify_a_variant_everywhere(
    fields: dict[str, object], distrusted: bool
) -> None:
    [group] = groups([*curve("flex", 5), record("flex", LENGTHS[0], **fields)])  # type: ignore[arg-type]
    assert group.distrusted == ({"flex"} if distrusted else set())


def test_rates_are_of_the_workload_and_the_time_that_ranks() -> None:
    cost = Cost(flops=4 * 10**12, min_flops=10**12, min_bytes=3 * 10**9)
    measured = record(workload=dataclasses.replace(LENGTHS[5], cost=cost), sustained_ms=2.0, burst_ms=1.0)
    assert of.tflops(measured) == pytest.approx(2000.0)
    assert of.gb_s(measured) == pytest.approx(1500.0)
    assert of.throughput(measured, "TFLOP/s") == of.tflops(measured)
    assert of.throughput(measured, "GB/s") == of.gb_s(measured)


def test_sustained_ranks_or_burst_where_there_is_nothing_else() -> None:
    burst = record(regimes=[BURST])
    assert of.ranking_regime([burst]) == BURST
    assert of.ranking_regime([burst, record()]) == SUSTAINED
    assert of.ranking_regime([record(status=Status.CRASHED)]) == of.ranking_regime([]) == SUSTAINED


def test_the_reference_is_that_of_the_times() -> None:
    assert of.reference_variant([record(status=Status.CRASHED), record("flex")]) == "torch_flash"
    assert of.reference_variant([record(status=Status.CRASHED)]) is None


def test_what_is_launch_bound_is_left_out_unless_all_are() -> None:
    late, kept = record("flex", flags=[LAUNCH_BOUND]), record()
    assert of.is_launch_bound(late)
    assert not of.is_launch_bound(kept)
    assert of.not_launch_bound([late, kept]) == [kept]
    assert of.not_launch_bound([late]) == [late]


def test_capped_regimes_are_those_that_did_not_converge_sustained_first() -> None:
    assert of.capped_regimes(record(converged={BURST: False, SUSTAINED: False})) == (SUSTAINED, BURST)
    assert of.capped_regimes(record(converged={BURST: False, SUSTAINED: True})) == (BURST,)
    assert of.capped_regimes(record()) == ()


@pytest.mark.parametrize("flags", [PARTLY_REPLAYED[:1], PARTLY_REPLAYED[1:], (REPLAYED, PARTLY_REPLAYED[1])])
def test_processes_that_all_time_the_same_have_a_time(flags: tuple[Flag, ...]) -> None:
    assert of.has_time(record("flex", regimes=[BURST], flags=flags))


def test_a_record_that_pools_replayed_and_launched_calls_has_no_time_and_its_other_lengths_have() -> None:
    mixed = record("flex", LENGTHS[5], regimes=[BURST], flags=PARTLY_REPLAYED)
    [group] = groups([*curve("flex", 0), mixed, *curve("torch_flash", 0, 5)])
    assert not of.has_time(mixed)
    assert group.trusted("flex", LENGTHS[5]) is None
    assert [each.workload for each in group.curve("flex")] == [LENGTHS[0]]
    assert group.find("flex", LENGTHS[5]) is mixed
    [alone] = groups([*curve("flex", 0), mixed])
    assert alone.longest == LENGTHS[0]
