"""What a layer's time is spent on, of the pass with most in it: projections, attention, copies, the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fluxbench import operations
from fluxbench.analysis.layers import EAGER, PASSES, Layer, layers
from fluxbench.analysis.verdict import DEFAULT
from fluxbench.core.formatting import number, percent
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows

OPEN = 4  # layers that are open
_OF_CPU = r"attention|softmax|bmm|baddbmm"  # torch's operators of an attention on a CPU
PARTS = ("attention", "projections", "copies", "elementwise", "other")
_BY_OPERATOR = (
    "On a CPU the parts are the largest of torch's operators in one profiled call, by name; smaller ones are not known."
)
_BY_KERNEL = "By the profiler's names of kernels, medians of seven calls."


def blocks(results: Results) -> list[Block]:
    """Return the parts of each layer: of unfused attention, of torch's choice and of the fastest implementation."""
    found = layers(results.records)
    if not found:
        return [Paragraph(f"There are no {'layers among the records' if results.records else 'records'}.")]
    first, others = ([row for layer in some for row in _of_layer(layer)] for some in (found[:OPEN], found[OPEN:]))
    note = _BY_OPERATOR if results.device.kind == "cpu" else _BY_KERNEL
    shown: list[Block] = [_table(first, [note])]
    return [*shown, Fold(f"The other {len(found) - OPEN} layers", [_table(others, [])])] if others else shown


def rows(results: Results) -> Rows:
    """Return one row per layer, pass and variant that passed, with the ms of each part."""
    csv: Rows = [("layer", "variant", "pass", "call_ms", *(f"{part}_ms" for part in PARTS))]
    for layer in layers(results.records):
        for which in layer.passes:
            for record in layer.ranked(which):
                if record.cupti:
                    times = parts_ms(record)
                    cells = (layer.name, record.variant, which, record.cupti.events_ms)
                    csv.append((*cells, *(times.get(part) for part in PARTS)))
    return csv


def parts_ms(record: Record) -> Mapping[str, float]:
    """Return the time of each part of a record's profiled call, in ms; empty where the profiler saw nothing.

    On a CPU, where records have no parts, operators are classified here by the patterns of their operation.
    """
    if record.cupti is None or record.cupti.parts_ms:
        return record.cupti.parts_ms if record.cupti else {}
    patterns = {"attention": _OF_CPU, **operations.find(record.workload.operation).parts}
    times: dict[str, float] = {}
    for kernel in record.kernels:
        part = next((part for part, regex in patterns.items() if re.search(regex, kernel.name)), "other")
        times[part] = times.get(part, 0.0) + kernel.share * record.cupti.kernels_ms
    return times


def _of_layer(layer: Layer) -> Iterator[Heading | Row]:
    yield Heading(layer.name)
    for which in PASSES.values():
        fastest = layer.ranked(which)[:1]
        chosen = [layer.record(EAGER, which), layer.record(DEFAULT, which), *fastest]
        for record in dict.fromkeys(id(record) for record in chosen if record):
            yield _row(next(one for one in chosen if one and id(one) == record), which)


def _row(record: Record, which: str) -> Row:
    times = parts_ms(record)
    whole = sum(times.values())
    cells = [f"{number(times[part])} ({percent(times[part] / whole, 0)})" if part in times else "-" for part in PARTS]
    return Row((which, legend.name(record.variant), number(record.cupti.events_ms) if record.cupti else "-", *cells))


def _table(body: list[Heading | Row], notes: list[str]) -> Table:
    columns = [Column("pass", left=True), Column("implementation", left=True), Column("profiled call\nms")]
    return Table(
        columns=[*columns, *(Column(f"{part}\nms") for part in PARTS)],
        rows=body,
        caption="Parts of one call, with their shares of what the profiler saw.",
        notes=notes,
    )
