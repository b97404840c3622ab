"""Cells as they are published -> all that is wrong with them. No device, no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fluxbench.analysis.verification import beside, errors, origin, state, times
from fluxbench.analysis.verification.cell import CONTROL, Cell
from fluxbench.analysis.verification.problem import Finding, Findings, Kind, Problem, finding
from fluxbench.analysis.verification.rebuilt import Expected, Rebuilt
from fluxbench.records import files, fingerprint
from fluxbench.records.schema import Record
from fluxbench.records.status import Status


def verify(cells: Sequence[Cell], known: Sequence[Cell] = ()) -> list[Problem]:
    """Return what is wrong with cells of one target.

    `known` are cells of other targets: the control kernel takes the same cycles on the same model of device. Where a
    cell's samples are missing, its records are checked by themselves.
    """
    problems = [problem for cell in cells for problem in _of_cell(cell)]
    records = [(cell, record) for cell in cells for record in cell.records]
    first = next((record.fingerprint for _, record in records if record.fingerprint.get("device")), {})
    for cell, record in records:
        other = fingerprint.another_device(first, record.fingerprint)
        if other and record.fingerprint.get("device"):
            problems.append(_whose(finding(Kind.SEVERAL, what="device", got=" and ".join(other)), cell, record))
    twice = Counter((record.notebook, record.variant, record.workload.name) for _, record in records)
    problems += [
        _whose(finding(Kind.TWICE, notebook=record.notebook, count=count), cell, record)
        for cell, record in records
        if (count := twice[record.notebook, record.variant, record.workload.name]) > 1
    ]
    by_id = {id(record): cell for cell, record in records}
    problems += [_whose(one, by_id[id(record)], record) for record, one in errors.of_all([r for _, r in records])]
    mine = {id(cell) for cell in cells}
    problems += [_whose(one, cell) for cell, one in beside.controls([*cells, *known]) if id(cell) in mine]
    return list({(p.kind, p.path, p.variant, p.workload, str(p.values)): p for p in problems}.values())


def _of_cell(cell: Cell) -> Iterator[Problem]:
    yield from (_whose(one, cell) for one in beside.of_cell(cell))
    rebuilt = Rebuilt(cell) if cell.samples is not None else None
    passed = [record for record in cell.records if record.status is Status.PASSED]
    if rebuilt is None and passed:
        yield _whose(finding(Kind.NO_SAMPLES), cell)
    elif rebuilt is not None:
        yield from (_whose(one, cell) for one in _unrecorded(cell, rebuilt))
    apart = any(timing.apart for record in passed for timing in record.timings.values())  # alike in all of a cell
    timings = {
        record.variant: rebuilt.timings(
            record.variant,
            record.method_version,
            winsorized=any(timing.winsorized for timing in record.timings.values()),
            apart=apart,
        )
        for record in {record.variant: record for record in passed}.values()
        if rebuilt is not None
    }
    for record in cell.records:
        yield from (_whose(one, cell, record) for one in _of_record(record, cell, timings))


def _of_record(record: Record, cell: Cell, timings: Mapping[str, Mapping[str, Mapping[str, Expected]]]) -> Findings:
    yield from origin.provenance(record)
    if record.cell != files.cell_of(cell.path):
        yield finding(Kind.NAME, field="cell", expected=files.cell_of(cell.path), got=record.cell)
    yield from origin.names(record)
    yield from errors.of_one(record)
    if out := list(times.range_of(record)):
        yield from out
        return
    yield from times.of_record(record)
    yield from state.of_record(record, cell)
    if record.variant in timings and record.status is Status.PASSED:
        expected = timings[record.variant].get(record.workload.name, {})
        yield from times.against_samples(record, cell, expected)
        yield from state.against_samples(record, cell, expected)


def _unrecorded(cell: Cell, rebuilt: Rebuilt) -> Findings:
    """Yield the variants and workloads that were timed and have no record; a reference may be another cell's."""
    recorded = {(record.variant, record.workload.name) for record in cell.records}
    own = {record.variant for record in cell.records}
    for variant, workload in cell.by_pair:
        if variant in CONTROL or (variant, workload) in recorded:
            continue
        if variant not in rebuilt.references or variant in own:
            yield finding(Kind.NO_RECORD, variant=variant, workload=workload)


def _whose(one: Finding, cell: Cell, record: Record | None = None) -> Problem:
    return Problem(
        kind=one.kind,
        path=cell.path,
        variant=record.variant if record else None,
        workload=record.workload.name if record else None,
        values=one.values,
    )
