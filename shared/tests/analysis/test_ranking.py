"""Ranks: one more than the number of variants that are measurably faster; ties are overlaps of intervals."""

from __future__ import annotations

import random

import msgspec
import pytest
from sample_records import LAUNCH_BOUND, changed, record

from fluxbench.analysis.groups import groups
from fluxbench.analysis.ranking import Ranked, faster_in_burst, overlap, ranked, ties
from fluxbench.operations import sets
from fluxbench.records.schema import BURST, Record
from fluxbench.records.status import Status

LENGTHS = sets.sets()["flux1-1024px"]


def places(*records: Record, precision_class: str = "exact") -> list[Ranked]:
    [group] = groups(records)
    return ranked(group, group.longest, precision_class)


def short(entries: list[Ranked]) -> list[tuple[str, int | None, bool]]:
    return [(entry.record.variant, entry.rank, entry.tied) for entry in entries]


def test_intervals_that_touch_overlap() -> None:
    low, high = record("a", sustained_ms=0.5, ci=0.5), record("b", sustained_ms=1.5, ci=0.5)
    assert overlap(low, high)
    assert overlap(high, low)
    assert short(places(low, high)) == [("a", 1, True), ("b", 1, True)]
    assert not overlap(low, record("c", sustained_ms=1.51, ci=0.5))


def test_a_wide_interval_ranks_before_faster_medians() -> None:
    wide = record("wide", sustained_ms=0.7, ci=0.3)
    found = places(record("a", sustained_ms=0.5), record("b", sustained_ms=0.6), wide)
    assert short(found) == [("a", 1, True), ("wide", 1, True), ("b", 2, True)]


def test_variants_of_one_time_are_in_the_order_of_their_names() -> None:
    assert [name for name, _, _ in short(places(record("b"), record("a")))] == ["a", "b"]


def test_ranks_agree_with_counting_pair_by_pair() -> None:
    rng = random.Random(1)
    for _ in range(30):
        records = [record(f"v{i}", sustained_ms=rng.uniform(0.5, 1.5), ci=rng.uniform(0.0, 0.2)) for i in range(8)]
        for entry in places(*records):
            own = entry.record.timings["sustained"].ratio_ci95
            others = [r.timings["sustained"].ratio_ci95 for r in records if r is not entry.record]
            assert entry.rank == 1 + sum(high < own[0] for _, high in others)
            assert entry.tied == any(low <= own[1] and own[0] <= high for low, high in others)


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
    return record(variant, sustained_ms=sustained_ms, flags=[LAUNCH_BOUND], ci=0.6)


def test_what_is_launch_bound_stands_before_what_it_may_be_faster_than_and_is_tied_with_nothing() -> None:
    found = places(record(), record("a", sustained_ms=0.5), late("b", 0.6), late("slow", 3.0))
    assert short(found) == [("a", 1, False), ("b", None, False), ("torch_flash", 2, False), ("slow", None, False)]
    alone = [record("a", sustained_ms=0.1, flags=[LAUNCH_BOUND]), record(flags=[LAUNCH_BOUND])]
    assert short(places(*alone)) == [("a", 1, False), ("torch_flash", 2, False)]


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


def test_a_chain_of_overlaps_is_two_ties() -> None:
    chain = [record(name, sustained_ms=ms) for name, ms in (("a", 0.5), ("b", 0.504), ("c", 0.508))]
    assert ties(places(*chain)) == [["a", "b"], ["b", "c"]]
    assert ties(places(record("a", sustained_ms=0.5), record("b", sustained_ms=0.6))) == []
    assert ties(places(*chain, record("d", sustained_ms=0.505, ci=0.05))) == [["a", "b", "d"], ["b", "d", "c"]]
    touching = [record(name, sustained_ms=ms, ci=0.5) for name, ms in (("a", 0.5), ("b", 0.6), ("c", 1.5))]
    assert ties(places(*touching)) == [["a", "b", "c"]]
    assert ties(places(record("a", sustained_ms=0.5), record("b", sustained_ms=0.501), late("c", 0.5))) == [["a", "b"]]
