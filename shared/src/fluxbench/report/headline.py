"""Records -> a page's first sentences: which kernel is fastest at equal correctness, and where that holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.analysis.ranking import (
    FORMS,
    Group,
    Ranked,
    base,
    correctness_of,
    groups,
    overlap,
    ranked,
    reference_variant,
    sooner_from_rest,
    timing_of,
)
from fluxbench.analysis.remarks import Failure, failures
from fluxbench.core.formatting import interval
from fluxbench.records.schema import Record
from fluxbench.report.sentences import leaders, shape

_NAMED = 4  # variants that a sentence names before it counts the rest


def answer(records: Iterable[Record], device_name: str, notes: Mapping[str, str] | None = None) -> list[str]:
    """Return in a few paragraphs which kernel is fastest at equal correctness, by how much, where, and on what.

    The first is of the exact kernels, or of why none passed. The last is what a reader must know of the kernels that
    are named; `notes` says that by kernel, a variant's name without its form.
    """
    found = groups(records)
    if not found:
        return [f"Nothing was measured on {device_name}: there are no records."]
    first, *others = (paragraph for group in found for paragraph in _said(group))
    said = [f"On {_device(found, device_name)}, {first}.", *(f"{each[0].upper()}{each[1:]}." for each in others)]
    told: dict[str, list[str]] = {}
    for name, note in (notes or {}).items():
        if any(_in(paragraph, name) for paragraph in said):
            told.setdefault(note, []).append(name)
    last = " ".join(f"Of {' and '.join(names)}: {note}." for note, names in told.items())
    return [*said, last] if last else said


def _in(paragraph: str, kernel: str) -> bool:
    """Whether a paragraph names a kernel, in any of its forms."""
    return re.search(rf"\b{re.escape(kernel)}({'|'.join(FORMS)})?\b", paragraph) is not None


def _device(found: Sequence[Group], device_name: str) -> str:
    drivers = sorted(
        {record.versions["driver"] for g in found for record in g.records if record.versions.get("driver")}
    )
    return f"{device_name} (driver {' and '.join(drivers)})" if drivers else device_name


def _said(group: Group) -> list[str]:
    """Return the paragraphs of a group; the first has a small letter at its begin, none a full stop at its end."""
    where = f"at {shape(group)}"
    exact, quantized = (_unbeaten(group, kind) for kind in ("exact", "quantized"))
    if exact:
        said = [f"{where}, {_fastest(group, exact)}"]
        if quantized:
            said.append(_of_quantized(group, quantized, exact.first))
    elif quantized:
        said = [f"{where}, no exact kernel passed; of the quantized ones, {_fastest(group, quantized)}"]
    else:
        return [f"no kernel passed {where}: {_why(group)}"]
    if late := [variant for found in (exact, quantized) if found for variant in found.late]:
        said.append(f"Faster from rest, but launching was too slow here to place under sustained load: {_names(late)}")
    return said


@dataclass(frozen=True)
class _Unbeaten:
    """The kernels that nothing beats at a group's longest workload, each in one form, fastest first."""

    everywhere: list[Record]  # nothing beats these at any workload
    here: list[Record]  # these are beaten at another workload, or have no place there
    beaten: Mapping[str, int]  # workloads at which a variant is beaten
    missing: Mapping[str, int]  # workloads at which it has no place
    places: Sequence[Ranked]  # of all that have a rank at the longest workload
    unplaced: list[Record]  # those that passed and have none

    @property
    def first(self) -> Record:
        """The one whose time is told."""
        return [*self.everywhere, *self.here][0]

    @property
    def late(self) -> list[str]:
        """Those without a rank that are faster from rest than the first."""
        return [record.variant for record in self.unplaced if sooner_from_rest(record, self.first)]

    @property
    def which(self) -> str:
        """Which kernels are spoken of, where some that may be faster have no place."""
        return " that could be placed" if self.late else ""

    @property
    def named(self) -> list[Record]:
        """Those that are called the fastest: only where there is none that holds everywhere, all."""
        return self.everywhere or self.here


def _unbeaten(group: Group, kind: str) -> _Unbeaten | None:
    """Return the kernels of a precision class that nothing of it beats; None where none passed."""
    entries = ranked(group, group.longest, kind)
    places = [place for place in entries if place.rank]
    if not places:
        return None
    anywhere = [place for workload in group.workloads for place in ranked(group, workload, kind) if place.rank]
    placed = Counter(place.record.variant for place in anywhere)
    lost = Counter(place.record.variant for place in anywhere if place.rank != 1)
    beaten = {place.record.variant: lost[place.record.variant] for place in places}
    missing = {variant: len(group.workloads) - placed[variant] for variant in beaten}
    holds = {variant for variant in beaten if not beaten[variant] and not missing[variant]}
    found = leaders(places, prefer=holds)
    everywhere = [record for record in found if record.variant in holds]
    here = [record for record in found if record not in everywhere]
    unplaced = [place.record for place in entries if not place.rank]
    return _Unbeaten(everywhere, here, beaten, missing, places, unplaced)


def _of_quantized(group: Group, found: _Unbeaten, best: Record) -> str:
    """Return which quantized kernel is the fastest, against the fastest exact one."""
    first, which = found.first, found.which
    told = f"{_ms(first)}, {_against(first, best)}{_elsewhere(group, found)}"
    anywhere = ", unbeaten at all lengths" if _everywhere(group, found) else ""
    apart = "Apart from these, at looser error budgets,"
    if len(found.named) > 1:
        names = _names([_with_error(record) for record in found.named])
        return (
            f"{apart} there is no measurable difference between {names}, the fastest quantized kernels{which}"
            f"{anywhere}: {first.variant} takes {told}"
        )
    if timing_of(first).ratio_ci95[1] < timing_of(best).ratio_ci95[0]:
        return f"{apart} the quantized {_with_error(first)} is faster still{anywhere}: {told}"
    if found.here and found.everywhere:
        return (
            f"{apart} no quantized kernel{which} is measurably faster than {_with_error(first)}, at any length: {told}"
        )
    return f"{apart} the fastest quantized kernel{which} is {_with_error(first)}{anywhere}: {told}"


def _with_error(record: Record) -> str:
    error = correctness_of(record).rel_l2
    return record.variant if error is None else f"{record.variant} (relative L2 error {error:.1%})"


def _against(record: Record, best: Record) -> str:
    if overlap(record, best):
        return f"no measurable difference to {best.variant}"
    return f"{_speedup(record, best)} as fast as {best.variant}"


def _fastest(group: Group, found: _Unbeaten) -> str:
    first, which, places = found.first, found.which, found.places
    reference = reference_variant(group.records)
    unbeaten = [place.record.variant for place in places if place.rank == 1]
    kind = correctness_of(first).precision_class
    under = f"under {timing_of(first).regime} load"
    load = under + _everywhere(group, found)
    name = f"{first.variant} (the reference)" if first.variant == reference else first.variant
    if len(found.named) > 1:
        names = _names([record.variant for record in found.named])
        those = f"the fastest {kind} kernels{which} {load}"
        text = f"there is no measurable difference between {names}, {those}: {name} takes "
    elif found.here and found.everywhere:
        text = f"no {kind} kernel{which} is measurably faster {under} than {name}, at any of {_lengths(group)}: "
    elif len(unbeaten) > 1:
        forms = _names(unbeaten)
        text = f"{name} is the fastest {kind} kernel{which} {load} (no measurable difference between {forms}): "
    else:
        text = f"{name} is the fastest {kind} kernel{which} {load}: "
    compared = [_ms(first)]
    if reference in unbeaten and first.variant != reference:
        compared.append(f"no measurable difference to the reference {reference}")
    elif first.variant != reference:
        low, high = timing_of(first).ratio_ci95
        compared.append(f"{_times(1 / timing_of(first).ratio, (1 / high, 1 / low))} as fast as {reference}")
    kernels = {base(variant) for variant in unbeaten}
    others = [place.record for place in places if base(place.record.variant) not in kernels]
    slower = [record for record in others if not overlap(record, first)]
    if not slower:
        compared.append(f"no other kernel is {'measurably slower' if others else 'ranked'}")
    else:
        runner_up = min(slower, key=lambda record: (timing_of(record).ratio, record.variant))
        if runner_up.variant == reference:
            compared[-1] += ", the runner-up"
        else:
            level = {base(record.variant) for record in others if overlap(record, runner_up)}
            rivals = sorted(level - {base(runner_up.variant)})
            tie = f", level with {_names(rivals)}" if rivals else ""
            compared.append(f"{_speedup(first, runner_up)} as fast as the runner-up {runner_up.variant}{tie}")
    return (
        text
        + ", ".join(compared[:-1])
        + (" and " if len(compared) > 2 else ", ")
        + compared[-1]
        + _elsewhere(group, found)
    )


def _everywhere(group: Group, found: _Unbeaten) -> str:
    """Return that nothing beats what is named at any workload; empty where that is not so, or there is but one.

    Nor is it said where something that may be faster has no place.
    """
    several = len(group.workloads) > 1 and found.everywhere and not found.late
    return f", unbeaten at all {_lengths(group)}" if several else ""


def _elsewhere(group: Group, found: _Unbeaten) -> str:
    """Return where those are beaten that nothing beats at the longest workload alone; empty where there are none."""
    if not found.here:
        return ""
    lost = {record.variant: _lost(found, record) for record in found.here}
    if found.everywhere:
        names = _names([f"{variant} ({where})" for variant, where in lost.items()])
        return f". Level with {found.first.variant} at this length, but not at all of them: {names}"
    return f". Of {_lengths(group)}, {_names([f'{variant} is {where}' for variant, where in lost.items()])}"


def _lengths(group: Group) -> str:
    ends = (group.length(workload) for workload in (group.workloads[0], group.longest))
    return f"{len(group.workloads)} lengths ({' to '.join(f'{end:,}' for end in ends)} {group.axis})"


def _lost(found: _Unbeaten, record: Record) -> str:
    """Return at how many workloads a variant is beaten, and at how many it has no place."""
    beaten, missing = found.beaten[record.variant], found.missing[record.variant]
    said = [f"beaten at {beaten}"] if beaten else []
    said += [f"without a place at {missing}"] if missing else []
    return f"{' and '.join(said)} length{'s' if (missing or beaten) > 1 else ''}"


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
    if len(names) < 2:
        return "".join(names)
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
