"""How to use a variant: the lines that switch to it in Python and in diffusers, and what to install."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluxbench import variants
from fluxbench.analysis.model import OPERATION as MODEL_STEP
from fluxbench.operations.workload import Shape
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Block, Code, Fold, Paragraph
from fluxbench.report.usage import pip, pipeline
from fluxbench.report.usage.lines import TOKENS_FIRST, Lines, of_variant
from fluxbench.report.usage.pipeline import InDiffusers
from fluxbench.variants.forms import COPY, EAGER, Form

TRAINING = "attention_training"
USED = ("attention", MODEL_STEP, TRAINING)  # operations that these lines are for
DIFFUSERS = "0.42"  # whose backends the data names
_COPIES = "q, k, v = (x.contiguous() for x in (q, k, v))"
_MARK = "torch.compiler.cudagraph_mark_step_begin()  # before each call, which overwrites the output of the last one"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How to use one variant in its form. Lines are joined by line feeds; where there are none, it is empty."""

    variant: str
    label: str
    short: str  # the few lines of `code` that matter; of a compiled form all of them
    layout: str  # of the q, k and v that these take
    code: str  # defines attention(q, k, v), which takes and returns [batch, seq_len, heads, head_dim]
    diffusers: InDiffusers
    hub: str  # a backend of diffusers that loads another build of it from the Hugging Face hub; empty where none does
    install: str  # for a shell, with the measured versions; empty where the record names none
    install_note: str


def of(record: Record) -> Usage | None:
    """Return how to use a record's variant with what was measured; None for one that is not registered here.

    None for decoding and layers too, and for a mask or fewer heads of k and v, which the lines do not ask for. Of a
    model's step, which diffusers compiles, `code` is that of the eager form. Of training there are no lines for
    diffusers, and none at all where those of the variant have no gradients.
    """
    try:
        found = variants.find(record.variant)
    except ValueError:
        return None
    operation = record.workload.operation
    lines = of_variant(found.variant.name)
    if operation not in USED or lines is None or _asks_for_more(record.workload.shape):
        return None
    is_step, is_training = operation == MODEL_STEP, operation == TRAINING
    if is_training and not _has_gradients(lines, found.form):
        return None
    names = _names(record)
    install, install_note = pip.commands(lines, found.variant.packages, record.versions)
    is_compiled = found.form.compile_mode is not None and not is_step
    code = _code(lines, EAGER if is_step else found.form, names)
    short = "\n".join(filter(None, (_COPIES * (found.form == COPY), _filled(lines.short, names))))
    return Usage(
        variant=record.variant,
        label=variants.label(record.variant),
        short=code if is_compiled else short,
        layout=TOKENS_FIRST if is_compiled else lines.layout,
        code=code,
        diffusers=pipeline.NONE if is_training else pipeline.of(lines, found.form, code, record),
        hub="" if is_training else lines.hub,
        install=install,
        install_note=install_note,
    )


def blocks(records: Iterable[Record]) -> list[Block]:
    """Return a fold for each variant of these records, in their order, with all its lines.

    Of a model's step without those for PyTorch alone.
    """
    used = {record.variant: (record, usage) for record in records if (usage := of(record))}
    return [
        Fold(title(usage), tuple(_blocks(usage, is_step=record.workload.operation == MODEL_STEP)))
        for record, usage in used.values()
    ]


def title(usage: Usage) -> str:
    """Return the title of the fold with all lines of a variant."""
    return f"How to use {usage.label}"


def _blocks(usage: Usage, *, is_step: bool) -> list[Block]:
    found: list[Block] = [] if is_step else [Code(usage.code, f"PyTorch: {usage.label}")]
    if usage.diffusers.lines:
        found.append(Code(usage.diffusers.lines, f"diffusers {DIFFUSERS}: {usage.label}"))
    found += [Paragraph(usage.diffusers.note)] if usage.diffusers.note else []
    if usage.install:
        found.append(Code(usage.install, f"Install: {usage.label}"))
    return [*found, *([Paragraph(usage.install_note)] if usage.install_note else [])]


def _asks_for_more(shape: Shape) -> bool:
    """Whether an attention has a mask, or fewer heads of k and v; a model's step has none of these."""
    heads = shape.get("heads")
    return bool(shape.get("causal")) or shape.get("kv_heads", heads) != heads


def _has_gradients(lines: Lines, form: Form) -> bool:
    return lines.gradients and not (lines.operator and form.compile_mode)  # the operator has a forward pass alone


def _names(record: Record) -> dict[str, str]:
    """Return what stands for the names that depend on what was measured. Nothing of a record's own text is code."""
    own = "flash-attn-3" in record.versions or "fa3-fwd" not in record.versions
    published = pip.is_older(record.versions.get("sageattention", "1"), "2")
    return {
        "interface": "flash_attn_interface" if own else "fa3_fwd_interface",
        "sageattn": "sageattn" if published else "sageattn_qk_int8_pv_fp16_triton",
    }


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"${name}", value)
    return text


def _compiling(form: Form) -> str:
    if form.compile_mode == "default":
        return "attention = torch.compile(attention, dynamic=False)"
    return f'attention = torch.compile(attention, mode="{form.compile_mode}", dynamic=False)'


def _code(lines: Lines, form: Form, names: dict[str, str]) -> str:
    code = _filled(lines.code, names)
    if form == COPY:
        return code.replace("x.transpose(1, 2) for x", "x.transpose(1, 2).contiguous() for x")
    if form.compile_mode is None:
        return code
    head = "" if "import torch\n" in code else "import torch\n"
    marked = [_MARK] * (form.compile_mode == "max-autotune")
    compiled = [pipeline.OPERATOR] * lines.operator + [_compiling(form), *marked]
    return "\n".join((f"{head}{code}\n", *compiled))
