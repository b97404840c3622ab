"""Memory as it was measured: up to which length a call fits on a card, beside a model, and where memory was out."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from fluxbench.analysis.call_memory import CARDS_MIB, UNSEEN_GIB, fits_on, is_as_large, model_of
from fluxbench.analysis.groups import Group, groups
from fluxbench.core.formatting import number
from fluxbench.operations.words import describe
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report import curves, legend
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows

_GIB = 2**30
_SOLD = ", ".join(f"{mib:,} MiB for {card} GB" for card, mib in CARDS_MIB.items())
_LINE = (
    "The longest measured length that fits on a card sold with so many GB: inputs, and the peak of what torch "
    "reserved beside them, over forward and backward pass where there are both. ≥: at least that, as no longer length "
    "that was measured lacks memory there. Kept: what the forward pass leaves for the backward pass, without inputs. "
    "Of model: peak allocated over what the call must hold."
)
_CARDS = (
    f"A card has what nvidia-smi lists of an RTX 4090, an A100 by older drivers, an H100 and an H200 ({_SOLD}), less "
    f"the {UNSEEN_GIB} GiB that torch does not see of it: an H200 has 140.40 GiB by nvidia-smi and 139.80 by torch. "
    "What passed on this device fits on a card of its size."
)
_NOTES = (
    _LINE,
    _CARDS,
    "Measured on one warm call by torch's own counters (torch.cuda.max_memory_allocated and max_memory_reserved) after "
    "its cache was emptied. A segment that holds a tensor of another workload of the process stays then, and its "
    "unused rest counts as reserved: of short lengths that is most of it, so they may fit on a smaller card. The CUDA "
    "context, about half a GB, the weights of a model and its other layers are not in it, so a call that fits here "
    "may not fit in a model. -: no measured length, or not known; a CPU reports no memory.",
    "The model, in bytes, with n = batch x heads x queries: a fused forward pass holds its output, an unfused one also "
    "two float32 matrices of n x keys. For the backward pass the output is kept, and n x 4 bytes by a fused kernel "
    "(the logarithm of the sum of each softmax) or one matrix by an unfused one. The backward pass adds the gradients "
    "of q, k and v, and two matrices if it is unfused (Dao et al., FlashAttention, 2022, algorithm 0; Dao, "
    "FlashAttention-2, 2023, section 3.1). A ratio over 1 is what a library takes beyond that: masks, copies in "
    "float32, partial gradients.",
)


def blocks(results: Results) -> list[Block]:
    """Return the longest lengths by card, and each row that ran out of memory."""
    if not results.records:
        return [Paragraph("There are no records.")]
    none = Paragraph("No memory was measured: this device reports none.")
    rows_of = functools.partial(_rows, device_bytes=results.device.memory_bytes)
    shown = curves.blocks(groups(results.records), rows_of, _table) or [none]
    out = [record for record in results.records if record.status is Status.OUT_OF_MEMORY]
    return [*shown, _of_shortages(out)] if out else [*shown, Paragraph("No row ran out of memory.")]


def rows(results: Results) -> Rows:
    """Return every record whose memory is known or was out, in bytes; `model_*` are of the model, cards in GB."""
    header = ["workload", "operation", "variant", "status", "tokens", "inputs_bytes", "kept_bytes", "allocated_bytes"]
    header += ["reserved_bytes", "model_inputs_bytes", "model_kept_bytes", "model_allocated_bytes", "fits_on_gb"]
    csv: Rows = [[*header, "asked_bytes", "free_bytes", "device_bytes", "own_bytes"]]
    for record in results.records:
        if record.memory is None and record.status is not Status.OUT_OF_MEMORY:
            continue
        of, memory, model, lack = record.workload, record.memory, model_of(record), record.shortage
        measured: Sequence[object] = (None,) * 4
        if memory:
            measured = (memory.inputs_bytes, memory.kept_bytes, memory.allocated_bytes, memory.reserved_bytes)
        modelled = (model.inputs, model.kept, model.peak) if model else (None,) * 3
        card = fits_on(record, results.device.memory_bytes) if memory else None
        missing = (lack.asked_bytes, lack.free_bytes, lack.total_bytes, lack.own_bytes) if lack else (None,) * 4
        csv.append((
            of.name, of.operation, record.variant, record.status.value, of.x, *measured, *modelled, card, *missing
        ))  # fmt: skip
    return csv


def _table(body: curves.Body) -> Table:
    heads = [f"fits on\n{card} GB" for card in CARDS_MIB]
    heads += ["longest\nmeasured", "kept\nMiB", "allocated\nMiB", "reserved\nMiB", "of\nmodel"]
    columns = [Column("kernel", left=True), *map(Column, heads)]
    return Table(columns=columns, rows=body, caption="Longest measured length, in tokens, that fits", notes=_NOTES)


def _rows(group: Group, device_bytes: int | None) -> Iterator[Row]:
    for variant in group.variants:
        curve = [record for record in group.curve(variant) if record.memory]
        if not curve:
            continue
        last = curve[-1]
        assert last.memory
        model = model_of(last)
        cells = [_fits(group, variant, curve, card, device_bytes) for card in CARDS_MIB]
        cells += [f"{last.workload.x:,}", _mib(last.memory.kept_bytes), _mib(last.memory.allocated_bytes)]
        cells += [_mib(last.memory.reserved_bytes)]
        of_model = f"{number(last.memory.allocated_bytes / model.peak)}×" if model else "-"
        yield Row((legend.name(variant), *cells, of_model))


def _fits(group: Group, variant: str, curve: Sequence[Record], card_gb: int, device_bytes: int | None) -> str:
    """Return the longest length that fits on a card, with ≥ where no longer one is known to lack memory there."""
    fits = [each.workload.x for each in curve if (fits_on(each, device_bytes) or math.inf) <= card_gb]
    if not fits:
        return "-"
    longer = (group.find(variant, workload) for workload in group.workloads if workload.x > fits[-1])
    is_limit = any(each and _lacks(each, card_gb, device_bytes) for each in longer)
    return f"{'' if is_limit else '≥'}{fits[-1]:,}"


def _lacks(record: Record, card_gb: int, device_bytes: int | None) -> bool:
    """Whether a call needs more than a card has, or ran out of memory on a device that has as much."""
    if record.memory:
        return (fits_on(record, device_bytes) or math.inf) > card_gb
    lack = record.shortage if record.status is Status.OUT_OF_MEMORY else None
    return lack is not None and is_as_large(lack.total_bytes or 0, card_gb)


def _of_shortages(out: Sequence[Record]) -> Table:
    heads = ("must hold\nGiB", "asked for\nGiB", "free\nGiB", "of device\nGiB", "this process\nGiB")
    return Table(
        columns=[Column("kernel", left=True), Column("at", left=True), *map(Column, heads)],
        rows=[_of_shortage(record) for record in out],
        caption=f"{len(out)} rows ran out of memory",
        notes=[
            "Asked for is the one allocation that failed, free what the device had at that moment, both as torch said "
            "them; this process is what the measuring process had taken of the device, its contents of other calls "
            "included, and what is missing to the whole is other processes'. Must hold: inputs and peak, by the model. "
            "A row that ran out beside others was tried again with nothing else in memory; its numbers are of that, "
            "but not where the one allocation is larger than the whole device."
        ],
    )


def _of_shortage(record: Record) -> Row:
    model, lack = model_of(record), record.shortage
    passes = record.workload.operation.rpartition("_")[2]
    where = describe(record.workload) + ("" if passes == "attention" else f", {passes}")
    cells = [_gib(model.total) if model else "-"]
    sizes = (lack.asked_bytes, lack.free_bytes, lack.total_bytes, lack.own_bytes) if lack else (None,) * 4
    cells += ["-" if size is None else _gib(size) for size in sizes]
    return Row((legend.name(record.variant), where, *cells), failed=True)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f}"


def _gib(size: int) -> str:
    return f"{size / _GIB:,.1f}"
