"""Which form stands for a kernel, where each has one row.

A kernel that is loaded in another way has none of its own: `analysis.unbeaten.once`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluxbench.analysis.groups import Group, not_launch_bound, reference_variant, timing_of
from fluxbench.analysis.ranking import order
from fluxbench.analysis.unbeaten import once
from fluxbench.records.schema import Record
from fluxbench.variants.forms import simplicity


def best_forms(group: Group, records: Iterable[Record]) -> list[Record]:
    """Return one of the records of each kernel, in their order; all are of one workload of the group.

    It is the reference itself, of the other kernels the `best_form`.
    """
    records, reference = list(records), reference_variant(group.records)
    own = {record.kernel for record in records if record.variant == reference}
    return best_of_kernels(group, [one for one in records if one.kernel not in own or one.variant == reference])


def best_of_kernels(group: Group, records: Iterable[Record]) -> list[Record]:
    """Return the `best_form` of each kernel, the reference's too, in their order; all are of one workload."""
    kernels: dict[str, list[Record]] = {}
    for record in (records := once(list(records))):
        kernels.setdefault(record.kernel, []).append(record)
    chosen = {best_form(group, forms).variant for forms in kernels.values()}
    return [record for record in records if record.variant in chosen]


def best_form(group: Group, forms: list[Record]) -> Record:
    """Return the simplest of these forms that none of the others beats; a launch-bound one only where all are."""
    known = not_launch_bound(forms)
    fastest = min(known, key=lambda record: timing_of(record).ratio)
    found = order(group, fastest.workload)
    return min(
        (record for record in known if not found.faster(fastest, record)),
        key=lambda record: simplicity(record.form),
    )
