"""A table with rows for each curve, below a heading: whole, or where it is long with the first curve alone open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fluxbench.analysis.groups import Group
from fluxbench.report.blocks import Block, Fold, Heading, Row, Table
from fluxbench.report.sentences import title

_FOLDED = 24  # rows, up to which all curves are open

Body = Sequence[Row | Heading]


def blocks(
    groups: Iterable[Group], rows: Callable[[Group], Iterable[Row]], table: Callable[[Body], Table]
) -> list[Block]:
    """Return a table of all curves, or of the first with a fold for the others; nothing where no group has rows."""
    curves: list[Body] = [(Heading(title(group)), *of_group) for group in groups if (of_group := tuple(rows(group)))]
    if not curves:
        return []
    if len(curves) == 1 or sum(len(curve) - 1 for curve in curves) <= _FOLDED:
        return [table(_joined(curves))]
    others = table(_joined(curves[1:]))
    return [table(curves[0]), Fold(f"The same for {len(curves) - 1} other curves", [others])]


def _joined(curves: Iterable[Body]) -> Body:
    return [row for curve in curves for row in curve]
