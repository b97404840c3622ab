"""Series of a cell to timings: what is ranked of the samples.

Intervals are from all variants of the cell at workloads of the same operation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import msgspec

from fluxbench.bench import series
from fluxbench.bench.collected import Collected
from fluxbench.bench.series import Cell, ProcessSeries, Series, reference_of
from fluxbench.records.schema import BURST, SUSTAINED, Timing
from fluxbench.stats.converged import MEDIAN_WITHIN, RATIO_WITHIN, sustained_within
from fluxbench.stats.intervals import Estimate, mean_ratios, means, medians, quotients
from fluxbench.worker.request import LAUNCHING_FROM


def timings_of(
    cell: Cell, operations: Mapping[str, str], *, winsorized: bool = True, apart: bool = True
) -> dict[str, dict[str, dict[str, Timing]]]:
    """Return the timings of a cell by variant, workload and regime, each from the samples that the records hold.

    `operations` are those of the workloads. `winsorized`, `apart`: as `Timing` has them. A workload that fewer
    processes measured than another of the variant and its operation has none, unless three did.
    """
    found: dict[str, dict[str, dict[str, Timing]]] = {variant: {} for variant in cell}
    for part in series.by_operation(cell, operations):
        for variant, by_workload in _of_operation(part, winsorized=winsorized, apart=apart).items():
            found[variant] |= by_workload
    return found


def _of_operation(cell: Cell, *, winsorized: bool, apart: bool) -> dict[str, dict[str, dict[str, Timing]]]:
    whole = {variant: _whole(taken) for variant, taken in cell.items()}
    found = {variant: _in_rounds(variant, taken, winsorized=winsorized) for variant, taken in whole.items()}
    loaded = {variant: _loaded(taken) for variant, taken in whole.items()}
    estimates = _sustained(loaded, apart=apart)
    for variant, by_workload in loaded.items():
        for name, one in by_workload.items():
            middle, ratio = estimates[variant, name]
            timing = _timing(variant, one.reference, one.series, one.own, one.anchors, middle, ratio)
            converged = _within(middle, sustained_within(ratio.value))
            found[variant][name][SUSTAINED] = msgspec.structs.replace(
                timing, statistic="mean", apart=apart, converged=converged
            )
    return found


LEAST = 2  # processes that measure every variant
_ENOUGH = 3  # of which a workload has times where more measured others of the variant
_SLOW = 1.5  # over the reference's time
# Times as wide as it must be, after three processes: two more halve such an interval, and decide nothing.
_HOPELESS = 10
_PERIOD_MS = 800.0  # of a turn that has a period of the power limit to itself: 1 s, to a fifth


class Width(NamedTuple):
    """A sustained mean's ratio to the reference, and half its 95% interval: both shares."""

    ratio: float
    half: float

    @property
    def enough(self) -> bool:
        """Whether the interval is as narrow as a record's must be."""
        return self.half <= sustained_within(self.ratio)

    @property
    def gains(self) -> bool:
        """Whether a further process can make it so narrow, or nearly."""
        return not self.enough and self.half <= _HOPELESS * sustained_within(self.ratio)


def widths(collected: Collected, workloads: Collection[str]) -> dict[str, dict[str, Width]]:
    """Return how well the sustained means are known so far, by variant and workload; of the reference too.

    `workloads` are of one operation. To be asked while a cell is being measured: variants and workloads without a block
    in each of their processes so far are left out.
    """
    now = dataclasses.replace(collected)  # with a log of its own: `Collected.log` keeps what it has seen once
    loaded = {
        variant: _loaded(_whole({name: its for name, its in taken.items() if name in workloads}))
        for variant, taken in series.of_cell(now).items()
    }
    found: dict[str, dict[str, Width]] = {}
    for (variant, name), (middle, ratio) in _sustained(loaded, apart=True).items():
        half = (middle.high - middle.low) / 2 / middle.value
        found.setdefault(variant, {})[name] = Width(ratio.value, half)
    return found


def is_slow(ratios: Iterable[float]) -> bool:
    """Return whether a variant with these sustained ratios decides no rank: two processes are enough for it."""
    known = list(ratios)
    return bool(known) and min(known) >= _SLOW


def _whole(taken: Mapping[str, Sequence[ProcessSeries]]) -> dict[str, Sequence[ProcessSeries]]:
    """Return the workloads that as many processes measured as any of the variant, or enough of them."""
    most = max(map(len, taken.values()), default=0)
    return {name: its for name, its in taken.items() if len(its) >= min(_ENOUGH, most) > 0}


_Sides = Sequence[tuple[Series, Sequence[float]]]  # by process: a series, and the reference's ranked samples beside it


def _in_rounds(
    variant: str, taken: Mapping[str, Sequence[ProcessSeries]], *, winsorized: bool
) -> dict[str, dict[str, Timing]]:
    """Return a variant's burst timings by workload, and those of sustained rounds beside the reference, as on a CPU."""
    found: dict[str, dict[str, Timing]] = {name: {} for name in taken}
    in_burst = {name: [(each.burst, each.burst.ranked(each.beside_ms)) for each in its] for name, its in taken.items()}
    in_rounds = {
        name: [(each.sustained, each.anchor.ranked()) for each in its if each.sustained and each.anchor]
        for name, its in taken.items()
        if all(each.paired for each in its)
    }
    for regime, sides in ((BURST, in_burst), (SUSTAINED, in_rounds)):
        for name, timing in _by_rounds(variant, taken, sides, winsorized=winsorized):
            found[name][regime] = timing
    return found


def _by_rounds(
    variant: str,
    taken: Mapping[str, Sequence[ProcessSeries]],
    sides: Mapping[str, _Sides],
    *,
    winsorized: bool,
) -> Iterator[tuple[str, Timing]]:
    """Yield the timing at each workload from rounds that the reference shared: medians, and of ratios in a round."""
    references = {name: reference_of(taken[name]) for name in sides}
    samples = {name: [_rounded(series.ranked()) for series, _ in its] for name, its in sides.items()}
    beside = {
        name: [
            _rounded(reference_ms) if each.trial.timed.reference == references[name] else ()
            for each, (_, reference_ms) in zip(taken[name], its, strict=True)
        ]
        for name, its in sides.items()
    }
    apart = [winsorized and _launches([series for series, _ in its]) for its in sides.values()]
    middles = medians(list(samples.values()), winsorized=winsorized, apart=apart)
    ratios = medians([quotients(samples[name], beside[name]) for name in sides], winsorized=winsorized, apart=apart)
    for name, middle, ratio in zip(sides, middles, ratios, strict=True):
        series = [each for each, _ in sides[name]]
        of = variant, references[name], series, samples[name], beside[name], middle, ratio
        yield name, _timing(*of, winsorized=winsorized)


def _launches(processes: Sequence[Series]) -> bool:
    """Whether launching a call takes the host about as long as the call: its times scatter as the host's do."""
    shares = [one.launch_ms / median(one.ranked()) for one in processes if one.launch_ms is not None and one.calls == 1]
    return bool(shares) and median(shares) >= LAUNCHING_FROM


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """The sustained samples of one variant at one workload, by process, with the reference's beside them."""

    windows: tuple[float, float]  # when the first and the last of the first process's block began
    turn_ms: float  # of its calls in a window there
    reference: str
    series: Sequence[Series]
    own: Sequence[tuple[float, ...]]
    anchors: Sequence[tuple[float, ...]]  # empty where a process had another reference


def _loaded(taken: Mapping[str, Sequence[ProcessSeries]]) -> dict[str, _Loaded]:
    """Return a variant's sustained samples by workload, where each process has a block and one of the reference."""
    found = {}
    for name, its in taken.items():
        if all(each.paired for each in its):
            continue
        blocks = [(each.sustained, each.anchor) for each in its if each.sustained and each.anchor]
        if len(blocks) < len(its):
            continue
        reference = reference_of(its)
        anchors = [
            _rounded(anchor.ranked()) if each.trial.timed.reference == reference else ()
            for each, (_, anchor) in zip(its, blocks, strict=True)
        ]
        found[name] = _Loaded(
            windows=(min(begins := [begin for begin, _ in blocks[0][0].spans]), max(begins)),
            turn_ms=blocks[0][0].calls * median(blocks[0][0].ranked()),
            reference=reference,
            series=[block for block, _ in blocks],
            own=[_rounded(block.ranked()) for block, _ in blocks],
            anchors=anchors,
        )
    return found


def _sustained(
    cell: Mapping[str, Mapping[str, _Loaded]], *, apart: bool
) -> dict[tuple[str, str], tuple[Estimate, Estimate]]:
    """Return the sustained mean and ratio by variant and workload, with what all variants say of their intervals.

    The reference's own ratio is 1, and says nothing of the others'. `apart`: as `Timing` has it.
    """
    several = means(
        [[one.own for one in taken.values()] for taken in cell.values()], _units(cell.values()) if apart else ()
    )
    found = {
        (variant, name): (middle, Estimate(1, 1, 1))
        for (variant, taken), estimates in zip(cell.items(), several, strict=True)
        for name, middle in zip(taken, estimates, strict=True)
    }
    against = {
        variant: {name: one for name, one in taken.items() if one.reference != variant}
        for variant, taken in cell.items()
    }
    ratios = mean_ratios(
        [[one.own for one in taken.values()] for taken in against.values()],
        [[one.anchors for one in taken.values()] for taken in against.values()],
        _units(against.values()) if apart else (),
    )
    for (variant, taken), estimates in zip(against.items(), ratios, strict=True):
        for name, ratio in zip(taken, estimates, strict=True):
            found[variant, name] = found[variant, name][0], ratio
    return found


def _units(every: Iterable[Mapping[str, _Loaded]]) -> list[list[Hashable]]:
    """Return by variant what is equal of workloads whose windows take turns.

    Where a turn lasts for a period of the power limit or nearly, as those of models' steps, it has a clock of its own.
    """
    found = []
    for taken in every:
        blocks, block, until = dict[str, Hashable](), 0, -math.inf
        for name, one in sorted(taken.items(), key=lambda pair: pair[1].windows):
            block += one.windows[0] > until
            blocks[name] = block, name if one.turn_ms >= _PERIOD_MS else ""
            until = max(until, one.windows[1])
        found.append([blocks[name] for name in taken])
    return found


def _rounded(samples_ms: Sequence[float]) -> tuple[float, ...]:
    """Return samples as a record holds them, so that all else of it follows from what it holds."""
    return tuple(round(sample, series.DIGITS_MS) for sample in samples_ms)


def _timing(
    variant: str,
    reference: str,
    series: Sequence[Series],
    samples_ms: Sequence[tuple[float, ...]],
    reference_ms: Sequence[tuple[float, ...]],
    middle: Estimate,
    ratio: Estimate,
    *,
    winsorized: bool = False,
) -> Timing:
    """Return the timing of one regime at a workload; the reference's own ratio is 1, without a width."""
    is_reference = variant == reference
    ratio = Estimate(1, 1, 1) if is_reference else ratio
    return Timing(
        median_ms=middle.value,
        ci95_ms=(middle.low, middle.high),
        samples_ms=tuple(samples_ms),
        reference_ms=() if is_reference else tuple(reference_ms),
        reference_variant=reference,
        ratio=ratio.value,
        ratio_ci95=(ratio.low, ratio.high),
        winsorized=winsorized,
        discarded=sum(len(each.counts) - sum(each.counts) for each in series),
        converged=_within(ratio, RATIO_WITHIN) and _within(middle, MEDIAN_WITHIN),
    )


def _within(estimate: Estimate, share: float) -> bool:
    return (estimate.high - estimate.low) / 2 <= share * estimate.value
