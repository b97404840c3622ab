"""What a whole model's step is spent on, before and after compiling: attention, matrix products, and the rest."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench.analysis.model import FORMS, Step, forms, steps
from fluxbench.core.formatting import number, percent
from fluxbench.operations.model_step import PARTS as PATTERNS
from fluxbench.records.schema import Cupti, Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows
from fluxbench.report.tables.layer_parts import parts_ms
from fluxbench.report.tables.model import ATTENTION

PARTS = (ATTENTION, *PATTERNS)
_WHOLE_MODEL = "flux1"  # of the other models only blocks are measured, some of which compute in float32 elsewhere
_HEADS = {"products": "matrix\nproducts", "rotary": "rotary\nembedding"}
_BY_KERNEL = (
    "By the profiler's names of kernels, of steps that the host launches after a rest: one or two of each, of a small "
    "model up to seven, and their median. A compiled kernel counts once, for the first part that it is named after: "
    "one that rotates q and k also normalizes them. Of a model that is not compiled, casts and concatenations of the "
    "rotary embedding are copies. Without a kernel the device waits for the host to launch the next one, which the "
    "profiler makes slower. Where kernels overlap, the parts are longer together than the step, and shares are of "
    "their sum."
)
_BY_OPERATOR = (
    "On a CPU the parts are the largest of torch's operators in one profiled step; smaller ones are not known."
)


def blocks(results: Results) -> list[Block]:
    """Return the parts of each step of a whole model: with the default kernel and with the fastest, by form."""
    found = _of_models(results)
    on_cpu = results.device.kind == "cpu"
    body = [row for step in found for row in _of_step(step, on_cpu=on_cpu)]
    if not body:
        words = "There are no profiled steps of a whole model."
        return [Paragraph(words if results.records else "There are no records.")]
    columns = [Column("model", left=True), Column("kernel", left=True), Column("profiled step\nms")]
    columns += [Column("without\na kernel, ms")] * (not on_cpu)
    columns += [Column(f"{_HEADS.get(part, part)}\nms") for part in PARTS]
    note = _BY_OPERATOR if on_cpu else _BY_KERNEL
    return [Table(columns, body, "Parts of one profiled step, with their shares of it.", [note])]


def rows(results: Results) -> Rows:
    """Return one row per step of a whole model and variant that passed, with the ms of each part."""
    on_cpu = results.device.kind == "cpu"
    csv: Rows = [("step", "variant", "form", "step_ms", "without_kernel_ms", *(f"{part}_ms" for part in PARTS))]
    for step in _of_models(results):
        for record in (record for form in FORMS for record in step.records(form)):
            if record.cupti:
                times = parts_ms(record)
                cells = (step.workload.name, record.variant, record.form, record.cupti.span_ms)
                idle = None if on_cpu else _idle_ms(record.cupti)
                csv.append((*cells, idle, *(times.get(part) for part in PARTS)))
    return csv


def _of_models(results: Results) -> list[Step]:
    return [step for step in steps(results.records) if step.workload.shape["model"] == _WHOLE_MODEL]


def _of_step(step: Step, *, on_cpu: bool) -> Iterator[Heading | Row]:
    profiled = [
        (form, record) for form in forms([step]) for record in _chosen(step, form) if record.cupti and parts_ms(record)
    ]
    if profiled:
        yield Heading(step.workload.name)
    for form, record in profiled:
        yield _row(FORMS[form], record, on_cpu=on_cpu)


def _chosen(step: Step, form: str) -> list[Record]:
    """Return the default of a form, and the fastest where that is another."""
    default, fastest = step.default(form), step.records(form)[0]
    return [default, *[fastest] * (fastest.variant != default.variant)] if default else [fastest]


def _row(form: str, record: Record, *, on_cpu: bool) -> Row:
    assert record.cupti is not None
    times, step_ms, idle_ms = parts_ms(record), record.cupti.span_ms, _idle_ms(record.cupti)
    whole = max(step_ms, sum(times.values()))
    cells = [f"{number(times[part])} ({percent(times[part] / whole, 0)})" if part in times else "-" for part in PARTS]
    idle = [] if on_cpu else [f"{number(idle_ms)} ({percent(idle_ms / whole, 0)})"]
    return Row((form, legend.name(record.variant), number(step_ms), *idle, *cells))


def _idle_ms(cupti: Cupti) -> float:
    """Return for how long a profiled step ran no kernel; where several ran at once, at least."""
    return max(0.0, cupti.span_ms - cupti.kernels_ms)
