"""What really ran: a call's time by what its kernels do, what else it costs, and the kernels by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fluxbench import operations, variants
from fluxbench.analysis.failures import passed
from fluxbench.analysis.groups import Group, groups, timing_of
from fluxbench.core.formatting import count, number
from fluxbench.records.schema import KernelShare, Record
from fluxbench.report.blocks import Block, Bullets, Column, Fold, Heading, Name, Paragraph, Row, Table
from fluxbench.report.kernel_names import short_name
from fluxbench.report.legend import name
from fluxbench.report.results import Results
from fluxbench.report.sentences import shape, title
from fluxbench.report.tables import Rows

_UNKNOWN = "-"  # what is not known, or is nothing
_LEAST = 0.01  # share of a call's device time under which a kernel is counted and not named
_COST = ("launch_ms", "peak_memory_bytes", "compile_s", "graph_breaks", "detail")
_LINE = (
    "Single calls on a device that rested (burst); the parts are what the kernels of a call do. -: not known, or none."
)
_WORDS = (
    "Call: from the first kernel's begin to the last one's end, by device events, the median of the first process's "
    "bursts (on a CPU one call). {parts}: the sum of such kernels' own times, by torch's profiler, in seven calls "
    "after these bursts, so they can exceed the call by a percent; gaps between kernels are in none of them. "
    "Host launch: what the host takes to launch one call, in burst: back to back the host is faster. Peak: what one "
    "call allocates at most, its output included. Compile: a first call less a warm one, at the workload where that "
    "was longest, with caches that are empty at the start of the cell: the first variant pays for what later ones find "
    "done."
)


def blocks(results: Results) -> list[Block]:
    """Return what a call at the longest workload of each group consists of, and its kernels by name."""
    notes = variants.notes()
    every_group = groups(results.records)
    return [b for group in every_group for b in _of_group(group, notes)] or [Paragraph("There are no records.")]


def _of_group(group: Group, notes: Mapping[str, str]) -> Iterator[Block]:
    records = [record for record in passed(group) if record.workload == group.longest]
    records.sort(key=lambda record: (timing_of(record).ratio, record.variant))
    if records:
        parts = _parts([group])
        heads = ["call\nms", *(f"{part}\nms" for part in parts)]
        heads += ["burst host\nlaunch ms", "peak\nMiB", "compile\ns", "graph\nbreaks"]
        parts_of_calls = Table(
            columns=[Column("variant", left=True), *map(Column, heads)],
            rows=[_row(record, parts, _compile_s(group.records, record.variant)) for record in records],
            caption=f"What ran at {shape(group)}",
            notes=[_LINE, _WORDS.format(parts=", ".join(parts).capitalize())],
        )
        named = [Column("variant", left=True), Column("share")]
        largest = Table(
            columns=[*named, Column("does", left=True), Column("kernel", left=True)],
            rows=[row for record in records for row in _kernel_rows(record)],
            caption=f"The largest kernels of a call, with their shares of its device time ({title(group)})",
        )
        yield Fold(f"What ran in {count(len(records), 'variant')} at {shape(group)}", [parts_of_calls, largest])
    else:
        yield Paragraph(f"Nothing passed at {shape(group)}, so nothing is known of what ran there.")
    shown = {record.kernel for record in group.records}
    if noted := [(f"{kernel}: {note}", "") for kernel, note in notes.items() if kernel in shown]:
        yield Fold("Notes on these kernels", [Bullets("", noted)])


def _parts(of: Iterable[Group]) -> list[str]:
    """Return what a call's time is split into: the parts of the groups' operations, and further recorded ones."""
    parts = {"attention": None, "quantization": None}
    for group in of:
        if group.operation in operations.NAMES:
            parts |= dict.fromkeys(operations.find(group.operation).parts)
        parts |= {part: None for record in group.records if record.cupti for part in record.cupti.parts_ms}
    return list(parts)


def _row(record: Record, parts: Sequence[str], compile_s: float | None) -> Row:
    memory = record.peak_memory_bytes
    return Row(
        (
            name(record.variant),
            number(record.cupti.events_ms) if record.cupti else _UNKNOWN,
            *(number(ms) if (ms := _part_ms(record, part)) else _UNKNOWN for part in parts),
            number(record.launch_ms) if record.launch_ms else _UNKNOWN,
            f"{memory / 2**20:,.1f}" if memory else _UNKNOWN,
            _UNKNOWN if compile_s is None else f"{compile_s:.1f}",
            _UNKNOWN if record.graph_breaks is None else f"{record.graph_breaks}",
        )
    )


def _part_ms(record: Record, part: str) -> float | None:
    return record.cupti.parts_ms.get(part) if record.cupti else None


def _compile_s(records: Iterable[Record], variant: str) -> float | None:
    """Return the longest compilation of a variant at any workload: what is compiled once is so at the first of them."""
    every = (record.compile_s for record in records if record.variant == variant)
    return max((seconds for seconds in every if seconds is not None), default=None)


def _kernel_rows(record: Record) -> Iterator[Row | Heading]:
    """Yield a variant's kernels, largest first, and what the library says that it chose."""
    largest = sorted(record.kernels, key=lambda kernel: -kernel.share)
    named = [kernel for index, kernel in enumerate(largest) if kernel.share >= _LEAST or not index]
    cells = [[f"{kernel.share:.0%}", kernel.part or _UNKNOWN, short_name(kernel.name)] for kernel in named]
    cells = cells or [[_UNKNOWN, _UNKNOWN, "not profiled"]]
    if others := len(largest) - len(named):
        cells[-1][-1] += f" (and {others} under {_LEAST:.0%})"
    first: Name | str = name(record.variant)
    yield from (Row((first if not index else "", *of_kernel)) for index, of_kernel in enumerate(cells))
    if record.detail:
        yield Heading(f"  the library's own choice: {' '.join(record.detail.split())}", note=True)


def rows(results: Results) -> Rows:
    """Return one row per record and kernel, all workloads; a record without kernels has one row. Shares are 0 to 1."""
    parts = _parts(groups(results.records))
    header = ("workload", "variant", "status", "reason", "call_ms", *(f"{part}_ms" for part in parts), *_COST)
    csv: Rows = [(*header, "kernel", "kernel_share", "kernel_part")]
    for record in results.records:
        who = (record.workload.name, record.variant, record.status.value, record.reason)
        times = (record.cupti.events_ms if record.cupti else None, *(_part_ms(record, part) for part in parts))
        cost = tuple(getattr(record, name) for name in _COST)
        kernels: Sequence[KernelShare | None] = record.kernels or (None,)
        for kernel in kernels:
            of_kernel = (kernel.name, kernel.share, kernel.part) if kernel else (None, None, None)
            csv.append((*who, *times, *cost, *of_kernel))
    return csv
