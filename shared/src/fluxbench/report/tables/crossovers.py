"""From which length on one kernel is faster than another, and at which shorter lengths the other is."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench import variants
from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.lengths import Crossover, crossovers
from fluxbench.core.formatting import listed
from fluxbench.operations.workload import Workload
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Bullets, Column, Fold, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import title
from fluxbench.report.tables import Rows

_SHOWN = 4  # in sentences; a fold has all
_OPERATIONS = ("attention", "attention_training", "attention_backward")  # in the order of the sentences
_ORDER = (
    "one crossover each, bfloat16 before float32, then the forward pass before training and the backward pass alone, "
    "then the largest head_dim."
)
_NOTES = (
    "Faster from: at this and all longer measured lengths the first kernel is faster. At the shorter ones the other is "
    "faster, or slower, or neither is, measurably as in the ranking.",
    "Equal near: where a line through the ratios at the longest length at which the other is faster, and at that of "
    "'faster from', straight over the logarithm of the length, reaches 1.",
    "Pairs of one precision class are compared. A pair that is not here has no crossover that is certain.",
)
_NAMES = ("workloads", "kernel", "the other")
_LENGTHS = ("faster\nfrom", "other\nfaster at", "other\nslower at", "neither\nat", "equal\nnear")


def blocks(results: Results) -> list[Block]:
    """Return the crossovers in sentences, and a fold with all of them."""
    of_curves = [group for group in groups(results.records) if len(group.workloads) > 1]
    found = [(group, cross) for group in of_curves for cross in crossovers(group)]
    if not found:
        none = "No two kernels change their order over the lengths with certainty."
        return [Paragraph(none if results.records else "There are no records.")]
    table = Table(
        columns=[*(Column(head, left=True) for head in _NAMES), *map(Column, _LENGTHS)],
        rows=[_row(group, cross) for group, cross in found],
        caption="Crossovers by workloads",
        notes=_NOTES,
    )
    pairs = _first(found)
    words = Bullets("", [(_sentence(group, cross), "") for group, cross in pairs[:_SHOWN]])
    which = f"The first {_SHOWN} of {len(pairs)} pairs of kernels" if len(pairs) > _SHOWN else "Pairs of kernels"
    order = [Paragraph(f"{which}, {_ORDER}")] if len(found) > 1 else []
    return [*order, words, Fold(f"All {len(found)} crossovers", [table])]


def rows(results: Results) -> Rows:
    """Return one row per crossover; lengths in tokens or what else the group's axis is.

    `kernel` is faster at `faster_from` and all longer lengths. Each `_at` has the shorter ones, separated by spaces.
    """
    header = ("workloads", "operation", "kernel", "other", "faster_from", "other_faster_at", "other_slower_at")
    csv: Rows = [(*header, "neither_at", "equal_near")]
    for group in groups(results.records):
        for cross in crossovers(group):
            names = (cross.longer.variant, cross.shorter.variant)
            places = (" ".join(map(str, at)) for at in (cross.faster_at, cross.slower_at, cross.neither_at))
            csv.append((group.name, group.operation, *names, cross.above, *places, cross.length))
    return csv


def _first(found: Sequence[tuple[Group, Crossover]]) -> list[tuple[Group, Crossover]]:
    """Return one crossover of each pair of kernels, in the order that `_ORDER` states."""
    by_pair: dict[frozenset[str], tuple[Group, Crossover]] = {}
    for group, cross in sorted(found, key=lambda one: _place(one[0].longest)):
        by_pair.setdefault(frozenset((cross.shorter.variant, cross.longer.variant)), (group, cross))
    return list(by_pair.values())


def _place(workload: Workload) -> tuple[bool, int, int, int]:
    shape, known = workload.shape, workload.operation in _OPERATIONS
    operation = _OPERATIONS.index(workload.operation) if known else len(_OPERATIONS)
    return shape.get("dtype") != "bfloat16", operation, -int(shape.get("head_dim_qk", 0)), -workload.cost.flops


def _row(group: Group, cross: Crossover) -> Row:
    names = (legend.name(cross.longer.variant), legend.name(cross.shorter.variant))
    places = (_lengths(at, cross) or "-" for at in (cross.faster_at, cross.slower_at, cross.neither_at))
    return Row((title(group), *names, f"{cross.above:,}", *places, f"{cross.length:,.0f}"))


def _sentence(group: Group, cross: Crossover) -> str:
    longer, shorter = variants.label(cross.longer.variant), variants.label(cross.shorter.variant)
    above = f"{cross.above:,} {group.axis}"
    where = f"from {above} on" if cross.above < cross.lengths[-1] else f"at {above}, the longest"
    below = [f"{shorter} is faster at {_lengths(cross.faster_at, cross)}"]
    below += [f"slower at {_lengths(cross.slower_at, cross)}"] if cross.slower_at else []
    below += [f"neither is at {_lengths(cross.neither_at, cross)}"] if cross.neither_at else []
    return f"{title(group)}: {longer} is faster than {shorter} {where}; {', '.join(below)}."


def _lengths(at: Sequence[int], cross: Crossover) -> str:
    """Return lengths as a list, three or more neighbours as "128 to 1,024"."""
    runs: list[list[int]] = []
    for x in at:
        place = cross.lengths.index(x)
        if runs and cross.lengths[place - 1] == runs[-1][-1]:
            runs[-1].append(x)
        else:
            runs.append([x])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]:,} to {run[-1]:,}"] if len(run) > 2 else [f"{x:,}" for x in run]
    return listed(words)
