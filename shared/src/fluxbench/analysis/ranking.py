"""Which records are compared with which, and in what order. Tables and figures both ask here, so they cannot disagree.

Workloads that differ in length only form a `Group`: one curve per variant. Variants are ranked at the longest
workload of a group, where each number is one that was measured and has its own interval; a mean over the lengths
would have neither. The sustained regime ranks, the burst one does not. Exact and quantized kernels are ranked apart,
since they are not equally correct.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import CLOCKS_AGREE, Correctness, Record, Status, Timing

# What measuring says of a time that is not one of attention (`floor`, `regimes`).
NOT_BELIEVED = ("faster than the device can be", "skips work on inputs that it has seen")
LAUNCH_BOUND = "the host was hardly ahead of the device"  # what measuring marks a sustained time with (`recording`)
FORMS = ("_copy", "_compile_d", "_compile_ma")  # how a kernel is called; a name without one of these is eager


def form(variant: str) -> str:
    """Return the suffix that says how a kernel is called: `_compile_d` of `flex_compile_d`, empty for eager."""
    return next((suffix for suffix in FORMS if variant.endswith(suffix)), "")


def base(variant: str) -> str:
    """Return the kernel that a variant calls: `flex` of `flex_compile_d`."""
    return variant.removesuffix(form(variant))


@dataclass(frozen=True)
class Group:
    """Records whose workloads differ in their length only."""

    name: str
    workloads: tuple[Workload, ...]  # shortest first
    records: tuple[Record, ...]  # of every status, one per variant and workload

    @property
    def by_text(self) -> bool:
        """Whether only the text varies, so that text tokens tell the workloads apart."""
        return len({workload.seq_len - workload.text_tokens for workload in self.workloads}) == 1 and bool(
            self.longest.text_tokens
        )

    @property
    def axis(self) -> str:
        """What a workload's length is counted in."""
        return "text tokens" if self.by_text else "tokens"

    @property
    def longest(self) -> Workload:
        """The workload at which variants are ranked."""
        return self.workloads[-1]

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant with a record, in the order of the records."""
        return tuple(dict.fromkeys(record.variant for record in self.records))

    def length(self, workload: Workload) -> int:
        """Return a workload's length in the unit of `axis`."""
        return workload.text_tokens if self.by_text else workload.seq_len

    @cached_property
    def at(self) -> Mapping[Workload, Mapping[str, Record]]:
        """The records at each workload, by variant."""
        found: dict[Workload, dict[str, Record]] = {workload: {} for workload in self.workloads}
        for record in self.records:
            found[record.workload].setdefault(record.variant, record)
        return found

    @cached_property
    def wrong(self) -> frozenset[str]:
        """The variants that are not to be trusted, since one of their records is not."""
        return frozenset(record.variant for record in self.records if distrusted(record))

    def find(self, variant: str, workload: Workload) -> Record | None:
        """Return the record of one variant at one workload, if there is one."""
        return self.at.get(workload, {}).get(variant)

    def curve(self, variant: str) -> list[Record]:
        """Return a variant's PASSED records, shortest workload first."""
        found = (self.find(variant, workload) for workload in self.workloads)
        return [record for record in found if record and record.status is Status.PASSED]


def groups(records: Iterable[Record]) -> list[Group]:
    """Return the groups, in the order of the records; of two records of the same thing the newer one counts."""
    newest: dict[tuple[str, Workload], Record] = {}
    for record in records:
        key = (record.variant, record.workload)
        if key not in newest or newest[key].measured_at <= record.measured_at:
            newest[key] = record
    images = {workload: _image(workload) for _, workload in newest}
    sizes = Counter(images.values())
    members: dict[tuple[object, ...], list[Record]] = {}
    for record in newest.values():
        image = images[record.workload]
        # Several texts beside one image are a curve over text; else it is a curve over images.
        members.setdefault(image if sizes[image] > 1 else image[:-1], []).append(record)
    return [_group(found) for found in members.values()]


def _image(workload: Workload) -> tuple[object, ...]:
    """Return what workloads with the same image have in common: model, shape without lengths, image tokens."""
    alike = dataclasses.replace(workload, name="", seq_len=1, text_tokens=0)
    return _model(workload), alike, workload.seq_len - workload.text_tokens


def _model(workload: Workload) -> str:
    """Return a workload's name without its sizes: `flux1-1024px-t512` is of `flux1`."""
    return re.sub(r"(-\d+px?)?(-t\d+)?$", "", workload.name)


def _group(records: Sequence[Record]) -> Group:
    workloads = sorted({record.workload for record in records}, key=lambda w: (w.seq_len, w.name))
    names = {re.sub(r"-t\d+$", "", workload.name) for workload in workloads}
    name = names.pop() if len(names) == 1 else _model(workloads[0])
    if workloads[0].direction != "forward":
        name += f" {workloads[0].direction}"
    return Group(name, tuple(workloads), tuple(records))


def timing_of(record: Record) -> Timing:
    """Return the sustained timing, which every PASSED record has."""
    assert record.timing is not None
    return record.timing


def correctness_of(record: Record) -> Correctness:
    """Return the correctness that every PASSED record has."""
    assert record.correctness is not None
    return record.correctness


def tflops(record: Record) -> float:
    """Return a PASSED record's throughput in TFLOP/s, of its workload's operations and its sustained time."""
    return record.workload.flops / timing_of(record).median_ms / 1e9


def reference_variant(records: Iterable[Record]) -> str | None:
    """Return the variant that the ratios are against; None where nothing passed."""
    return next((record.timing.reference_variant for record in records if record.timing), None)


def overlap(one: Record, other: Record) -> bool:
    """Whether the 95% intervals of two PASSED records' sustained ratios to the reference have a point in common."""
    (low, high), (other_low, other_high) = timing_of(one).ratio_ci95, timing_of(other).ratio_ci95
    return low <= other_high and other_low <= high


def sooner_from_rest(one: Record, other: Record) -> bool:
    """Whether the burst interval of one record's ratio lies wholly under the other's; never where one has none."""
    if one.burst is None or other.burst is None or one.burst.reference_variant != other.burst.reference_variant:
        return False
    return one.burst.ratio_ci95[1] < other.burst.ratio_ci95[0]


def capped(record: Record) -> tuple[str, ...]:
    """Return the regimes in which the caps of time and processes came before the precision that is asked for."""
    return tuple(timing.regime for timing in (record.timing, record.burst) if timing and timing.precise is False)


def launch_bound(record: Record) -> bool:
    """Whether the host was hardly ahead of the device in some process, so that its sustained time is of launching."""
    return any(LAUNCH_BOUND in mark for mark in record.marks)


def kept_busy(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records whose sustained time is the device's; all of them where each one's is of launching."""
    return [record for record in records if not launch_bound(record)] or records


def clocks_differ(record: Record) -> bool:
    """Whether a record has a second clock and it does not agree with the first."""
    return record.second_clock is not None and abs(record.second_clock.difference) > CLOCKS_AGREE


@dataclass(frozen=True)
class Ranked:
    """A PASSED record's place. Its rank is one more than the number of variants that are measurably faster.

    So two variants whose intervals overlap share a rank, unless a third beats one of them only, and a wide interval can
    rank before a faster median.
    """

    rank: int | None  # None: launching is what was timed, which is slower than the kernel by nobody knows how much
    tied: bool  # its interval overlaps another variant's
    record: Record


def distrusted(record: Record) -> bool:
    """Whether a variant gave a wrong answer, or a time that cannot be believed: no record of it is ranked then."""
    if record.status is Status.ERROR:
        return any(phrase in (record.reason or "") for phrase in NOT_BELIEVED)
    return record.status is Status.INCORRECT


def ranked(group: Group, workload: Workload, precision_class: str) -> list[Ranked]:
    """Return the variants that passed at a workload, fastest first.

    A variant that is not to be trusted at any workload of the group has no place. One whose sustained time is of
    launching has one without a rank, unless that is so of all.
    """
    entries = [
        record
        for record in group.at.get(workload, {}).values()
        if record.status is Status.PASSED
        and record.variant not in group.wrong
        and correctness_of(record).precision_class == precision_class
    ]
    known = kept_busy(entries)
    late = [record for record in entries if launch_bound(record)] if len(known) < len(entries) else []
    lows = sorted(timing_of(record).ratio_ci95[0] for record in known)
    highs = sorted(timing_of(record).ratio_ci95[1] for record in known)
    places = []
    for record in known:
        low, high = timing_of(record).ratio_ci95
        faster, slower = bisect.bisect_left(highs, low), len(lows) - bisect.bisect_right(lows, high)
        places.append((1 + faster, Ranked(1 + faster, faster + slower < len(known) - 1, record)))
    for record in late:  # before those that it may be faster than
        later = [rank for rank, place in places if timing_of(place.record).ratio > timing_of(record).ratio]
        places.append((min(later, default=len(entries)), Ranked(None, False, record)))
    places.sort(key=lambda each: (each[0], timing_of(each[1].record).ratio, each[1].record.variant))
    return [place for _, place in places]


def ties(places: Sequence[Ranked]) -> list[list[str]]:
    """Return the largest sets of variants whose intervals all overlap one another, sets of one left out."""
    by_low = sorted((p for p in places if p.rank), key=lambda place: timing_of(place.record).ratio_ci95[0])
    sets: list[list[str]] = []
    for index, last in enumerate(by_low):
        together = [place for place in by_low[: index + 1] if overlap(place.record, last.record)]
        first_end = min(timing_of(place.record).ratio_ci95[1] for place in together)
        following = by_low[index + 1 : index + 2]
        # Where the next interval begins before any of these has ended, the next set holds this one.
        grows = any(timing_of(place.record).ratio_ci95[0] <= first_end for place in following)
        if len(together) > 1 and not grows:
            sets.append([place.record.variant for place in places if place in together])
    return sets
