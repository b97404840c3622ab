"""Ranks: one more than the number of variants that are measurably faster, by the interval of the difference."""

from __future__ import annotations

import msgspec
import pytest
from rankings import places, short, timed
from sample_records import LAUNCH_BOUND, changed, record

from fluxbench.analysis.groups import groups
from fluxbench.analysis.ranking import faster_in_burst, is_uncertain, order, ranked, ties
from fluxbench.operations import sets
from fluxbench.records.schema import BURST, Record
from fluxbench.records.status import Status

# Means by process of the sustained samples of a published page of the H200 at 4,608 tokens: fourteen exact kernels.
PUBLISHED_MS = {
    "flex_flash": (0.42314, 0.42361, 0.42444),
    "flash_attn_4": (0.42222, 0.42354, 0.42617),
    "flash_attn_3": (0.42851, 0.42666, 0.42986),
    "flash_attn_3_compile_d": (0.43041, 0.42727, 0.42738),
    "torch_native": (0.44515, 0.44302, 0.44776),
    "torch_cudnn": (0.45067, 0.44395, 0.44389),
    "torch_cudnn_compile_d": (0.4452, 0.4486, 0.44534),
    "torch_native_compile_d": (0.4501, 0.44907, 0.4476),
    "cudnn_frontend": (0.45188, 0.44886, 0.45022),
    "te_fused": (0.451, 0.4525, 0.45408),
    "flash_attn_3_compile_ma": (0.4953, 0.49603, 0.49257),
    "torch_native_compile_ma": (0.516, 0.51935, 0.51384),
    "torch_cudnn_compile_ma": (0.51952, 0.52105, 0.51867),
    "triton_flash": (0.56639, 0.56795, 0.56594),
}
LENGTHS = sets.sets()["flux1-1024px"]


def tied(*records: Record) -> list[list[str]]:
    [group] = groups(records)
    return ties(group, ranked(group, group.longest, "exact"))


def test_of_a_published_page_flash_attention_4_is_faster_than_3_although_their_intervals_overlap() -> None:
    records = [timed(name, *means_ms) for name, means_ms in PUBLISHED_MS.items()]
    [group] = groups(records)
    found = {place.record.variant: place for place in ranked(group, group.longest, "exact")}
    four, three = (found[name] for name in ("flash_attn_4", "flash_attn_3"))
    faster = order(group, group.longest).speedup(four.record, three.record)
    assert (faster.low, faster.value, faster.high) == pytest.approx((1.002, 1.0103, 1.0186), abs=0.001)
    assert [name for name, place in found.items() if place.rank == 1] == ["flash_attn_4", "flex_flash"]
    assert (three.rank, three.tied) == (3, True)  # with its compiled form


def test_a_difference_that_both_intervals_hold_can_be_measurable() -> None:
    assert short(places(timed("a", 0.995, 1.0, 1.005), timed("b", 0.999, 1.004, 1.009))) == [
        ("a", 1, True),
        ("b", 1, True),
    ]
    steady = [timed(f"v{i}", *(ms * (2 + i) for ms in (0.999, 1.0, 1.001))) for i in range(9)]
    found = short(places(timed("a", 0.998, 1.0, 1.002), timed("b", 1.007, 1.009, 1.011), *steady))
    assert found[:2] == [("a", 1, False), ("b", 2, False)]  # nine others know how far processes differ


def in_burst(variant: str, *parts_ms: tuple[float, ...], **fields: object) -> Record:
    """Return a record of burst samples alone, one tuple for each process."""
    made = record(variant)
    timing = msgspec.structs.replace(made.timings[BURST], samples_ms=list(parts_ms), **fields)
    return changed(made, timings={BURST: timing}, telemetry={BURST: made.telemetry[BURST]})


@pytest.mark.parametrize("over_reference", [False, True])
def test_processes_whose_medians_agree_by_chance_differ_by_what_their_samples_say(over_reference: bool) -> None:
    """Steps take 9.8 or 9.34 ms, whatever the kernel (`decode`, an H200, 2026-11-28)."""
    beside = {"reference_variant": "reference", "reference_ms": [(9.0, 9.0, 9.0)] * 3} if over_reference else {}
    for high, low, is_steady in (((9.8, 9.8, 9.34), (9.34, 9.8, 9.34), False), ((9.8,) * 3, (9.34,) * 3, True)):
        one, other = in_burst("high", *[high] * 3, **beside), in_burst("low", *[low] * 3, **beside)
        [group] = groups([one, other, in_burst("steady", *[(8.8, 8.79, 8.81)] * 3, **beside)])
        faster = order(group, group.longest).speedup(other, one)
        assert faster.value == pytest.approx(9.8 / 9.34)
        assert (faster.low > 1.02) == is_steady


def test_a_bistable_variant_is_measurably_faster_than_little() -> None:
    steady = [timed(f"v{i}", *(ms * (1 + 0.1 * i) for ms in (0.999, 1.0, 1.001))) for i in range(9)]
    found = short(places(*steady, timed("bistable", 0.8, 0.8, 1.2)))
    assert {("v0", 1, True), ("bistable", 1, True)} < set(found)


def test_the_more_rivals_the_larger_a_difference_must_be() -> None:
    processes = (0.995, 1.0, 1.005)

    def of(count: int) -> int | None:
        rivals = [timed(f"v{i}", *processes) for i in range(count)]
        slow = timed("slow", *(1.015 * ms for ms in processes))
        return next(place.rank for place in places(*rivals, slow) if place.record.variant == "slow")

    assert [of(2), of(90)] == [3, 1]


def test_ratios_count_where_the_device_drifts_and_times_where_it_does_not() -> None:
    drift = (1.0, 1.1, 1.2)
    fast, slow = (timed(name, *(ms * by for by in drift), reference_ms=[(by,) for by in drift])
                  for name, ms in (("fast", 0.50), ("slow", 0.51)))  # fmt: skip
    assert [rank for _, rank, _ in short(places(fast, slow))] == [1, 2]
    scatter = [(0.9,), (1.0,), (1.1,)]
    fast, slow = (timed(name, *(ms * by for by in (0.9999, 1.0, 1.0001)), reference_ms=scatter)
                  for name, ms in (("fast", 0.50), ("slow", 0.51)))  # fmt: skip
    assert [rank for _, rank, _ in short(places(fast, slow))] == [1, 2]
    other_day = timed("other_day", 0.60, 0.6001, 0.5999, reference_ms=[(1.2,), (1.2002,), (1.1998,)])
    one_day = timed("one_day", 0.52, 0.5201, 0.5199, reference_ms=[(1.0,), (1.0002,), (0.9998,)])
    assert [name for name, _, _ in short(places(other_day, one_day))] == ["other_day", "one_day"]


def test_a_reference_that_is_unsteady_by_itself_is_no_device_that_drifts() -> None:
    """Beside one kernel it may take a tenth longer, where its memory lies otherwise, and the kernel does not."""
    fast = timed("fast", 0.5001, 0.5, 0.4999, reference_ms=[(0.80,), (0.84,), (0.82,)])
    slow = timed("slow", 0.5101, 0.51, 0.5099, reference_ms=[(1.0,), (1.1,), (1.2,)])
    assert short(places(fast, slow)) == [("fast", 1, False), ("slow", 2, False)]
    [group] = groups([fast, slow])
    found = order(group, group.longest).speedup(fast, slow)
    assert found.value == pytest.approx(1.02, abs=1e-3)


def test_a_single_process_is_as_many_values_as_samples() -> None:
    alone = [changed(record(name), timings={BURST: msgspec.structs.replace(
        record(name, burst_ms=ms).timings[BURST], samples_ms=((ms, 1.01 * ms, 0.99 * ms),))})
        for name, ms in (("a", 0.5), ("b", 0.6))]  # fmt: skip
    assert short(places(*alone)) == [("a", 1, False), ("b", 2, False)]
    single = [
        changed(one, timings={BURST: msgspec.structs.replace(one.timings[BURST], samples_ms=((0.5,),))})
        for one in alone
    ]
    assert [rank for _, rank, _ in short(places(*single))] == [1, 1]


def test_the_samples_of_a_single_process_are_no_processes_beside_records_of_several() -> None:
    several = [timed(name, *(0.5 * by for by in (0.99, 1.0, 1.01))) for name in ("a", "b", "c")]
    alone = timed("alone", 0.52)
    steady = msgspec.structs.replace(alone.timings["sustained"], samples_ms=[[0.52, 0.5201, 0.5199] * 4])
    alone = changed(alone, timings={**alone.timings, "sustained": steady})
    assert [rank for _, rank, _ in short(places(*several, alone))] == [1, 1, 1, 1]


def test_variants_of_one_time_are_in_the_order_of_their_names() -> None:
    assert [name for name, _, _ in short(places(record("b"), record("a")))] == ["a", "b"]


def test_precision_classes_are_ranked_apart() -> None:
    records = (record(), record("fp8", sustained_ms=0.3, precision_class="quantized"))
    assert short(places(*records)) == [("torch_flash", 1, False)]
    assert short(places(*records, precision_class="quantized")) == [("fp8", 1, False)]


@pytest.mark.parametrize(
    ("status", "has_rank"), [(Status.INCORRECT, False), (Status.ERROR, True), (Status.TIMEOUT, True)]
)
def test_a_variant_that_is_wrong_at_one_length_has_no_place_at_another(status: Status, has_rank: bool) -> None:
    found = places(record(), record("flex", LENGTHS[5], 0.1), record("flex", LENGTHS[0], status=status))
    assert ("flex" in {entry.record.variant for entry in found}) is has_rank


def test_variants_are_ranked_at_the_longest_workload_and_those_that_did_not_pass_have_no_place() -> None:
    crashed = record("b", status=Status.CRASHED)
    found = places(record("a", LENGTHS[0], 0.1), record("a", LENGTHS[5], 2.0), record(), crashed)
    assert short(found) == [("torch_flash", 1, False), ("a", 2, False)]


def late(variant: str, sustained_ms: float) -> Record:
    return record(variant, sustained_ms=sustained_ms, flags=[LAUNCH_BOUND])


def test_what_is_launch_bound_is_ranked_by_the_time_of_launching() -> None:
    found = places(record(), record("a", sustained_ms=0.5), late("b", 0.6), late("slow", 3.0))
    assert short(found) == [("a", 1, False), ("b", 2, False), ("torch_flash", 3, False), ("slow", 4, False)]


def test_a_burst_is_faster_where_its_interval_lies_wholly_under() -> None:
    fast, slow = record("a", burst_ms=0.5), record("b", burst_ms=0.6)
    assert faster_in_burst(fast, slow)
    assert not faster_in_burst(slow, fast)
    assert not faster_in_burst(fast, record("b", burst_ms=0.5004))
    assert not faster_in_burst(fast, record("b", burst_ms=0.6, regimes=["sustained"]))
    assert not faster_in_burst(record("a", burst_ms=0.5, regimes=["sustained"]), slow)
    burst = msgspec.structs.replace(slow.timings[BURST], reference_variant="torch_math")
    other = changed(slow, timings={BURST: burst})
    assert not faster_in_burst(fast, other)  # over another reference


def test_a_chain_of_differences_too_small_to_measure_is_two_ties() -> None:
    chain = [record(name, sustained_ms=ms) for name, ms in (("a", 0.5), ("b", 0.502), ("c", 0.504))]
    assert tied(*chain) == [["a", "b"], ["b", "c"]]
    assert tied(record("a", sustained_ms=0.5), record("b", sustained_ms=0.6)) == []
    assert tied(record("a", sustained_ms=0.5), record("b", sustained_ms=0.501), late("c", 0.5)) == [["a", "c", "b"]]


def wide(variant: str, *means_ms: float, ends: tuple[float, float], **fields: object) -> Record:
    """Return a record whose interval has these ends, in shares of its value."""
    made = timed(variant, *means_ms)
    timing = made.timings["sustained"]
    both = {
        "ci95_ms": tuple(end * timing.median_ms for end in ends),
        "ratio_ci95": tuple(end * timing.ratio for end in ends),
    }
    return changed(made, timings={**made.timings, "sustained": msgspec.structs.replace(timing, **(both | fields))})


def test_what_is_too_uncertain_has_no_rank_and_moves_no_other() -> None:
    steady = [timed(f"v{i}", *(ms * (0.4 + 0.01 * i) for ms in (0.999, 1.0, 1.001))) for i in range(5)]
    # The published means of te_fused_compile_ma beside Gluon's 0.408 ms: by the tests it is slower than all.
    late = wide("late", 1.0276, 0.57, 0.5789, 0.8958, ends=(0.65, 1.546))
    beside = wide("beside", 0.39, 0.41, 0.52, ends=(0.5, 2.0))
    fast = wide("fast", 0.2, 0.21, 0.23, ends=(0.5, 2.0))
    found = places(*steady, late, beside, fast)
    assert [place.record.variant for place in found if place.uncertain] == ["beside"]
    assert short([place for place in found if not place.uncertain]) == short(places(*steady, late, fast))
    assert (found[0].record.variant, found[0].tied) == ("fast", False)
    alone = places(late, fast)  # nothing else says that they are apart
    assert all(place.uncertain for place in alone)


@pytest.mark.parametrize(("alike", "rank"), [(1, 4), (2, 4), (3, None)])
def test_a_wide_interval_has_a_rank_where_most_of_the_others_are_apart(alike: int, rank: int | None) -> None:
    fast = [timed(f"fast{i}", *(ms * (0.4 + 0.001 * i) for ms in (0.999, 1.0, 1.001))) for i in range(3)]
    slow = [timed(f"slow{i}", *(ms * (1.2 + 0.001 * i) for ms in (0.999, 1.0, 1.001))) for i in range(alike)]
    found = places(*fast, *slow, wide("wide", 1.0, 1.2, 1.5, ends=(0.7, 1.4)))
    [of_wide] = [place for place in found if place.record.variant == "wide"]
    assert (None if of_wide.uncertain else of_wide.rank) == rank
    if rank:
        assert of_wide.tied
        assert {place.tied for place in found if place.record.variant.startswith("slow")} == {True}
    assert [place.rank for place in found if place.record.variant.startswith("fast")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("ends", "fields", "expected"),
    [
        ((0.8, 1.25), {}, False),
        ((0.7, 1.26), {}, True),
        ((0.7, 1.26), {"ratio_ci95": (0.99, 1.01)}, False),  # as on a CPU, where ratios are steadier than times
        ((0.99, 1.01), {"ratio_ci95": (0.7, 1.5)}, False),  # of a reference that scatters
    ],
)
def test_both_intervals_decide_what_is_too_uncertain(
    ends: tuple[float, float], fields: dict[str, object], expected: bool
) -> None:
    assert is_uncertain(wide("flex", 1.0, ends=ends, **fields)) is expected


def test_a_reference_is_too_uncertain_by_its_time_but_for_rounds_beside_it() -> None:
    exact = {"ratio": 1.0, "ratio_ci95": (1.0, 1.0)}
    assert is_uncertain(wide("torch_flash", 1.0, ends=(0.7, 1.3), **exact))
    assert not is_uncertain(wide("torch_flash", 1.0, ends=(0.7, 1.3), statistic="median", **exact))
