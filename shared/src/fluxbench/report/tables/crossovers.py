"""From which length on one kernel beats another, and where the order of two never changes."""

from __future__ import annotations

from fluxbench import variants
from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.lengths import Crossover, crossovers
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Bullets, Column, Fold, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import title
from fluxbench.report.tables import Rows

_SHOWN = 4  # in sentences; a fold has all
_NOTE = (
    "Between the two lengths neither is measurably faster. The crossover is where a line through the ratios at both, "
    "straight over the logarithm of the length, reaches 1. A kernel counts as faster at a length if it is measurably "
    "so and the 95% intervals of both ratios to the reference do not overlap, and at the longer end if it is at all "
    "longer lengths too. "
    "Pairs of one precision class are compared. A pair that is not here has no crossover that is certain."
)


def blocks(results: Results) -> list[Block]:
    """Return the crossovers in sentences, and a fold with all of them."""
    of_curves = [group for group in groups(results.records) if len(group.workloads) > 1]
    found = [(group, cross) for group in of_curves for cross in crossovers(group)]
    if not found:
        none = "No two kernels change their order over the lengths with certainty."
        return [Paragraph(none if results.records else "There are no records.")]
    table = Table(
        columns=[*(Column(head, left=True) for head in ("workloads", "faster below", "faster above")), *_NUMBERS],
        rows=[_row(group, cross) for group, cross in found],
        caption="Crossovers by workloads",
        notes=[_NOTE],
    )
    words = Bullets("", [(_sentence(group, cross), "") for group, cross in _largest(found)[:_SHOWN]])
    return [words, Fold(f"All {len(found)} crossovers", [table])]


_NUMBERS = (Column("crossover\ntokens"), Column("still slower\nat"), Column("faster\nfrom"))


def rows(results: Results) -> Rows:
    """Return one row per crossover; lengths in tokens or what else the group's axis is."""
    csv: Rows = [("workloads", "operation", "faster_below", "faster_above", "crossover", "low", "high")]
    for group in groups(results.records):
        for cross in crossovers(group):
            names = (cross.shorter.variant, cross.longer.variant)
            csv.append((group.name, group.operation, *names, cross.length, cross.below, cross.above))
    return csv


def _largest(found: list[tuple[Group, Crossover]]) -> list[tuple[Group, Crossover]]:
    """Return one crossover of each pair of kernels, that of the workloads with the most operations, those first."""
    ordered = sorted(found, key=lambda one: -one[0].longest.cost.flops)
    by_pair: dict[frozenset[str], tuple[Group, Crossover]] = {}
    for group, cross in ordered:
        by_pair.setdefault(frozenset((cross.shorter.variant, cross.longer.variant)), (group, cross))
    return list(by_pair.values())


def _row(group: Group, cross: Crossover) -> Row:
    names = (legend.name(cross.shorter.variant), legend.name(cross.longer.variant))
    return Row((title(group), *names, f"{cross.length:,.0f}", f"{cross.below:,}", f"{cross.above:,}"))


def _sentence(group: Group, cross: Crossover) -> str:
    longer, shorter = variants.label(cross.longer.variant), variants.label(cross.shorter.variant)
    where = f"{cross.length:,.0f} {group.axis} [{cross.below:,}, {cross.above:,}]"
    return f"{title(group)}: {longer} is faster than {shorter} from {where} on."
