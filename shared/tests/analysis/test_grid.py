"""A grid of shapes: the fastest at each where it is measurably faster, by how much, and how fast all are over eager."""

from __future__ import annotations

from typing import Any

import pytest
from sample_records import record

from fluxbench.analysis.grid import called_ms, grids
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, Flag, Record
from fluxbench.records.status import FlagKind, Status

SMALL, LARGE = (sets.by_name()[f"sdpa-b{batch}-s64-h12-d32-bf16"] for batch in (8, 64))
TRAINING = sets.by_name()["sdpa-b8-s64-h12-d32-fp16-training"]


def timed(variant: str, ms: float, workload: Workload = SMALL, ci: float = 0.001, **fields: Any) -> Record:
    """Return a record of five processes; eager attention is of another class than the others."""
    kind = "rounded" if variant == "torch_eager" else "exact"
    fields = {"precision_class": kind, **fields}
    return record(variant, workload, burst_ms=ms, burst_ci=ci, reference_ms=1.0, regimes=[BURST], **fields)


def test_grids_are_by_pass_and_dtype_in_the_order_of_their_sizes() -> None:
    found = grids([timed("flex", 1.0, each) for each in (LARGE, TRAINING, SMALL)] + [record("flex", "wan-480p")])
    assert [grid.name for grid in found] == ["forward, bfloat16", "forward + backward, float16"]
    assert [point.sizes for point in found[0].points] == [(1, 32760, 128, 40), (8, 64, 32, 12), (64, 64, 32, 12)]
    assert grids([record("flex", "llama3-8b-decode-512")]) == []


def test_the_planted_fastest_wins_with_its_margin_over_the_second() -> None:
    of = [timed("torch_eager", 4.0), timed("torch_native", 2.0), timed("flex", 1.0), timed("flash_attn_2", 1.1)]
    [point] = grids(of)[0].points
    assert list(point.records) == ["flex", "flash_attn_2", "torch_native", "torch_eager"]
    assert point.winner is of[2]
    assert point.margin is not None
    assert point.margin.value == pytest.approx(1.1)
    assert 1.09 < point.margin.low < 1.1 < point.margin.high < 1.11
    gain = point.speedup("flex")
    assert gain is not None
    assert gain.value == pytest.approx(4.0)
    assert gain.low < 4 < gain.high
    assert point.speedup("torch_eager") is None


@pytest.mark.parametrize(("ms", "ci", "wins"), [(1.02, 0.001, True), (1.02, 0.02, False), (1.0, 0.001, False)])
def test_no_winner_is_told_where_intervals_overlap(ms: float, ci: float, wins: bool) -> None:
    of = [timed("torch_eager", 4.0, ci=ci), timed("flex", 1.0, ci=ci), timed("flash_attn_2", ms, ci=ci)]
    [point] = grids(of)[0].points
    assert (point.winner is not None) == (point.margin is not None) == wins
    assert {one.variant for one in point.level} == ({"flex"} if wins else {"flex", "flash_attn_2"})
    assert point.unsure == ()


def test_what_may_be_as_fast_and_ten_percent_slower_is_too_uncertain_to_tie() -> None:
    of = [timed("torch_eager", 4.0), timed("flex", 1.0), timed("flash_attn_2", 1.6, ci=0.7)]
    [point] = grids(of)[0].points
    assert (point.winner, point.level, point.unsure) == (None, (of[1],), (of[2],))


def test_one_alone_or_beside_what_failed_or_is_quantized_wins_nothing() -> None:
    others = [
        record("flash_attn_2", SMALL, status=Status.OUT_OF_MEMORY, regimes=[BURST]),
        record("flash_attn_3", SMALL, status=Status.INCORRECT, regimes=[BURST]),
        timed("flash_attn_3_fp8", 0.5, precision_class="quantized"),
    ]
    [point] = grids([timed("flex", 1.0), *others])[0].points
    assert list(point.records) == ["flex"]
    assert (point.winner, point.speedup("flex")) == (None, None)


def test_eager_attention_wins_where_it_is_the_fastest() -> None:
    [point] = grids([timed("torch_eager", 1.0), timed("flex", 1.2)])[0].points
    assert point.winner is not None
    assert point.winner.variant == "torch_eager"


def test_a_call_as_the_host_launches_it_takes_the_flags_time_and_a_long_one_its_own() -> None:
    replayed = Flag(kind=FlagKind.REPLAYED, regime=BURST, value=0.03)
    assert called_ms(timed("flex", 0.01, flags=[replayed])) == 0.03
    assert called_ms(timed("flex", 2.0)) == 2.0


def test_short_calls_that_were_timed_singly_are_not_compared_with_rows() -> None:
    flags = [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=0.02)]
    of = [timed("torch_eager", 0.04, flags=flags), timed("flex", 0.01, flags=flags), timed("flash_attn_2", 0.009)]
    [point] = grids(of)[0].points
    assert (list(point.records), point.single) == (["flex", "torch_eager"], (of[2],))
    [long] = grids([*of[:2], timed("flash_attn_2", 0.9)])[0].points
    assert (len(long.records), long.single) == (3, ())
    [none_in_rows] = grids([timed("torch_eager", 0.04), timed("flex", 0.01)])[0].points
    assert (len(none_in_rows.records), none_in_rows.single) == (2, ())


def test_a_row_beside_a_reference_that_took_another_time_than_elsewhere_has_no_rank() -> None:
    of = [timed("torch_eager", 4.0), timed("flex", 1.0), timed("flash_attn_2", 1.2)]
    false = record("torch_native", SMALL, burst_ms=1.1, burst_ci=0.001, reference_ms=3.0, regimes=[BURST])
    [point] = grids([*of, false])[0].points
    assert (list(point.records), point.astray) == (["flex", "flash_attn_2", "torch_eager"], (false,))
    assert grids(of)[0].points[0].astray == ()


@pytest.mark.parametrize(("ms", "wins"), [(0.019, False), (0.021, True)])
def test_a_rival_without_a_rank_takes_the_win_unless_it_is_over_twice_as_slow(ms: float, wins: bool) -> None:
    flags = [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=0.02)]
    of = [timed("flex", 0.01, flags=flags), timed("torch_native", 0.04, flags=flags), timed("flash_attn_2", ms)]
    [point] = grids(of)[0].points
    assert (point.winner is not None) == (point.margin is not None) == wins
    assert [one.variant for one in point.unranked] == ([] if wins else ["flash_attn_2"])
    assert point.level == (of[0],)


def test_what_no_kernel_is_faster_than_with_a_margin_above_1_ties() -> None:
    """Two variants: the test of one side says faster where the interval of both sides still reaches 1."""
    of = [timed("flex", 1.0, ci=0.01), timed("flash_attn_2", 1.0098, ci=0.01)]
    [point] = grids(of)[0].points
    gain = point.speedup("flex", "flash_attn_2")
    assert gain is not None
    assert gain.low <= 1 < gain.value
    assert (point.winner, point.level) == (None, tuple(of))


def test_times_as_called_are_in_order_and_short_ones_that_were_timed_singly_have_none() -> None:
    flags = {ms: [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=ms)] for ms in (0.05, 0.12)}
    of = [timed("flex", 0.01, flags=flags[0.12]), timed("torch_native", 0.02, flags=flags[0.05])]
    of += [timed("flash_attn_2", 0.03)]
    [grid] = grids(of)
    assert list(grid.points[0].called.items()) == [("torch_native", 0.05), ("flex", 0.12)]
    assert grid.is_replayed
    assert not grids([timed("flex", 1.0)])[0].is_replayed
