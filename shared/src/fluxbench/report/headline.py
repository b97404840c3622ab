"""A page's first sentences: which kernel is fastest at equal correctness, and where that holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fluxbench.analysis.failures import Failure, failures
from fluxbench.analysis.groups import Group, groups, is_launch_bound, ranking_regime, reference_variant, timing_of
from fluxbench.analysis.ranking import Ranked, faster_in_burst, order, ranked
from fluxbench.core.formatting import interval
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.report.sentences import leaders, shape

_NAMED = 4  # variants that a sentence names before it counts the rest


def answer(records: Iterable[Record], device_name: str, notes: Mapping[str, str] | None = None) -> list[str]:
    """Return in a few paragraphs which kernel is fastest at equal correctness, by how much, where, and on what.

    The first is of the exact kernels, or of why none passed. The last is what a reader must know of the kernels that
    are named; `notes` are these by kernel.
    """
    every_group = groups(records)
    if not every_group:
        return [f"Nothing was measured on {device_name}: there are no records."]
    names = _Names()
    first, *others = (paragraph for group in every_group for paragraph in _of_group(group, names))
    paragraphs = [f"On {_device(every_group, device_name)}, {first}."]
    paragraphs += [f"{paragraph[0].upper()}{paragraph[1:]}." for paragraph in others]
    kernels: dict[str, list[str]] = {}
    for kernel, note in (notes or {}).items():
        if kernel in names.kernels:
            kernels.setdefault(note, []).append(kernel)
    last = " ".join(f"Of {' and '.join(of)}: {note}." for note, of in kernels.items())
    return [*paragraphs, last] if last else paragraphs


@dataclass
class _Names:
    """Writes names, and remembers which kernels a reader was shown."""

    kernels: set[str] = field(default_factory=set)

    def one(self, record: Record, behind: str = "") -> str:
        """Return the name of a variant, with something behind it."""
        self.kernels.add(record.kernel)
        return record.variant + behind

    def several(self, records: Sequence[Record], behind: Mapping[str, str] | None = None) -> str:
        """Return "a, b and c"; `behind` is what stands behind a variant's name."""
        return self._list(
            [(record.kernel, record.variant + (behind or {}).get(record.variant, "")) for record in records]
        )

    def of_kernels(self, kernels: Sequence[str]) -> str:
        """Return the names of kernels, without their forms."""
        return self._list([(kernel, kernel) for kernel in kernels])

    def _list(self, names: Sequence[tuple[str, str]]) -> str:
        few = names if len(names) <= _NAMED else names[: _NAMED - 1]
        self.kernels.update(kernel for kernel, _ in few)
        texts = [text for _, text in few]
        if len(few) < len(names):
            texts.append(f"{len(names) - len(few)} more")
        return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def _device(every_group: Sequence[Group], device_name: str) -> str:
    drivers = {record.versions["driver"] for g in every_group for record in g.records if record.versions.get("driver")}
    return f"{device_name} (driver {' and '.join(sorted(drivers))})" if drivers else device_name


def _of_group(group: Group, names: _Names) -> list[str]:
    """Return the paragraphs of a group; the first begins with a small letter, none ends with a full stop."""
    place, reference = f"at {shape(group)}", reference_variant(group.records)
    exact, quantized = (_unbeaten(group, precision_class) for precision_class in ("exact", "quantized"))
    if exact:
        paragraphs = [f"{place}, {_fastest(group, exact, names)}"]
        if quantized:
            paragraphs.append(_fastest_quantized(group, quantized, exact.first, names))
    elif quantized:
        fastest = _fastest(group, quantized, names)
        paragraphs = [f"{place}, no exact kernel passed; of the quantized ones, {fastest}"]
    else:
        return [f"no kernel passed {place}: {_why(group)}"]
    names.kernels.update(record.kernel for record in group.records if record.variant == reference)
    if launch_bound := [record for of in (exact, quantized) if of for record in of.faster_from_rest]:
        names_ = names.several(launch_bound)
        paragraphs.append(f"Faster from rest, but launch-bound here: {names_}")
    return paragraphs


@dataclass(frozen=True)
class _Unbeaten:
    """The kernels that nothing beats at a group's longest workload, each in one form, fastest first."""

    everywhere: list[Record]  # nothing beats these at any workload
    here: list[Record]  # these are beaten at another workload, or have no place there
    beaten: Mapping[str, int]  # workloads at which a variant is beaten
    missing: Mapping[str, int]  # workloads at which it has no place
    places: Sequence[Ranked]  # at the longest workload, of those that are not launch-bound, or of all where all are
    launch_bound: list[Record]  # the others there

    @property
    def first(self) -> Record:
        """The one whose time is given."""
        return [*self.everywhere, *self.here][0]

    @property
    def faster_from_rest(self) -> list[Record]:
        """Those that are launch-bound, but faster from rest than the first."""
        return [record for record in self.launch_bound if faster_in_burst(record, self.first)]

    @property
    def which(self) -> str:
        """Which kernels are meant, where some that may be faster are launch-bound."""
        return " that is not launch-bound" if self.faster_from_rest else ""

    @property
    def named(self) -> list[Record]:
        """Those that are called the fastest: only where there is none that holds everywhere, all."""
        return self.everywhere or self.here


def _unbeaten(group: Group, precision_class: str) -> _Unbeaten | None:
    """Return the kernels of a precision class that nothing of it beats; None where none passed."""
    entries = ranked(group, group.longest, precision_class)
    if not entries:
        return None
    places = [place for place in entries if not is_launch_bound(place.record)] or entries
    anywhere = [place for workload in group.workloads for place in ranked(group, workload, precision_class)]
    placed = Counter(place.record.variant for place in anywhere)
    lost = Counter(place.record.variant for place in anywhere if place.rank != 1)
    beaten = {place.record.variant: lost[place.record.variant] for place in places}
    missing = {variant: len(group.workloads) - placed[variant] for variant in beaten}
    holds = {variant for variant in beaten if not beaten[variant] and not missing[variant]}
    first = leaders(places, prefer=holds)
    everywhere = [record for record in first if record.variant in holds]
    here = [record for record in first if record not in everywhere]
    launch_bound = [place.record for place in entries if place not in places]
    return _Unbeaten(everywhere, here, beaten, missing, places, launch_bound)


def _fastest_quantized(group: Group, unbeaten: _Unbeaten, best: Record, names: _Names) -> str:
    """Return which quantized kernel is the fastest, against the fastest exact one."""
    first, which = unbeaten.first, unbeaten.which
    errors = {record.variant: _error(record) for record in unbeaten.named}
    name = names.one(first, _error(first))
    against = f"no measurable difference to {best.variant}"
    if order(group, group.longest).apart(first, best):
        against = f"{_speedup(group, first, best)} as fast as {best.variant}"
    times = f"{_ms(first)}, {against}{_elsewhere(group, unbeaten, names)}"
    anywhere = f", unbeaten at all {_points(group)}" if _everywhere(group, unbeaten) else ""
    apart = "Apart from these, at looser error budgets,"
    if len(unbeaten.named) > 1:
        return (
            f"{apart} there is no measurable difference between {names.several(unbeaten.named, errors)}, the fastest "
            f"quantized kernels{which}{anywhere}: {first.variant} takes {times}"
        )
    if order(group, group.longest).faster(first, best):
        return f"{apart} the quantized {name} is faster still{anywhere}: {times}"
    if unbeaten.here and unbeaten.everywhere:
        at_any = f"at any {_points(group).removesuffix('s')}"
        return f"{apart} no quantized kernel{which} is measurably faster than {name}, {at_any}: {times}"
    return f"{apart} the fastest quantized kernel{which} is {name}{anywhere}: {times}"


def _error(record: Record) -> str:
    return "" if record.rel_l2 is None else f" (relative L2 error {record.rel_l2:.1%})"


def _fastest(group: Group, unbeaten: _Unbeaten, names: _Names) -> str:
    """Return which kernel is the fastest of its precision class, by how much, and where else."""
    first, which, kind = unbeaten.first, unbeaten.which, unbeaten.first.precision_class
    reference = reference_variant(group.records)
    leading = [place.record for place in unbeaten.places if place.rank == 1]
    under = "under sustained load" if ranking_regime([first]) == SUSTAINED else "from rest"
    load = under + _everywhere(group, unbeaten)
    name = names.one(first, " (the reference)" if first.variant == reference else "")
    if len(unbeaten.named) > 1:
        text = (
            f"there is no measurable difference between {names.several(unbeaten.named)}, the fastest {kind} "
            f"kernels{which} {load}: {name} takes "
        )
    elif unbeaten.here and unbeaten.everywhere:
        text = f"no {kind} kernel{which} is measurably faster {under} than {name}, at any of {_span(group)}: "
    elif len(leading) > 1:
        forms = names.several(leading)
        text = f"{name} is the fastest {kind} kernel{which} {load} (no measurable difference between {forms}): "
    else:
        text = f"{name} is the fastest {kind} kernel{which} {load}: "
    compared = [_ms(first), *_against_others(group, unbeaten, leading, names)]
    last = (" and " if len(compared) > 2 else ", ") + compared[-1]
    return text + ", ".join(compared[:-1]) + last + _elsewhere(group, unbeaten, names)


def _against_others(group: Group, unbeaten: _Unbeaten, leading: Sequence[Record], names: _Names) -> list[str]:
    """Return how the first compares with the reference and with the fastest kernel that is measurably slower."""
    first, reference, found = unbeaten.first, reference_variant(group.records), order(group, group.longest)
    compared = []
    if reference in {record.variant for record in leading} and first.variant != reference:
        compared.append(f"no measurable difference to the reference {reference}")
    elif first.variant != reference:
        low, high = timing_of(first).ratio_ci95
        speedup = interval(1 / timing_of(first).ratio, (1 / high, 1 / low), unit="×")
        compared.append(f"{speedup} as fast as {reference}")
    kernels = {record.kernel for record in leading}
    others = [place.record for place in unbeaten.places if place.record.kernel not in kernels]
    slower = [record for record in others if found.faster(first, record)]
    if not slower:
        return [*compared, f"no other kernel is {'measurably slower' if others else 'ranked'}"]
    runner_up = min(slower, key=lambda record: (found.log(record), record.variant))
    if runner_up.variant == reference:
        return [*compared[:-1], f"{compared[-1]}, the runner-up"]
    level = {record.kernel for record in others if not found.apart(record, runner_up)} - {runner_up.kernel}
    tie = f", level with {names.of_kernels(sorted(level))}" if level else ""
    return [*compared, f"{_speedup(group, first, runner_up)} as fast as the runner-up {names.one(runner_up)}{tie}"]


def _everywhere(group: Group, unbeaten: _Unbeaten) -> str:
    """Return that nothing beats what is named at any workload; empty where that is not so, or there is but one.

    It is left out, too, where something that may be faster has no place.
    """
    several = len(group.workloads) > 1 and unbeaten.everywhere and not unbeaten.faster_from_rest
    return f", unbeaten at all {_span(group)}" if several else ""


def _elsewhere(group: Group, unbeaten: _Unbeaten, names: _Names) -> str:
    """Return where those are beaten that nothing beats at the longest workload alone; empty where there are none."""
    if not unbeaten.here:
        return ""
    lost = {record.variant: _lost(group, unbeaten, record) for record in unbeaten.here}
    if unbeaten.everywhere:
        beaten = names.several(unbeaten.here, {variant: f" ({at})" for variant, at in lost.items()})
        of_them = f"at this {_points(group).removesuffix('s')}, but not at all of them"
        return f". Level with {unbeaten.first.variant} {of_them}: {beaten}"
    return f". Of {_span(group)}, {names.several(unbeaten.here, {v: f' is {at}' for v, at in lost.items()})}"


def _points(group: Group) -> str:
    return "lengths" if group.axis.endswith("tokens") else "workloads"


def _span(group: Group) -> str:
    """Return "6 lengths (128 to 512 text tokens)"."""
    first, last = group.workloads[0].x, group.longest.x
    return f"{len(group.workloads)} {_points(group)} ({first:,} to {last:,} {group.axis})"


def _lost(group: Group, unbeaten: _Unbeaten, record: Record) -> str:
    """Return at how many workloads a variant is beaten, and at how many it has no place."""
    beaten, missing = unbeaten.beaten[record.variant], unbeaten.missing[record.variant]
    parts = [f"beaten at {beaten}"] if beaten else []
    parts += [f"unranked at {missing}"] if missing else []
    points = _points(group)
    return f"{' and '.join(parts)} {points if (missing or beaten) > 1 else points.removesuffix('s')}"


def _ms(record: Record) -> str:
    """Return the time that ranks, and behind a sustained one the burst time where there is one."""
    timing, burst = timing_of(record), record.burst
    rested = (
        f" ({interval(burst.median_ms, burst.ci95_ms, unit=' ms')} from rest)" if burst not in (None, timing) else ""
    )
    return interval(timing.median_ms, timing.ci95_ms, unit=" ms") + rested


def _speedup(group: Group, faster: Record, slower: Record) -> str:
    """Return how many times as fast one record is, with the interval of the difference."""
    found = order(group, group.longest).speedup(faster, slower)
    return interval(found.value, (found.low, found.high), unit="×")


def _why(group: Group) -> str:
    here = [failure for failure in failures(group) if group.longest in failure.workloads] or failures(group)
    return "; ".join(_failure(group, failure) for failure in here)


def _failure(group: Group, failure: Failure) -> str:
    everything = len(failure.variants) == len(group.variants)
    who = "every variant" if everything and len(failure.variants) > 1 else ", ".join(failure.variants)
    return f"{who} {failure.status.value} ({failure.reason.rstrip('.')})"
