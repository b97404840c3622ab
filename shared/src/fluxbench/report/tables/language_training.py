"""Training of language models: a step of some layers, fused over standard attention, and the tokens/s of all layers."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench import variants
from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.language import FUSED, STANDARD, Step, trained
from fluxbench.analysis.launching import is_launching
from fluxbench.core.formatting import plus_minus
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.report.tables.language import LAUNCHING

_LAYERS = (
    "Layers: how many of the model's were trained, whole and with all that they keep for the backward pass. The time "
    "of all layers is theirs, times the ratio of the two numbers of layers."
)
_VOCABULARY = (
    " Where not all were trained, an embedding and a head of {:,} words are in it, and the model's own are not."
)
_WORDS = (
    f"Standard is {STANDARD}, fused {FUSED}. A step is forward and backward pass and AdamW's step, in bfloat16. "
    "Single steps after a rest are timed; a long one reaches the power limit all the same. Nothing is computed twice "
    "to save memory; how many layers fit on this device is in the table of memory."
)


def blocks(results: Results) -> list[Block]:
    """Return a row for each model, batch and length."""
    found = trained(results.records)
    if not found:
        return [Paragraph("No training was measured." if results.records else "There are no records.")]
    body: list[Heading | Row] = []
    for model in dict.fromkeys(step.model for step in found):
        body.append(Heading(model))
        body += [_row(step) for step in found if step.model == model]
    columns = [Column("batch x tokens"), Column("layers"), Column("standard\nms"), Column("fused\nms")]
    columns += [
        Column("fused over\nstandard"),
        Column("all layers,\nstandard\n1,000 tokens/s"),
        Column("all layers,\nfused\n1,000 tokens/s"),
    ]
    timed = [record for step in found for record in map(step.timed, (STANDARD, FUSED)) if record]
    smaller = {words for step in found if (words := int(step.workload.shape["vocabulary"])) < step.whole.vocabulary}
    notes = [
        _WORDS,
        _LAYERS + "".join(map(_VOCABULARY.format, sorted(smaller))),
        *[LAUNCHING] * any(map(is_launching, timed)),
    ]
    caption = f"A step of training, and the throughput of all layers; fused is {variants.label(FUSED)}"
    return [Table(columns, body, caption, notes)]


def rows(results: Results) -> Rows:
    """Return one row per model, batch, length and variant."""
    header = ("model", "batch", "tokens", "layers", "of_layers", "variant", "status", "step_ms")
    csv: Rows = [(*header, "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "allocated_bytes")]
    for step in trained(results.records):
        for record in step.group.records_at[step.workload.name].values():
            rate = step.tokens_per_s(record.variant)
            place = (step.model, step.batch, step.tokens, step.layers, step.whole.layers, record.variant)
            ms = timing_of(record).median_ms if record.timing else None
            csv.append((*place, record.status.value, ms, *estimate_cells(rate), step.call_bytes(record.variant)))
    return csv


def _row(step: Step) -> Row:
    speed = step.speedup()
    cells = [f"{step.batch} x {step.tokens:,}", f"{step.layers} of {step.whole.layers}", *_times(step)]
    cells.append(factor(speed))
    rates = (step.tokens_per_s(variant) for variant in (STANDARD, FUSED))
    cells += [plus_minus(rate.value / 1e3, (rate.low / 1e3, rate.high / 1e3)) if rate else "-" for rate in rates]
    return Row(tuple(cells), failed=not any(map(step.timed, (STANDARD, FUSED))))


def _times(step: Step) -> Iterator[str]:
    for variant in (STANDARD, FUSED):
        record = step.timed(variant)
        failed = step.find(variant)
        if record:
            yield plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms) + " h" * is_launching(record)
        else:
            yield failed.status.value if failed else "-"
