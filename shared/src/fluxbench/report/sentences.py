"""Records -> the sentences of a page: what the numbers are, by regime, and what another regime would say."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

from fluxbench.analysis.ranking import Group, Ranked, base, form, reference_variant, sooner_from_rest
from fluxbench.core.formatting import plus_minus
from fluxbench.records.schema import Record, Status

PRECISE = "95% intervals within ±0.3% of the ratio and ±0.5% of the median"  # what measuring asks for

_WRAP = 110  # characters of a line


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


def leaders(places: Sequence[Ranked], prefer: Collection[str] = ()) -> list[Record]:
    """Return one record per kernel of those that nothing beats, fastest kernel first.

    Each is in its simplest form, of those to `prefer` where it has one of them.
    """
    kernels: dict[str, list[Record]] = {}
    for place in places:
        if place.rank == 1:
            kernels.setdefault(base(place.record.variant), []).append(place.record)
    return [min(forms, key=lambda r: (r.variant not in prefer, len(form(r.variant)))) for forms in kernels.values()]


def burst_order(places: Sequence[Ranked]) -> str:
    """Return which kernels would come before unbeaten ones if burst ranked; empty where its intervals name none.

    A kernel stands for all its forms: an unbeaten one in its simplest unbeaten form, another in its fastest. What has
    no rank stands for itself.
    """
    kernels = {base(record.variant): record for record in leaders(places)}
    unbeaten = len(kernels)
    for place in places:
        kernels.setdefault(base(place.record.variant) if place.rank else place.record.variant, place.record)
    order = list(kernels.values())
    found = []
    for index, record in enumerate(order):
        behind = [other for other in order[: min(index, unbeaten)] if sooner_from_rest(record, other)]
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
        "Times are medians, with 95% intervals in brackets, or half of one after ±: the bootstrap's variance of the "
        "logarithm, its part between processes shared by all lengths of a variant, widened with Student's t. Ratios "
        "are over "
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
