"""Which form stands for a kernel, or for a library, where each has one row."""

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
    own = {record.kernel: record.variant for record in records if record.variant == reference}
    chosen = {own.get(kernel) or best_form(group, forms).variant for kernel, forms in kernels.items()}
    return [record for record in records if record.variant in chosen]


def best_of_libraries(group: Group, records: Iterable[Record]) -> list[Record]:
    """Return one of the records of each library, in their order; all are of one workload and one precision class.

    A library is the cell that measures a kernel first.
    """
    records, cells = list(records), dict[str, str]()
    for record in group.records:
        cells.setdefault(record.kernel, record.cell)
    libraries: dict[str, list[Record]] = {}
    for record in records:
        libraries.setdefault(cells[record.kernel], []).append(record)
    chosen = {best_form(group, of_library).variant for of_library in libraries.values()}
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
