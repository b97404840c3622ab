"""Sentences that several tables and figures share: what was measured, how, and what the other regime would say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fluxbench.analysis.groups import Group, has_flag, is_launch_bound, reference_variant
from fluxbench.analysis.ranking import Ranked, faster_in_burst
from fluxbench.core.formatting import first, interval, plus_minus
from fluxbench.operations.words import describe, operation
from fluxbench.operations.workload import Workload
from fluxbench.records.method import EACH_PROFILES
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.stats.converged import CLOSE, MEDIAN_WITHIN, RATIO_WITHIN, SLOWER_WITHIN, SUSTAINED_WITHIN
from fluxbench.stats.intervals import Estimate
from fluxbench.variants.forms import simplicity

_NAMED = 4  # variants that a sentence names before it counts the rest
PRECISION = (
    f"95% intervals, in burst within ±{RATIO_WITHIN:.1%} of the ratio and ±{MEDIAN_WITHIN:.1%} of the time, sustained "
    f"within ±{SUSTAINED_WITHIN:.1%} of the time, or ±{SLOWER_WITHIN:.1%} where the ratio is over {CLOSE:g}"
)
MEASURABLY = "by t tests of differences, corrected for the number of rivals at 5%"
_EXCEPT = {
    FlagKind.NOT_SETTLED: (SUSTAINED, "the speed did not settle in some process"),
    FlagKind.KEPT_OUT_OF_REGIME: (
        BURST, "half or more of a process's samples are of a device that was not at rest before, such as at a lower "
        "clock, and are kept"
    ),
}  # fmt: skip
INTERVALS = "95% intervals in brackets or half of one after ±"


def title(group: Group) -> str:
    """Return a group's name, with what is timed where that is not attention's forward pass."""
    timed = operation(group.operation)
    return f"{group.name} ({timed})" if timed else group.name


def shape(group: Group) -> str:
    """Return a group's name and the shape of its longest workload in words."""
    return f"{title(group)} with {describe(group.longest)}"


def where(group: Group, workloads: Sequence[Workload]) -> str:
    """Return at which workloads of a group something holds: "everywhere", or "at 448, 512 text tokens"."""
    if len(workloads) == len(group.workloads):
        return "everywhere"
    return f"at {', '.join(f'{workload.x:,}' for workload in workloads)} {group.axis}"


def leaders(places: Sequence[Ranked]) -> list[Record]:
    """Return one record per kernel of those that nothing beats, fastest kernel first, each in its simplest form."""
    kernels: dict[str, list[Record]] = {}
    for place in places:
        if place.rank == 1:
            kernels.setdefault(place.record.kernel, []).append(place.record)
    return [min(forms, key=lambda record: simplicity(record.form)) for forms in kernels.values()]


def burst_order(places: Sequence[Ranked]) -> str:
    """Return which kernels would come before unbeaten ones if burst ranked; empty where its intervals name none.

    A kernel stands for all its forms: an unbeaten one in its simplest unbeaten form, another in its fastest. A
    launch-bound form takes no part: its sustained time is that of launching.
    """
    places = [place for place in places if not is_launch_bound(place.record)]
    kernels = {record.kernel: record for record in leaders(places)}
    unbeaten = len(kernels)
    for place in places:
        kernels.setdefault(place.record.kernel, place.record)
    order = list(kernels.values())
    clauses = []
    for index, record in enumerate(order):
        behind = [other for other in order[: min(index, unbeaten)] if faster_in_burst(record, other)]
        if behind:
            clauses.append(f"{_from_rest(record)} would come before {' and '.join(map(_from_rest, behind))}")
    return f"From rest (burst), {'; '.join(clauses)}." if clauses else ""


def _from_rest(record: Record) -> str:
    assert record.burst is not None
    return f"{record.variant} ({plus_minus(record.burst.median_ms, record.burst.ci95_ms)} ms)"


def conditions(records: Iterable[Record], regime: str | None = None) -> str:
    """Return what a regime's times rest on: samples, processes, clock and power; without one, those that rank."""
    timed = [(record, regime or (SUSTAINED if record.sustained else BURST)) for record in records]
    timings = [timing for record, of in timed if (timing := record.timings.get(of))]
    if not timings:
        return ""
    samples = _span({timing.count for timing in timings})
    parts = [f"{samples} samples from {_span({timing.processes for timing in timings})} fresh processes"]
    states = [state for record, of in timed if of in record.timings and (state := record.telemetry.get(of))]
    clocks = {round(state.sm_clock_mhz) for state in states if state.sm_clock_mhz is not None}
    watts = {round(state.power_w) for state in states if state.power_w is not None}
    if clocks:
        parts.append(f"SM clock {_span(clocks)} MHz")
    elif any(record.fingerprint.get("device_kind") != "cpu" for record, _ in timed):
        parts.append("SM clock unknown")
    if watts:
        parts.append(f"power {_span(watts)} W")
    return ", ".join(parts)


def method(records: Iterable[Record]) -> list[str]:
    """Return what the times are, a paragraph each: regimes, intervals, when, and with which versions."""
    everything = list(records)
    passed = [record for record in everything if record.status is Status.PASSED]
    if not passed:
        return [f"Nothing passed: there are no times among {len(everything)} records."]
    sustained = [record for record in passed if record.sustained and record.burst]
    burst = [record for record in passed if record.burst]
    old = [record for record in passed if not record.burst]
    paragraphs = []
    if sustained:
        paragraphs.append(
            "Sustained, which ranks: calls of one kernel back to back, after a warm-up in which clock and power settle "
            "in the state that this very kernel brings the device to; a sample is the mean of calls over 0.1 s, of "
            "replayed steps of a model over 0.8 s, or of one longer call; of steps that the host launches it is one "
            "step; on a CPU it is of a round in which calls take turns with the reference's. "
            f"{capitalized(conditions(sustained))}.{_except(sustained, FlagKind.NOT_SETTLED)}"
        )
    if burst:
        paragraphs.append(
            f"Burst{'' if sustained else ', which ranks'}: single calls in rounds that begin after a rest of the "
            "device, the cache cleared before each; a sample is one call. "
            f"{capitalized(conditions(burst, BURST))}.{_except(burst, FlagKind.KEPT_OUT_OF_REGIME)}"
        )
    if old:
        paragraphs.append(
            f"Measured by an older fluxbench{_of_all(old, passed)}: what is called sustained are single calls under "
            f"load, in turn with the other variants, the cache cleared before each; no burst. "
            f"{capitalized(conditions(old))}."
        )
    on_gpu = [record for record in passed if record.fingerprint.get("device_kind") != "cpu"]
    if before := [record for record in on_gpu if record.method_version < EACH_PROFILES]:
        paragraphs.append(
            f"Before method version {EACH_PROFILES}{_of_all(before, passed)}: torch's profiler had run in each process "
            "before calls were timed. It makes launching a call about 40% slower, and a launched call 0.5 to 0.9 µs "
            "longer in burst (an H200), but not the kernels of a CUDA graph."
        )
    days = sorted({record.measured_at[:10] for record in passed})
    versions = "; versions: " + ", ".join(_versions(passed)) if any(record.versions for record in passed) else ""
    return [
        *paragraphs,
        f"{' '.join(_statistics(passed))} 95% intervals are in brackets, or half of one after ±. Ratios are over "
        f"{reference_variant(passed)}'s time, so under 1 is faster. An interval between two other variants is that of "
        "their difference.",
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} (UTC){versions}.",
    ]


def _of_all(some: Sequence[Record], records: Sequence[Record]) -> str:
    """Return how many of the records some are, in brackets; empty where they are all."""
    return f" ({len(some):,} of {len(records):,} records)" if len(some) < len(records) else ""


def _except(records: Sequence[Record], kind: FlagKind) -> str:
    """Return in how many rows the device was not in the state that a regime means; empty where in none."""
    regime, what = _EXCEPT[kind]
    count = sum(has_flag(each, kind, regime) for each in records)
    return f" In {count:,} of {len(records):,} rows {what}." if count else ""


def statistic(records: Iterable[Record], regime: str) -> str:
    """Return what times of a regime are: "mean", "median", or "mean or median" where records of both ages stand."""
    return " or ".join(sorted({record.timings[regime].statistic for record in records if regime in record.timings}))


def _statistics(records: Sequence[Record]) -> Iterator[str]:
    """Yield what the times of each regime are."""
    for regime in (SUSTAINED, BURST):
        if kind := statistic(records, regime):
            yield f"{capitalized(regime)} times are {kind}s."


def versions_of(records: Iterable[Record]) -> dict[str, str]:
    """Return the versions of each package, or of the driver, in the order of the records: "2.9.0 and 2.10.0"."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in record.versions.items():
            versions.setdefault(package, set()).add(version)
    return {package: " and ".join(sorted(several)) for package, several in versions.items()}


def mixed_versions(records: Iterable[Record]) -> str:
    """Return which variants were measured with which driver or torch, where it is not the same; else nothing."""
    everything, parts = list(records), []
    for name in ("driver", "torch"):
        variants: dict[str, list[str]] = {}
        for record in everything:
            if name in record.versions:
                variants.setdefault(record.versions[name], []).append(record.variant)
        if len(variants) > 1:
            parts.append(
                f"{name} " + ", ".join(f"{of} ({first(names, _NAMED)})" for of, names in sorted(variants.items()))
            )
    return f"These were not all measured with the same versions: {'; '.join(parts)}." if parts else ""


def _versions(records: Iterable[Record]) -> list[str]:
    versions = versions_of(records)
    first = [name for name in ("driver", "cuda", "cudnn", "torch") if name in versions]
    return [f"{name} {versions[name]}" for name in [*first, *sorted(set(versions) - set(first))]]


def factor(found: Estimate | None) -> str:
    """Return "1.04× [1.03, 1.06]" of how many times as fast something is, or as long; "-" of nothing."""
    return interval(found.value, (found.low, found.high), unit="×") if found else "-"


def capitalized(text: str) -> str:
    """Return a text that begins with a capital letter; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
