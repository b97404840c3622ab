"""Memory of a language model by context, with standard and with fused attention: reading a prompt, and training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fluxbench.analysis.call_memory import seen_bytes
from fluxbench.analysis.language import (
    FUSED,
    LOGIT_BYTES,
    STANDARD,
    Depths,
    Step,
    depths,
    inference_bytes,
    prompts,
    weight_bytes,
)
from fluxbench.core.formatting import number
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows

BOTH = (STANDARD, FUSED)
_INFERENCE = (
    "Reading a prompt: the weights, keys and values of all layers, and the measured peak of a forward pass beside its "
    "weights. Of a layer only its keys and values stay, so the peak is that of a model of two layers. Logits of the "
    "last token alone are left out."
)
_TRAINING = (
    "Training: weights, AdamW's two moments, and the measured peak of a step, which has the gradients and all that "
    "layers keep for the backward pass; all in bfloat16. The peak of all layers is by arithmetic, from steps of two "
    "numbers of layers: each further layer adds as much. Copies in float32 that some training keeps are not in it."
)
_FITS = (
    "Fit: of the model's layers how many could be trained in what torch sees of this device's memory, by the same "
    "arithmetic and with the logits of the model's own vocabulary. It is of what is allocated. The allocator reserves "
    "more, so fewer may fit."
)
_VOCABULARY = (
    f"Layers are measured with a vocabulary of {{words:,}}, so most logits of the model's own are not in the total, at "
    f"about {LOGIT_BYTES} bytes each in training (gpt2-124m against sm-12x768 on an H200), nor the gradients of its "
    "embedding and head: {sizes}. A step whose peak is in another place needs less."
)


def blocks(results: Results) -> list[Block]:
    """Return the memory by context of inference and of training."""
    read, pairs = prompts(results.records), depths(results.records)
    known = any(step.call_bytes(variant) for step in read for variant in BOTH)
    if not known and not any(pair.layer_bytes(variant) for pair in pairs for variant in BOTH):
        words = "No memory was measured: this device reports none, or nothing ran."
        return [Paragraph(words if results.records else "There are no records.")]
    body: list[Heading | Row] = []
    for model in dict.fromkeys(step.model for step in read):
        its = [step for step in read if step.model == model]
        weights = number(weight_bytes(its[0].whole, trains=False) / 1e9)
        body.append(Heading(f"{model}, reading a prompt, batch {its[0].batch}: weights {weights} GB"))
        body += [_row(step, [inference_bytes(step, one) for one in BOTH], ["-", "-"]) for step in its]
    for model in dict.fromkeys(pair.deep.model for pair in pairs):
        of_model = [pair for pair in pairs if pair.deep.model == model]
        kept = number(weight_bytes(of_model[0].deep.whole, trains=True) / 1e9)
        batch = of_model[0].deep.batch
        body.append(Heading(f"{model}, training, batch {batch}: weights and moments {kept} GB"))
        memory = results.device.memory_bytes
        body += [_row(pair.deep, [pair.total_bytes(one) for one in BOTH], _fits(pair, memory)) for pair in of_model]
    heads = ("tokens", "standard\nGB", "fused\nGB", "standard\nover fused", "fit,\nstandard", "fit,\nfused")
    notes = [_INFERENCE, _TRAINING, *_vocabulary(pairs), _FITS]
    return [Table([*map(Column, heads)], body, "Memory of all layers by context", notes)]


def _vocabulary(pairs: Sequence[Depths]) -> Iterator[str]:
    """Yield what the smaller vocabulary of the measured steps leaves out of the totals of training."""
    left_out = {pair.deep: pair.left_out_bytes for pair in pairs if pair.left_out_bytes}
    sizes = [
        f"{number(size / 1e9)} GB of {of.model} at {of.batch} x {of.tokens:,} tokens" for of, size in left_out.items()
    ]
    if sizes:
        words = int(next(iter(left_out)).workload.shape["vocabulary"])
        yield _VOCABULARY.format(words=words, sizes=", ".join(sizes))


def rows(results: Results) -> Rows:
    """Return one row per model, use, context and attention, in bytes."""
    header = ("model", "use", "batch", "tokens", "variant", "status", "weight_bytes", "cache_bytes")
    csv: Rows = [(*header, "layer_bytes", "total_bytes")]
    for step in prompts(results.records):
        of = step.whole
        for one in BOTH:
            place = (step.model, "inference", step.batch, step.tokens, one, _status(step, one))
            needs = (weight_bytes(of, trains=False), of.cache_bytes, None, inference_bytes(step, one))
            csv.append((*place, *needs))
    for pair in depths(results.records):
        of = pair.deep.whole
        for one in BOTH:
            place = (pair.deep.model, "training", pair.deep.batch, pair.deep.tokens, one, _status(pair.deep, one))
            csv.append((*place, weight_bytes(of, trains=True), 0, pair.layer_bytes(one), pair.total_bytes(one)))
    return csv


def _fits(pair: Depths, memory_bytes: int | None) -> list[str]:
    counts = [pair.fitting(one, seen_bytes(memory_bytes)) if memory_bytes else None for one in BOTH]
    return ["-" if count is None else f"{count} of {pair.deep.whole.layers}" for count in counts]


def _row(step: Step, sizes: Sequence[float | None], fits: Iterable[str]) -> Row:
    cells = [number(size / 1e9) if size else _status(step, one) for one, size in zip(BOTH, sizes, strict=True)]
    ratio = f"{number(sizes[0] / sizes[1])}×" if sizes[0] and sizes[1] else "-"
    return Row((f"{step.tokens:,}", *cells, ratio, *fits))


def _status(step: Step, variant: str) -> str:
    record = step.find(variant)
    return record.status.value if record else "-"
