"""Which form stands for a kernel where each has one row."""

from __future__ import annotations

from collections.abc import Iterable

from fluxbench.analysis.groups import Group, not_launch_bound, reference_variant, timing_of
from fluxbench.analysis.ranking import order
from fluxbench.records.schema import Record
from fluxbench.variants.forms import simplicity


def best_forms(group: Group, records: Iterable[Record]) -> list[Record]:
    """Return one of the records of each kernel, in their order; all are of one workload of the group.

    It is the reference itself, of the other kernels the simplest form that none of their other forms beats. A
    launch-bound time counts only where all forms have one.
    """
    records, reference = list(records), reference_variant(group.records)
    kernels: dict[str, list[Record]] = {}
    for record in records:
        kernels.setdefault(record.kernel, []).append(record)
    chosen = {_best(group, forms, reference).variant for forms in kernels.values()}
    return [record for record in records if record.variant in chosen]


def _best(group: Group, forms: list[Record], reference: str | None) -> Record:
    for record in forms:
        if record.variant == reference:
            return record
    known = not_launch_bound(forms)
    fastest = min(known, key=lambda record: timing_of(record).ratio)
    found = order(group, fastest.workload)
    return min(
        (record for record in known if not found.faster(fastest, record)),
        key=lambda record: simplicity(record.form),
    )
