"""The lines for diffusers: they set a backend that it has, or add one for a kernel that it has none for."""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.analysis.model import OPERATION as MODEL_STEP
from fluxbench.records.schema import Record
from fluxbench.report.usage import pip
from fluxbench.report.usage.lines import TOKENS_FIRST, Lines
from fluxbench.variants.forms import COMPILE_BLOCKS, COMPILE_MAX_AUTOTUNE, COPY, EAGER, Form

_COMPILES_ALL = "This compiles the whole transformer; we compiled the attention alone."
_ADDED = "These lines add a backend that calls it. Names with an underscore are private to diffusers and may change."
SET = 'pipe.transformer.set_attention_backend("{}")'
OPERATOR = """\
attention = torch.library.custom_op(
    "mine::attention", attention, mutates_args=(), schema="(Tensor q, Tensor k, Tensor v) -> Tensor"
)
attention.register_fake(lambda q, k, v: q.new_empty(q.shape))"""
_ADD = """\
from diffusers.models import attention_dispatch as diffusers

def attend(query, key, value, attn_mask=None):
    if attn_mask is not None:
        raise NotImplementedError("this kernel takes no mask")
    return attention(query, key, value)

names = diffusers.AttentionBackendName
mine = str.__new__(names, "mine")  # no public call adds a backend
mine._name_, mine._value_ = "MINE", "mine"
names._member_map_["MINE"] = names._value2member_map_["mine"] = mine
diffusers._AttentionBackendRegistry.register(mine)(attend)"""


@dataclass(frozen=True, kw_only=True)
class InDiffusers:
    """How a pipeline of diffusers calls a variant in its form."""

    backend: str  # that diffusers has; empty where it has none for this build
    lines: str  # with `pipe`, a pipeline; empty where there are none
    note: str  # what the lines do otherwise than what was measured, or why diffusers has no backend
    is_as_measured: bool  # of a backend that diffusers has: whether it calls what was measured


NONE = InDiffusers(backend="", lines="", note="", is_as_measured=False)


def of(lines: Lines, form: Form, code: str, record: Record) -> InDiffusers:
    """Return the lines for diffusers of a record's variant, whose `code` defines `attention` in its form.

    Of a model's step it is not compiled in any form: diffusers compiles the model.
    """
    is_step = record.workload.operation == MODEL_STEP
    backend, note = lines.backend, lines.note
    if form == COPY:
        backend, note = lines.copy_backend if lines.copy_backend is not None else backend, lines.copy_note
    if backend and lines.needs and not pip.has(record.versions, lines.needs):
        backend, note = "", lines.otherwise
    compiles_itself = is_step and form == EAGER and bool(lines.after)  # it was registered, compiled by itself
    if not backend or compiles_itself:
        added = _added(lines, form, code, is_step=is_step)
        return InDiffusers(
            backend="",
            lines=added,
            note=" ".join(filter(None, (note, _ADDED * bool(added) or lines.compiled * bool(form.compile_mode)))),
            is_as_measured=False,
        )
    notes = [note] if not is_step else []  # a step is measured as diffusers calls it
    if form.compile_mode:
        notes += [_COMPILES_ALL] * (not is_step) + [lines.compiled]
    after = _compiling(form) or lines.after
    return InDiffusers(
        backend=backend,
        lines="\n".join(filter(None, (lines.before, SET.format(backend), after))),
        note=" ".join(filter(None, notes)),
        is_as_measured=is_step or form == COPY or not (note or after),
    )


def _added(lines: Lines, form: Form, code: str, *, is_step: bool) -> str:
    """Return the lines that add a backend, as `operations/models/dispatch.py` does where a step is measured.

    None for code of one shape, and for outputs that a CUDA graph or a compiled model would need in another layout.
    """
    is_compiled_model = is_step and form.compile_mode is not None
    is_in_other_layout = is_compiled_model and lines.layout != TOKENS_FIRST
    if lines.one_shape or form == COMPILE_MAX_AUTOTUNE or is_in_other_layout:
        return ""
    head = "import torch\n" * (is_compiled_model and "import torch\n" not in code) + code
    operator, compiling = ("\n" + OPERATOR, _compiling(form)) if is_compiled_model else ("", "")
    return "\n".join(filter(None, (f"{head}\n{operator}".rstrip(), f"\n{_ADD}", SET.format("mine"), compiling)))


def _compiling(form: Form) -> str:
    """Return the line that compiles the model in a form; empty where it is not compiled."""
    if form.compile_mode is None:
        return ""
    if form == COMPILE_BLOCKS:
        return "pipe.transformer.compile_repeated_blocks(fullgraph=True, dynamic=False)"
    mode = "" if form.compile_mode == "default" else f'mode="{form.compile_mode}", '
    return f"pipe.transformer.compile({mode}dynamic=False)"
