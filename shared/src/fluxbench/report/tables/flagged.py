"""What was not as it should be in a group of records, or could not be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.failures import flag_ranges, flags, not_converged, passed
from fluxbench.analysis.groups import Group, capped_regimes, launched_ms, ranking_regime
from fluxbench.core.formatting import number
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.records.status import FlagKind
from fluxbench.report.blocks import Block, Bullets, Fold, Paragraph
from fluxbench.report.flags import not_converged_words, range_words, words
from fluxbench.report.legend import MANY
from fluxbench.report.sentences import title, where

_REPLAYED = (
    "timed as CUDA graphs, for which the device does not wait for the host; a call that the host launches takes, at "
    "the longest workload"
)
_SHORT = (
    ", in a short block on a device that may not have settled at its limit, so that it can take less than the graph"
)


def flagged(group: Group) -> Iterator[Block]:
    """Yield the flags of a group, one item for all records that share one, or that there are none."""
    records = passed(group)
    items = []
    for entry in flags(group):
        if entry.flag.kind is FlagKind.REPLAYED:  # each has a time of its own
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
        regime = ranking_regime(records)
        items.append((f"{regime}: {_REPLAYED}{_SHORT * (regime == SUSTAINED)}:", launched))
    if items:
        flagged = sum(bool(record.flags or capped_regimes(record)) for record in records)
        yield Fold(f"{flagged} of {len(records)} rows are flagged, and why ({title(group)})", [Bullets("", items)])
    elif records:
        yield Paragraph(f"Nothing is flagged ({title(group)}).")


def _launched(records: Sequence[Record]) -> str:
    """Return the time of a launched call of each variant at its longest workload, where graphs were timed."""
    longest = {
        record.variant: ms
        for record in sorted(records, key=lambda record: record.workload.x)
        if (ms := launched_ms(record)) is not None
    }
    return ", ".join(f"{variant} {number(ms)} ms" for variant, ms in longest.items())


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
