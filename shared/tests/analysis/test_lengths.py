"""Exponents of planted curves, and crossovers that are there: none where intervals overlap at either end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from fakes import tokens
from sample_records import changed, record

from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.lengths import crossovers, of_memory, of_time
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Memory, Record, Timing
from fluxbench.records.status import Status

LENGTHS = (64, 128, 256, 512, 1024, 2048)


def at(length: int, operation: str = "attention") -> Workload:
    return dataclasses.replace(tokens(f"n{length}", length, operation), group="lengths")


def curve(variant: str, times_ms: Sequence[float | None], ci: float = 0.01, **fields: object) -> list[Record]:
    """Return a variant's records, one a length; None: it ran out of memory there."""
    found = []
    for length, ms in zip(LENGTHS, times_ms, strict=False):
        if ms is None:
            found.append(record(variant, at(length), status=Status.OUT_OF_MEMORY))
        else:
            found.append(record(variant, at(length), ms, ci=ci, burst_ci=ci, **fields))  # type: ignore[arg-type]
    return found


def group(*curves: list[Record]) -> Group:
    [found] = groups([one for its in curves for one in its])
    return found


def power(exponent: float, scale: float = 1e-4) -> list[float]:
    return [scale * length**exponent for length in LENGTHS]


@pytest.mark.parametrize("exponent", [1.0, 1.6, 2.0])
def test_the_exponent_of_time_is_that_which_was_planted(exponent: float) -> None:
    found = of_time(group(curve("torch_math", power(exponent))), "torch_math")
    assert found
    assert found.power.value == pytest.approx(exponent)
    assert found.power.low < exponent < found.power.high
    assert 0 < found.power.high - found.power.low < 0.1  # as wide as the times' own intervals make it
    assert found.lengths == LENGTHS[1:]  # from a sixteenth of the longest on


def test_short_calls_that_are_all_launch_do_not_bend_the_exponent() -> None:
    flat = [max(0.5, ms) for ms in power(2.0, 1e-4 / 2)]
    found = of_time(group(curve("torch_math", [50.0, *flat[1:]])), "torch_math")
    assert found
    assert found.lengths[0] == 128


def test_lengths_without_memory_are_left_out_and_two_are_too_few() -> None:
    times: list[float | None] = [*power(2.0)]
    found = of_time(group(curve("torch_math", [*times[:4], None, None])), "torch_math")
    assert found
    assert found.lengths == LENGTHS[:4]
    assert of_time(group(curve("torch_math", [times[0], times[1], None, None])), "torch_math") is None
    assert of_memory(group(curve("torch_math", times)), "torch_math") is None


def test_the_exponent_of_memory_is_of_inputs_and_peak() -> None:
    records = [
        changed(one, memory=Memory(
            inputs_bytes=256 * x, kept_bytes=0, allocated_bytes=4 * x**2 - 256 * x, reserved_bytes=1 << 40, call_bytes=0
        ))
        for one in curve("torch_math", power(2.0))
        for x in (one.workload.x,)
    ]  # fmt: skip
    found = of_memory(group(records), "torch_math")
    assert found
    assert (found.power.value, found.power.low, found.power.high) == pytest.approx((2.0, 2.0, 2.0))


FAST_SHORT = (1.0, 2.0, 4.0, 16.0, 64.0, 256.0)
FAST_LONG = (2.0, 2.5, 4.0, 8.0, 16.0, 32.0)  # equal at 256


def test_a_crossover_lies_between_the_lengths_at_which_either_is_faster() -> None:
    [found] = crossovers(group(curve("torch_math", FAST_SHORT), curve("torch_native", FAST_LONG)))
    assert (found.shorter.variant, found.longer.variant) == ("torch_math", "torch_native")
    assert (found.below, found.above) == (128, 512)
    assert 128 < found.length < 512
    # On the line between the logarithms: 0.8 times as long at 128, twice at 512.
    assert found.length == pytest.approx(128 * 4 ** (0.2231 / (0.2231 + 0.6931)), rel=1e-3)


def beside(records: list[Record], cell: str, reference_ms: float) -> list[Record]:
    """Return records as of a cell whose reference takes so long at all lengths."""

    def timing(one: Timing) -> Timing:
        ratio = one.median_ms / reference_ms
        its = tuple((reference_ms,) * len(part) for part in one.samples_ms)
        return msgspec.structs.replace(one, reference_ms=its, ratio=ratio, ratio_ci95=(0.99 * ratio, 1.01 * ratio))

    return [
        changed(one, cell=cell, timings={regime: timing(its) for regime, its in one.timings.items()}) for one in records
    ]


def test_a_crossover_of_ratios_lies_between_its_lengths_where_a_reference_was_slower_in_one_cell() -> None:
    early = beside(curve("torch_math", FAST_SHORT), "early", 1.0)
    late = beside(curve("torch_native", [1.3 * ms for ms in FAST_LONG]), "late", 1.3)
    same = crossovers(group(curve("torch_math", FAST_SHORT), curve("torch_native", FAST_LONG)))
    [found] = crossovers(group(early, late))
    assert (found.below, found.above) == (128, 512)
    assert found.length == pytest.approx(same[0].length)


@pytest.mark.parametrize(
    ("one", "other", "ci"),
    [
        (FAST_SHORT, [ms * 1.5 for ms in FAST_SHORT], 0.01),  # the same is always faster
        (FAST_SHORT, FAST_LONG, 0.8),  # no interval is apart from another
        (FAST_SHORT, [1.005, 2.01, 4.0, 8.0, 16.0, 32.0], 0.01),  # at short lengths the intervals overlap
        ([1.0, 2.0, 4.0, 8.0, 16.0, 32.1], [2.0, 3.0, 4.0, 8.0, 16.0, 32.0], 0.01),  # at long ones they do
        ([1.0, 4.0, 4.0, 8.0, 16.0, 40.0], [2.0, 2.0, 4.0, 8.0, 16.0, 40.0], 0.01),  # it is not so up to the longest
    ],
)
def test_there_is_no_crossover_where_intervals_overlap(one: list[float], other: list[float], ci: float) -> None:
    assert crossovers(group(curve("torch_math", one, ci), curve("torch_native", other, ci))) == []


def test_the_last_change_of_order_counts() -> None:
    one, other = (1.0, 4.0, 4.0, 9.0, 20.0, 50.0), (2.0, 2.0, 5.0, 8.0, 16.0, 32.0)
    [found] = crossovers(group(curve("torch_math", one), curve("torch_native", other)))
    assert (found.shorter.variant, found.below, found.above) == ("torch_math", 256, 512)


def test_kernels_of_other_classes_wrong_ones_and_lengths_of_one_alone_are_not_compared() -> None:
    tf32 = curve("torch_native", FAST_LONG, precision_class="tf32")
    assert crossovers(group(curve("torch_math", FAST_SHORT), tf32)) == []
    wrong = [*curve("torch_native", FAST_LONG)[:-1], record("torch_native", at(2048), status=Status.INCORRECT)]
    assert crossovers(group(curve("torch_math", FAST_SHORT), wrong)) == []
    alone = [None, None, None, *FAST_LONG[3:]]  # at no length that both have is torch_math the faster one
    assert crossovers(group(curve("torch_math", FAST_SHORT), curve("torch_native", alone))) == []
    [found] = crossovers(group(curve("torch_math", [*FAST_SHORT[:5], None]), curve("torch_native", FAST_LONG)))
    assert found.above == 512
