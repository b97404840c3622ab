"""What was not as it should be in a group of records, or could not be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.failures import flag_ranges, flags, not_converged, passed
from fluxbench.analysis.groups import Group, capped_regimes, flags_of, ranking_regime, timing_of
from fluxbench.analysis.launching import held_up_ms
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.records.status import FlagKind
from fluxbench.report.blocks import Block, Bullets, Fold, Paragraph
from fluxbench.report.flags import not_converged_words, range_words, words
from fluxbench.report.legend import MANY
from fluxbench.report.sentences import title, where

_REPLAYED = (
    "timed as CUDA graphs, for which the device does not wait for the host. Where the host launches them these calls "
    "take at least 10% longer; the largest ratio, and where"
)


def flagged(group: Group) -> Iterator[Block]:
    """Yield the flags of a group, one item for all records that share one, or that there are none."""
    records = passed(group)
    items = []
    for entry in flags(group):
        if entry.flag.kind is FlagKind.REPLAYED:  # which says something where launching takes longer
            continue
        text = words(entry.flag, entry.processes)
        items.append((f"{text}, {where(group, entry.workloads)}:", _names(entry.variants, entry.workloads, records)))
    for unconverged in not_converged(group):
        text = not_converged_words(unconverged.regime)
        names = _names(unconverged.variants, unconverged.workloads, records)
        items.append((f"{text}, {where(group, unconverged.workloads)}:", names))
    for span in flag_ranges(group):
        of = f"{range_words(span)}, in {sum(span.counts.values())} of {len(records)} records:"
        counts = (f"{variant} ({count})" if count > 1 else variant for variant, count in span.counts.items())
        items.append((of, ", ".join(counts)))
    if launched := _launched(records):
        items.append((f"{ranking_regime(records)}: {_REPLAYED}:", launched))
    if items:
        flagged = sum(map(_is_flagged, records))
        yield Fold(f"{flagged} of {len(records)} rows are flagged, and why ({title(group)})", [Bullets("", items)])
    elif records:
        yield Paragraph(f"Nothing is flagged ({title(group)}).")


def _is_flagged(record: Record) -> bool:
    """Whether anything is said of a record; that CUDA graphs were timed is, where launching takes longer."""
    others = any(flag.kind is not FlagKind.REPLAYED for flag in flags_of(record))
    return others or bool(capped_regimes(record)) or held_up_ms(record) is not None


def _launched(records: Sequence[Record]) -> str:
    """Return how many times as long a launched call takes, and where, of each variant that this holds up."""
    most: dict[str, tuple[float, Record]] = {}
    for record in records:
        if ms := held_up_ms(record):
            ratio = ms / timing_of(record).median_ms
            if record.variant not in most or ratio > most[record.variant][0]:
                most[record.variant] = ratio, record
    return ", ".join(
        f"{variant} {ratio:.2f} times, at {record.workload.x:,}" for variant, (ratio, record) in most.items()
    )


def _names(variants: Sequence[str], workloads: Sequence[Workload], records: Sequence[Record]) -> str:
    """Return the variants of an entry, or which passed there and are not of it where these are few against those."""
    passed_at: dict[str, set[Workload]] = {}
    for record in records:
        passed_at.setdefault(record.variant, set()).add(record.workload)
    possible = [variant for variant, own in passed_at.items() if own.issuperset(workloads)]
    others = [variant for variant in possible if variant not in variants]
    if len(variants) <= MANY or 3 * len(others) > len(variants):
        return ", ".join(variants)
    but = f" but {', '.join(others)}" if others else ""
    return f"all of the {len(possible)} that passed there{but}"
