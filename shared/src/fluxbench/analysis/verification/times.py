"""Whether a record's times follow from the samples, and whether samples can be what they claim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fluxbench.analysis.verification.cell import Cell, Sampled
from fluxbench.analysis.verification.origin import device_of
from fluxbench.analysis.verification.problem import Findings, Kind, finding
from fluxbench.analysis.verification.rebuilt import ESTIMATED_FROM, Expected
from fluxbench.bench.believing import another_kernel
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.records.schema import Record, Timing

_TIMES_MS = (1e-6, 1e9)  # what a call can take at all: a nanosecond to eleven days
_ROUNDING = 2e-6  # ms, and relative: samples are kept with six decimals
_WITHIN = 2e-5  # relative, of what follows from samples before they were rounded
_LEAST_SHARE = 0.1  # of the median of its series, under which a sample is none of the same call
_LEAST_SHARE_ON_CPU = 0.001  # where other programs may slow down most samples: 16 times was seen
_OF_INTERVALS = ("ci95_ms", "ratio_ci95", "converged")
_NEVER_EQUAL = 4  # different samples of a process, which are not those of another one by chance
_LEAST_WIDTH = 0.25  # of an interval, over a plain estimate from the spread of its samples


def range_of(record: Record) -> Findings:
    """Yield a time, or an end of its interval, that no call can take."""
    least, most = _TIMES_MS
    for regime, timing in record.timings.items():
        for ms in (timing.median_ms, *timing.ci95_ms):
            if not least <= ms <= most:
                yield finding(Kind.RANGE, regime=regime, what="times must be", least=least, most=most, got=ms)
                return
        for ratio in (timing.ratio, *timing.ratio_ci95):
            if not least / most <= ratio <= most / least:
                what = "ratios must be those of times"
                yield finding(Kind.RANGE, regime=regime, what=what, least=least, most=most, got=ratio)
                return


def of_record(record: Record) -> Findings:
    """Yield what the times of a record cannot be by themselves."""
    for regime, timing in record.timings.items():
        arithmetic = faster_than_possible(timing.median_ms, record.workload, device_of(record), record.precision_class)
        if arithmetic:
            yield finding(Kind.ROOFLINE, regime=regime, arithmetic=arithmetic)
            continue
        yield from _short(record, regime, [sample for part in timing.samples_ms for sample in part])
        if copied := _copied(timing.samples_ms):
            yield finding(Kind.COPIED, regime=regime, one=copied[0], other=copied[1])
        if record.method_version < ESTIMATED_FROM:
            middle = median(sample for part in timing.samples_ms for sample in part)
            yield from _value(regime, "median_ms", middle, timing.median_ms)
            yield from _width(regime, "ci95_ms", timing.median_ms, timing.ci95_ms, timing.samples_ms)


def against_samples(record: Record, cell: Cell, expected: Mapping[str, Expected]) -> Findings:
    """Yield in what a record's times are not those that the series of its cell give."""
    for one in cell.by_pair.get((record.variant, record.workload.name), ()):
        yield from _series(record, one)
        if kernels := another_kernel(record.kernels, one.kernels or ()):
            yield finding(Kind.OTHER_KERNEL, kernels=kernels, process=one.process + 1)
    for regime, timing in record.timings.items():
        found = expected.get(regime)
        yield from (
            _of_regime(record, regime, timing, found)
            if found
            else [finding(Kind.SAMPLES, regime=regime, what="processes", expected="none", got=timing.processes)]
        )


def _of_regime(record: Record, regime: str, timing: Timing, found: Expected) -> Findings:
    counts = [" + ".join(str(len(part)) for part in parts) for parts in (found.samples_ms, timing.samples_ms)]
    if counts[0] != counts[1]:
        yield finding(Kind.SAMPLES, regime=regime, what="counts by process", expected=counts[0], got=counts[1])
        return
    of_found, of_record = (
        [sample for part in parts for sample in part] for parts in (found.samples_ms, timing.samples_ms)
    )
    if off := next((pair for pair in zip(of_found, of_record, strict=True) if not equal(*pair)), None):
        yield finding(Kind.SAMPLES, regime=regime, what="ms", expected=f"{off[0]:.6g}", got=f"{off[1]:.6g}")
        return
    if found.reference_variant and timing.reference_variant != found.reference_variant:
        yield finding(Kind.REFERENCE, regime=regime, expected=found.reference_variant, got=timing.reference_variant)
        return
    if found.timing is not None:
        for name in found.timing.__struct_fields__:
            if found.intervals or name not in _OF_INTERVALS:
                yield from _value(regime, name, getattr(found.timing, name), getattr(timing, name))
        if not found.intervals:
            yield from _width(regime, "ci95_ms", timing.median_ms, timing.ci95_ms, timing.samples_ms)
        return
    for name in ("discarded", "median_ms", "ratio"):
        yield from _value(regime, name, getattr(found, name), getattr(timing, name))
    if record.variant != timing.reference_variant:
        yield from _width(regime, "ratio_ci95", timing.ratio, timing.ratio_ci95, found.quotients)


def _series(record: Record, one: Sampled) -> Findings:
    """Yield what a series cannot be."""
    yield from _short(record, one.regime, one.samples_ms)
    if 2 * sum(one.off) >= len(one.samples_ms) - one.warm_up:
        yield finding(Kind.RANKED, regime=one.regime, process=one.process)


def _short(record: Record, regime: str, samples: Sequence[float]) -> Findings:
    """Yield the shortest sample where no call can take as little.

    Of a process whose host was late with most calls it may be the only one that is right: the record's median counts.
    """
    shortest, device = min(samples), device_of(record)
    middle = min(median(samples), record.timings[regime].median_ms if regime in record.timings else math.inf)
    share = _LEAST_SHARE_ON_CPU if device.worker_kind == "cpu" else _LEAST_SHARE
    arithmetic = faster_than_possible(shortest, record.workload, device, record.precision_class)
    if arithmetic or shortest < share * middle:
        why = arithmetic or f"under {share:g} of the median, {middle:.4g} ms"
        yield finding(Kind.SHORT_SAMPLE, regime=regime, got=shortest, why=why)


def _copied(parts: Sequence[Sequence[float]]) -> tuple[int, int] | None:
    """Return two processes with the same samples, so many that they are not so by chance, or None."""
    seen: dict[tuple[float, ...], int] = {}
    for number, part in enumerate(parts):
        first = seen.setdefault(tuple(sorted(part)), number)
        if first != number and len(set(part)) >= _NEVER_EQUAL:
            return first, number
    return None


def _value(regime: str, name: str, expected: Any, got: Any) -> Findings:
    """Yield a value that is not the expected one, or differs from it anywhere where both are sequences."""
    if expected == got:
        return
    if isinstance(expected, tuple) and isinstance(got, tuple) and len(expected) == len(got):
        for pair in zip(expected, got, strict=True):
            yield from itertools.islice(_value(regime, name, *pair), 1)
    elif not (isinstance(expected, float | int) and isinstance(got, float | int)):
        yield finding(Kind.VALUE, regime=regime, name=name, expected=expected, got=got)
    elif abs(got - expected) > max(_WITHIN * abs(expected), _ROUNDING):
        yield finding(Kind.VALUE, regime=regime, name=name, expected=f"{expected:.6g}", got=f"{got:.6g}")


def equal(one: float, other: float) -> bool:
    """Whether two samples, in ms, are one that was rounded."""
    return abs(one - other) <= _ROUNDING * max(1.0, abs(other))


def _width(
    regime: str, name: str, middle: float, ends: tuple[float, float], parts: Sequence[Sequence[float]]
) -> Findings:
    """Yield an interval that is too narrow for its samples, of versions whose estimator is gone."""
    least, got = _LEAST_WIDTH * _plain_half(parts), (ends[1] - ends[0]) / 2 / middle
    if got < least or (got == 0 and len({sample for part in parts for sample in part}) > 1):
        yield finding(Kind.WIDTH, regime=regime, name=name, least=least, got=got)


def _plain_half(parts: Sequence[Sequence[float]]) -> float:
    """Return half a 95% interval of the median, relative, as if all spread were within processes.

    Two standard errors of a median, sqrt(pi / 2 / n) of the samples' standard deviation, which is 1.48 times their
    median distance from the middle of their process (both of a normal distribution): outliers do not widen it.
    """
    middles = [median(part) for part in parts]
    distances = [abs(sample - of) for part, of in zip(parts, middles, strict=True) for sample in part]
    return 2 * 1.48 * median(distances) * math.sqrt(math.pi / 2 / len(distances)) / median(middles)
