"""How to use a variant: the lines that switch to it in Python and in diffusers, and what to install."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluxbench import variants
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Block, Code, Fold, Paragraph
from fluxbench.report.usage import pip
from fluxbench.report.usage.lines import TOKENS_FIRST, Lines, of_variant
from fluxbench.variants.forms import COPY, Form

USED = ("attention",)  # operations that these lines are for
DIFFUSERS = "0.42"  # whose backends the data names
_COPIES = "q, k, v = (x.contiguous() for x in (q, k, v))"
_COMPILES_ALL = "This compiles the whole transformer; we compiled the attention alone."
_OPERATOR = """\
attention = torch.library.custom_op(
    "mine::attention", attention, mutates_args=(), schema="(Tensor q, Tensor k, Tensor v) -> Tensor"
)
attention.register_fake(lambda q, k, v: q.new_empty(q.shape))"""
_MARK = "torch.compiler.cudagraph_mark_step_begin()  # before each call, which overwrites the output of the last one"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How to use one variant in its form. Lines are joined by line feeds; where there are none, it is empty."""

    variant: str
    label: str
    short: str  # the few lines of `code` that matter; of a compiled form all of them
    layout: str  # of the q, k and v that these take
    code: str  # defines attention(q, k, v), which takes and returns [batch, seq_len, heads, head_dim]
    diffusers: str  # with `pipe`, a pipeline; empty where diffusers has no backend for it
    diffusers_note: str  # what these lines do otherwise than what was measured, or why there are none
    install: str  # for a shell, with the measured versions; empty where the record names none
    install_note: str


def of(record: Record) -> Usage | None:
    """Return how to use a record's variant with what was measured; None for one that is not registered here.

    None for training, decoding and layers too: these lines are for one forward pass, as a pipeline calls it.
    """
    try:
        found = variants.find(record.variant)
    except ValueError:
        return None
    if record.workload.operation not in USED:
        return None
    lines = of_variant(found.variant.name)
    if lines is None:
        return None
    names = _names(record)
    diffusers, note = _in_diffusers(lines, found.form, record)
    install, install_note = pip.commands(lines, found.variant.packages, record.versions)
    code, is_compiled = _code(lines, found.form, names), found.form.compile_mode is not None
    short = "\n".join(filter(None, (_COPIES * (found.form == COPY), _filled(lines.short, names))))
    return Usage(
        variant=record.variant,
        label=variants.label(record.variant),
        short=code if is_compiled else short,
        layout=TOKENS_FIRST if is_compiled else lines.layout,
        code=code,
        diffusers=diffusers,
        diffusers_note=note,
        install=install,
        install_note=install_note,
    )


def blocks(records: Iterable[Record]) -> list[Block]:
    """Return a fold for each variant of these records, in their order, with all its lines."""
    used = {record.variant: usage for record in records if (usage := of(record))}
    return [Fold(f"How to use {usage.label}", tuple(_blocks(usage))) for usage in used.values()]


def _blocks(usage: Usage) -> list[Block]:
    found: list[Block] = [Code(usage.code, f"PyTorch: {usage.label}")]
    if usage.diffusers:
        found.append(Code(usage.diffusers, f"diffusers {DIFFUSERS}: {usage.label}"))
    found += [Paragraph(usage.diffusers_note)] if usage.diffusers_note else []
    if usage.install:
        found.append(Code(usage.install, f"Install: {usage.label}"))
    return [*found, *([Paragraph(usage.install_note)] if usage.install_note else [])]


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
    compiled = [_OPERATOR] * lines.operator + [_compiling(form)] + [_MARK] * (form.compile_mode == "max-autotune")
    return "\n".join((f"{head}{code}\n", *compiled))


def _in_diffusers(lines: Lines, form: Form, record: Record) -> tuple[str, str]:
    """Return the lines and what to say of them."""
    backend, note = lines.backend, lines.note
    if form == COPY:
        backend, note = lines.copy_backend if lines.copy_backend is not None else backend, lines.copy_note
    if backend and lines.needs and not pip.has(record.versions, lines.needs):
        return "", lines.otherwise
    notes = [note]
    if form.compile_mode:
        notes += [_COMPILES_ALL] * bool(backend) + [lines.compiled]
    return _set_backend(lines, backend, form) if backend else "", " ".join(filter(None, notes))


def _set_backend(lines: Lines, backend: str, form: Form) -> str:
    after = lines.after
    if form.compile_mode:
        mode = "" if form.compile_mode == "default" else f'mode="{form.compile_mode}", '
        after = f"pipe.transformer.compile({mode}dynamic=False)"
    return "\n".join(filter(None, (lines.before, f'pipe.transformer.set_attention_backend("{backend}")', after)))
