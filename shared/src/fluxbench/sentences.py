"""Records -> the sentences of a page: which kernel is fastest, and what the numbers are, by regime."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from fluxbench.formatting import interval, plus_minus
from fluxbench.ranking import (
    FORMS,
    Failure,
    Group,
    Ranked,
    base,
    correctness_of,
    failures,
    form,
    groups,
    overlap,
    ranked,
    reference_variant,
    sooner_from_rest,
    timing_of,
)
from fluxbench.records import Record, Status

PRECISE = "95% intervals within ±0.3% of the ratio and ±0.5% of the median"  # what measuring asks for

_NAMED = 4  # variants that a sentence names before it counts the rest
_WRAP = 110  # characters of a line


def answer(records: Iterable[Record], device_name: str, notes: Mapping[str, str] | None = None) -> str:
    """Return one sentence: which kernel is fastest at equal correctness, by how much, where, and on what.

    Behind it stands what a reader must know of the kernels that it names; `notes` says that by kernel, a variant's name
    without its form.
    """
    found = groups(records)
    if not found:
        return f"Nothing was measured on {device_name}: there are no records."
    clauses = "; ".join(_clause(group) for group in found)
    sentence = f"On {_device(found, device_name)}, {clauses}."
    return " ".join([sentence, *(f"Of {name}: {note}." for name, note in (notes or {}).items() if _in(sentence, name))])


def _in(sentence: str, kernel: str) -> bool:
    """Whether a sentence names a kernel, in any of its forms."""
    return re.search(rf"\b{re.escape(kernel)}({'|'.join(FORMS)})?\b", sentence) is not None


def _device(found: Sequence[Group], device_name: str) -> str:
    drivers = sorted(
        {record.versions["driver"] for g in found for record in g.records if record.versions.get("driver")}
    )
    return f"{device_name} (driver {' and '.join(drivers)})" if drivers else device_name


def _clause(group: Group) -> str:
    where = f"at {shape(group)}"
    exact = ranked(group, group.longest, "exact")
    quantized = ranked(group, group.longest, "quantized")
    if not exact and not quantized:
        return f"no kernel passed {where}: {_why(group)}"
    if not exact:
        return f"{where}, no exact kernel passed; of the quantized ones, {_fastest(group, quantized)}"
    text = f"{where}, {_fastest(group, exact)}"
    return f"{text}; {_of_quantized(quantized, _leaders(exact)[0])}" if quantized else text


def _of_quantized(quantized: Sequence[Ranked], best: Record) -> str:
    """Return which quantized kernel is the fastest, against the fastest exact one."""
    first = _leaders(quantized)[0]
    apart = "apart from these, at a looser error budget, the"
    if timing_of(first).ratio_ci95[1] < timing_of(best).ratio_ci95[0]:
        return f"{apart} quantized {first.variant} is faster still: {_ms(first)}, {_against(first, best)}"
    return f"{apart} fastest quantized kernel is {first.variant}: {_ms(first)}, {_against(first, best)}"


def _against(record: Record, best: Record) -> str:
    if overlap(record, best):
        return f"no measurable difference to {best.variant}"
    return f"{_speedup(record, best)} as fast as {best.variant}"


def _leaders(places: Sequence[Ranked]) -> list[Record]:
    """Return one record per kernel of those that nothing beats, each in its simplest form, fastest kernel first."""
    kernels: dict[str, list[Record]] = {}
    for place in places:
        if place.rank == 1:
            kernels.setdefault(base(place.record.variant), []).append(place.record)
    return [min(forms, key=lambda record: len(form(record.variant))) for forms in kernels.values()]


def _fastest(group: Group, places: Sequence[Ranked]) -> str:
    leaders = _leaders(places)
    first = leaders[0]
    reference = reference_variant(group.records)
    unbeaten = [place.record.variant for place in places if place.rank == 1]
    kind = correctness_of(first).precision_class
    load = f"under {timing_of(first).regime} load"
    name = f"{first.variant} (the reference)" if first.variant == reference else first.variant
    if len(leaders) > 1:
        names = _names([leader.variant for leader in leaders])
        text = f"there is no measurable difference between {names}, the fastest {kind} kernels {load}: {name} takes "
    elif len(unbeaten) > 1:
        forms = _names(unbeaten)
        text = f"{name} is the fastest {kind} kernel {load} (no measurable difference between {forms}): "
    else:
        text = f"{name} is the fastest {kind} kernel {load}: "
    compared = [_ms(first)]
    if reference in unbeaten and first.variant != reference:
        compared.append(f"no measurable difference to the reference {reference}")
    elif first.variant != reference:
        low, high = timing_of(first).ratio_ci95
        compared.append(f"{_times(1 / timing_of(first).ratio, (1 / high, 1 / low))} as fast as {reference}")
    kernels = {base(leader.variant) for leader in leaders}
    runner_up = next((p.record for p in places if p.rank > 1 and base(p.record.variant) not in kernels), None)
    if runner_up is None:
        compared.append("no other kernel is ranked")
    elif runner_up.variant == reference:
        compared[-1] += ", the runner-up"
    else:
        rivals = {base(p.record.variant) for p in places if overlap(p.record, runner_up)} - {base(runner_up.variant)}
        tie = f", level with {_names(sorted(rivals - kernels))}" if rivals - kernels else ""
        compared.append(f"{_speedup(first, runner_up)} as fast as the runner-up {runner_up.variant}{tie}")
    return (
        text
        + ", ".join(compared[:-1])
        + (" and " if len(compared) > 2 else ", ")
        + compared[-1]
        + _elsewhere(group, first)
    )


def _elsewhere(group: Group, first: Record) -> str:
    """Return at how many of the group's workloads nothing beats the same kernel; empty where there is but one."""
    if len(group.workloads) == 1:
        return ""
    wins = 0
    for workload in group.workloads:
        places = ranked(group, workload, correctness_of(first).precision_class)
        wins += any(place.rank == 1 and base(place.record.variant) == base(first.variant) for place in places)
    total = len(group.workloads)
    lengths = f"{group.length(group.workloads[0]):,} to {group.length(group.longest):,} {group.axis}"
    return (
        f" ({base(first.variant)} is unbeaten at {'all' if wins == total else f'{wins} of'} {total} lengths, {lengths})"
    )


def shape(group: Group) -> str:
    """Return the longest workload's shape in words."""
    workload = group.longest
    text = f" ({workload.text_tokens} of them text)" if group.by_text else ""
    parts = [f"{workload.seq_len:,} tokens{text}", f"{workload.heads} heads of {workload.head_dim}", workload.dtype]
    if workload.batch > 1:
        parts.insert(0, f"batch {workload.batch}")
    if workload.causal:
        parts.append("causal")
    return f"{group.name} with {', '.join(parts)}"


def _ms(record: Record) -> str:
    """Return the sustained time, and the burst one behind it where there is one."""
    timing, burst = timing_of(record), record.burst
    rested = f" ({interval(burst.median_ms, burst.ci95_ms, unit=' ms')} from rest)" if burst else ""
    return interval(timing.median_ms, timing.ci95_ms, unit=" ms") + rested


def _times(value: float, ends: tuple[float, float]) -> str:
    return interval(value, ends, unit="×")


def _speedup(faster: Record, slower: Record) -> str:
    """Return how many times as fast one record is: the quotient of the ratios, from end to end of their intervals."""
    fast, slow = timing_of(faster), timing_of(slower)
    ends = (slow.ratio_ci95[0] / fast.ratio_ci95[1], slow.ratio_ci95[1] / fast.ratio_ci95[0])
    return _times(slow.ratio / fast.ratio, ends)


def _names(variants: Sequence[str]) -> str:
    names = list(variants)
    if len(names) == 1:
        return names[0]
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _why(group: Group) -> str:
    here = [failure for failure in failures(group) if group.longest in failure.workloads] or failures(group)
    return "; ".join(_failure(group, failure) for failure in here)


def _failure(group: Group, failure: Failure) -> str:
    everything = len(failure.variants) == len(group.variants)
    who = "every variant" if everything and len(failure.variants) > 1 else ", ".join(failure.variants)
    return f"{who} {failure.status.value} ({failure.reason.rstrip('.')})"


def burst_order(places: Sequence[Ranked]) -> str:
    """Return which kernels would come before unbeaten ones if burst ranked; empty where its intervals name none.

    A kernel stands for all its forms: an unbeaten one in its simplest unbeaten form, another in its fastest.
    """
    kernels = {base(record.variant): record for record in _leaders(places)}
    unbeaten = set(kernels)
    for place in places:
        kernels.setdefault(base(place.record.variant), place.record)
    order = list(kernels.values())
    found = []
    for index, record in enumerate(order):
        behind = [
            other for other in order[:index] if base(other.variant) in unbeaten and sooner_from_rest(record, other)
        ]
        if behind:
            found.append(f"{_rested(record)} would come before {' and '.join(map(_rested, behind))}")
    return textwrap.fill(f"From rest (burst), {'; '.join(found)}.", _WRAP) if found else ""


def _rested(record: Record) -> str:
    assert record.burst is not None
    return f"{record.variant} ({plus_minus(record.burst.median_ms, record.burst.ci95_ms)} ms)"


def conditions(records: Iterable[Record], regime: str = "sustained") -> str:
    """Return what a regime's numbers of PASSED records rest on: samples, processes, clock and power."""
    pairs = [(r.burst, r.burst_telemetry) if regime == "burst" else (r.timing, r.telemetry) for r in records]
    timings = [timing for timing, _ in pairs if timing]
    if not timings:
        return ""
    samples = _span({len(timing.samples_ms) for timing in timings})
    said = [f"{samples} samples from {_span({timing.processes for timing in timings})} fresh processes"]
    states = [telemetry for timing, telemetry in pairs if timing and telemetry]
    clocks = {round(state.sm_clock_mhz) for state in states if state.sm_clock_mhz is not None}
    watts = {round(state.power_w) for state in states if state.power_w is not None}
    said.append(f"SM clock {_span(clocks)} MHz" if clocks else "SM clock not known")
    if watts:
        said.append(f"power {_span(watts)} W")
    return ", ".join(said)


def method_note(records: Iterable[Record], width: int = _WRAP) -> str:
    """Return what the numbers are: regimes, how they were taken, when, and with which versions; wrapped lines."""
    taken = list(records)
    passed = [record for record in taken if record.status is Status.PASSED]
    if not passed:
        return f"Nothing passed: there are no times among {len(taken)} records."
    both, old = [r for r in passed if r.burst], [r for r in passed if not r.burst]
    days = sorted({record.measured_at[:10] for record in passed})
    versions: dict[str, set[str]] = {}
    for record in passed:
        for package, version in record.versions.items():
            versions.setdefault(package, set()).add(version)
    first = [name for name in ("driver", "cuda", "cudnn", "torch") if name in versions]
    named = [*first, *sorted(set(versions) - set(first))]
    paragraphs = []
    if both:
        paragraphs += [
            "Sustained, which ranks: calls of one kernel back to back, until clock and power have settled in the state "
            "that this very kernel brings the device to; a sample is the mean over 0.1 s of calls. "
            f"{_first_upper(conditions(both))}.",
            "Burst: single calls of a device that rested before, the cache cleared before each; a sample is one call. "
            f"{_first_upper(conditions(both, 'burst'))}.",
        ]
    if old:
        of_these = f" ({len(old):,} of {len(passed):,} records)" if both else ""
        paragraphs.append(
            f"Measured by an older fluxbench{of_these}: what is called sustained are single calls under load, in turn "
            f"with the other variants, the cache cleared before each; no burst. {_first_upper(conditions(old))}."
        )
    paragraphs += [
        "Times are medians, with 95% bootstrap intervals (of processes, and of samples within them) in brackets, or "
        "half of one after ±. Ratios are over "
        f"{reference_variant(passed)}'s time, so under 1 is faster; an interval between two other variants runs from "
        "end to end of both of theirs, so it is wider than 95%.",
        f"Measured {days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'} (UTC)"
        + (f"; versions: {', '.join(f'{name} {_versions(versions[name])}' for name in named)}" if named else "")
        + ".",
    ]
    return "\n".join(textwrap.fill(paragraph, width, break_on_hyphens=False) for paragraph in paragraphs)


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _versions(found: set[str]) -> str:
    return " and ".join(sorted(found))
