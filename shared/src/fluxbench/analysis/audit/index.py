"""Figures by configuration, so that those of one call are found beside one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import Context, NotDecidable
from fluxbench.analysis.audit.table import Entry

Group = list[Claim]
_SHAPE = ("batch", "seq_len", "heads", "head_dim")


class Index:
    """All figures of a table, grouped by whatever a rule compares."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self.metrics = {claim.metric for claim in self.claims}
        self._groups: dict[tuple[str, ...], dict[tuple[str, ...], Group]] = {}

    def by(self, *without: str) -> Mapping[tuple[str, ...], Group]:
        """Return the figures by their configuration, but for these columns."""
        if without not in self._groups:
            groups: dict[tuple[str, ...], Group] = {}
            keys: dict[int, tuple[str, ...]] = {}
            for claim in self.claims:
                key = keys.get(id(claim.context))
                if key is None:
                    key = keys[id(claim.context)] = claim.context.key(*without)
                groups.setdefault(key, []).append(claim)
            self._groups[without] = groups
        return self._groups[without]


def with_shapes(entries: Iterable[Entry]) -> list[Entry]:
    """Return the rows, those without a shape with that of the one configuration elsewhere that has the same time.

    It must be of the same source, card, implementation, pass, batch and length. The other rows of such a table with the
    same batch and length get the same shape.
    """
    rows = list(entries)
    if not any(row.context.get("source") for row in rows):
        return rows
    shaped = {_place(claim): claim.context for claim in _timed(rows) if _has_shape(claim.context)}
    ambiguous = {
        _place(claim)
        for claim in _timed(rows)
        if _has_shape(claim.context) and _sizes(claim.context) != _sizes(shaped[_place(claim)])
    }
    tables: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    donors: dict[tuple[str, ...], Context] = {}
    for claim in _timed(rows):
        place = _place(claim)
        if not _has_shape(claim.context) and place in shaped and place not in ambiguous:
            tables.setdefault(_of_table(claim.context), set()).add(_sizes(shaped[place]))
            donors[_of_table(claim.context)] = shaped[place]
    donors = {table: donor for table, donor in donors.items() if len(tables[table]) == 1}
    if not donors:
        return rows
    changed: dict[int, Context] = {}
    return [_changed(row, donors, changed) for row in rows]


def _changed(row: Entry, donors: Mapping[tuple[str, ...], Context], changed: dict[int, Context]) -> Entry:
    context = row.context
    donor = donors.get(_of_table(context))
    if donor is None or _has_shape(context):
        return row
    new = changed.setdefault(id(context), context.with_shape_of(donor))
    claims = tuple(dataclasses.replace(claim, context=new) for claim in row.claims)
    return dataclasses.replace(row, context=new, claims=claims)


def _timed(rows: Iterable[Entry]) -> Iterator[Claim]:
    return (
        claim
        for row in rows
        for claim in row.claims
        if claim.metric is Metric.TIME and row.context.get("batch") and row.context.get("seq_len")
    )


def _place(claim: Claim) -> tuple[str, ...]:
    names = ("source", "gpu", "implementation", "pass", "batch", "seq_len", "per", "layer")
    return (*map(claim.context.get, names), repr(claim.value))


def _of_table(context: Context) -> tuple[str, ...]:
    return tuple(map(context.get, ("source", "table", "gpu", "batch", "seq_len")))


def _sizes(context: Context) -> tuple[str, ...]:
    return tuple(map(context.get, (*_SHAPE, "kv_heads")))


def _has_shape(context: Context) -> bool:
    try:
        return bool(context.shape)
    except NotDecidable:
        return False
