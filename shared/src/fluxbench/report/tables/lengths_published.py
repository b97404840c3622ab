"""Published sweeps over the length beside ours: ratios and exponents within each source, never times across cards."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fluxbench.analysis.audit.claim import Metric
from fluxbench.analysis.audit.judge import of_source
from fluxbench.analysis.call_memory import model_of
from fluxbench.analysis.groups import Group, groups, timing_of
from fluxbench.analysis.lengths import of_time
from fluxbench.analysis.ranking import order
from fluxbench.core.formatting import number, plus_minus
from fluxbench.operations.attention_memory import held
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Shape, Workload
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor, title
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.stats import power
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import label

SWEEP, GUIDE = "triton-sweep", "speed-guide"
_FLASH, _PLAIN = "flash attention, pytorch against triton", "naive attention by d_model"
_OPERATIONS = {"forward": "attention", "backward": "attention_backward", "forward+backward": "attention_training"}
# By dtype our Triton and our PyTorch: the sweep does not say whether its float32 products are in TF32.
_PAIRS = {
    "bfloat16": (("triton_flash", "torch_math"),),
    "float32": (("triton_flash", "torch_math"), ("triton_flash_tf32", "torch_math_tf32")),
}
_OPEN = 8192  # tokens of the rows that are not folded


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A published figure: ms or bytes; None where its source ran out of memory."""

    table: str
    implementation: str
    which: str  # pass, or of memory what takes it
    dtype: str
    tokens: int
    width: int
    value: float | None
    is_wrong: bool


def blocks(results: Results) -> list[Block]:
    """Return speedups of Triton, the ratio of passes and memory of plain attention, and exponents of both sources."""
    if not results.records:
        return [Paragraph("There are no records.")]
    of_records = groups(results.records)
    every = list(_speedups(of_records))
    shown = [row for figure, row in every if figure.tokens == _OPEN]
    return [
        _speedup_table(shown, f"at {_OPEN:,} tokens"),
        Fold(f"The same at all {len({figure.tokens for figure, _ in every})} lengths", [
            _speedup_table([row for _, row in every], "at all lengths")
        ]),
        _plain_table(of_records),
        _exponent_table(of_records),
    ]  # fmt: skip


def rows(results: Results) -> Rows:
    """Return one row per speedup of the sweep: theirs, and ours with its interval, empty where there is none."""
    of_records = groups(results.records)
    csv: Rows = [("pass", "dtype", "head_dim", "tokens", "their_speedup", "our_variant", "our_speedup", "low", "high")]
    for figure, speedup in _their_speedups():
        for pair in _PAIRS[figure.dtype]:
            ours = estimate_cells(_our_speedup(of_records, figure, pair))
            csv.append((figure.which, figure.dtype, figure.width, figure.tokens, speedup, pair[0], *ours))
    return csv


def _speedup_table(body: Sequence[Row], where: str) -> Table:
    heads = ("theirs", "ours", "ours in TF32")
    columns = [*(Column(head, left=True) for head in ("pass", "dtype", "head_dim", "tokens")), *map(Column, heads)]
    return Table(
        columns=columns,
        rows=body,
        caption=f"Triton over plain PyTorch: how many times as fast, {where}",
        notes=[
            "Ours is triton_flash over torch_math, in TF32 triton_flash_tf32 over torch_math_tf32; batch 1, one "
            "causal head, with the 95% interval of the difference. The source states neither its device nor batch, "
            "heads and mask, and not whether its float32 products are in TF32. OOM: theirs ran out of memory. -: no "
            "time here.",
        ],
    )


def _speedups(of_records: Sequence[Group]) -> Iterator[tuple[_Figure, Row]]:
    for figure, speedup in _their_speedups():
        ours = [factor(_our_speedup(of_records, figure, pair)) for pair in _PAIRS[figure.dtype]]
        theirs = "OOM" if speedup is None else f"{number(speedup)}×"
        cells = (figure.which, figure.dtype, f"{figure.width}", f"{figure.tokens:,}", theirs, *ours)
        yield figure, Row((*cells, "-") if len(ours) == 1 else cells)


def _their_speedups() -> Iterator[tuple[_Figure, float | None]]:
    """Yield Triton's figures of the sweep with PyTorch's time over theirs; None where PyTorch's is missing."""
    found = {_key(one): one for one in _figures(SWEEP, Metric.TIME) if one.table == _FLASH}
    for key, triton in found.items():
        if triton.implementation == "triton" and triton.value:
            plain = found.get(("pytorch", *key[1:]))
            yield triton, plain.value / triton.value if plain and plain.value else None


def _key(one: _Figure) -> tuple[str, str, str, int, int]:
    return one.implementation, one.which, one.dtype, one.tokens, one.width


def _our_speedup(of_records: Sequence[Group], figure: _Figure, pair: tuple[str, str]) -> Estimate | None:
    wanted: Shape = {
        "dtype": figure.dtype,
        "head_dim_qk": figure.width,
        "seq_len_k": figure.tokens,
        "batch": 1,
        "heads": 1,
    }
    for group, workload in _of_shape(of_records, _OPERATIONS[figure.which], wanted):
        one, other = (group.trusted(name, workload) for name in pair)
        if one and other:
            return order(group, workload).speedup(one, other)
    return None


def _of_shape(of_records: Sequence[Group], operation: str, wanted: Shape) -> Iterator[tuple[Group, Workload]]:
    """Yield the workloads of an operation whose shape has these sizes, each with its group."""
    for group in of_records:
        for workload in group.workloads if group.operation == operation else ():
            if wanted.items() <= dict(workload.shape).items():
                yield group, workload


def _plain_table(of_records: Sequence[Group]) -> Table:
    """Return plain attention: the backward pass over the forward pass, and memory before it over the model."""
    times = {(one.which, one.width, one.tokens): one for one in _figures(SWEEP, Metric.TIME) if one.table == _PLAIN}
    memory = {(one.width, one.tokens): one for one in _figures(SWEEP, Metric.BYTES) if one.table == _PLAIN}
    body = []
    for (_, width, tokens), forward in times.items():
        if forward.which != "forward":
            continue
        backward, bytes_ = times["backward", width, tokens], memory.get((width, tokens))
        theirs = [f"{number(backward.value / forward.value)}×" if backward.value and forward.value else "OOM"]
        theirs.append(
            f"{number(bytes_.value / _before_backward(width, tokens))}×" if bytes_ and bytes_.value else "OOM"
        )
        body.append(Row((f"{width}", f"{tokens:,}", theirs[0], _our_passes(of_records, width, tokens), theirs[1],
                         _our_memory(of_records, width, tokens))))  # fmt: skip
    heads = ("backward over\nforward: theirs", "ours", "memory over\nmodel: theirs", "ours")
    return Table(
        columns=[Column("d_model", left=True), Column("tokens", left=True), *map(Column, heads)],
        rows=body,
        caption="Plain attention, batch 8, one head, float32",
        notes=[
            "Memory is what is allocated before the backward pass, inputs and what the forward pass keeps, over the "
            "same by the model of the table of memory. Theirs is all that their process had allocated. The source "
            "states neither batch nor dtype; with batch 8 and float32 the model explains its memory. Ours is "
            "torch_math. OOM: out of memory. -: not measured here.",
        ],
    )


def _before_backward(width: int, tokens: int) -> int:
    """Return the bytes before a backward pass, by the model, without the output's gradient."""
    call = AttentionCall(
        batch=8, seq_len_q=tokens, seq_len_k=tokens, heads=1, kv_heads=1, head_dim_qk=width, head_dim_v=width,
        dtype="float32",
    )  # fmt: skip
    return held(call, fused=False, backward=False).inputs + held(call, fused=False, backward=True).kept


def _plain(of_records: Sequence[Group], operation: str, width: int, tokens: int) -> Record | None:
    wanted: Shape = {"dtype": "float32", "head_dim_qk": width, "seq_len_k": tokens, "batch": 8, "causal": False}
    return next((group.trusted("torch_math", at) for group, at in _of_shape(of_records, operation, wanted)), None)


def _our_passes(of_records: Sequence[Group], width: int, tokens: int) -> str:
    forward, backward = (_plain(of_records, name, width, tokens) for name in ("attention", "attention_backward"))
    return f"{number(timing_of(backward).median_ms / timing_of(forward).median_ms)}×" if forward and backward else "-"


def _our_memory(of_records: Sequence[Group], width: int, tokens: int) -> str:
    record = _plain(of_records, "attention_backward", width, tokens)
    model = model_of(record) if record else None
    if record is None or record.memory is None or model is None:
        return "-"
    return f"{number((record.memory.inputs_bytes + record.memory.kept_bytes) / (model.inputs + model.kept))}×"


def _exponent_table(of_records: Sequence[Group]) -> Table:
    body = [Row((source, what, plus_minus(found.value, (found.low, found.high)), wrong))
            for source, what, found, wrong in _their_exponents()]  # fmt: skip
    for group in of_records:
        exponents = [(name, one.power) for name in ("torch_math", "torch_native") if (one := of_time(group, name))]
        for name, own in exponents[:1]:
            body.append(Row(("ours", f"{title(group)}, {label(name)}", plus_minus(own.value, (own.low, own.high)), "")))
    columns = [Column(head, left=True) for head in ("source", "curve")]
    return Table(
        columns=[*columns, Column("exponent"), Column("audit", left=True)],
        rows=body,
        caption="Exponents of published curves, and of ours",
        notes=[
            "Of the lengths from 1/16 of the longest on. The interval follows from how far points differ from a "
            "straight line. Operations and scores of attention grow with the power 2, and a figure per token with 1 "
            "less. Figures that the audit finds wrong have that beside them.",
        ],
    )


def _their_exponents() -> Iterator[tuple[str, str, Estimate, str]]:
    """Yield source, curve and exponent of each published curve of three lengths or more."""
    for source in (GUIDE, SWEEP):
        curves: dict[tuple[str, ...], list[_Figure]] = {}
        for metric in (Metric.TIME, Metric.BYTES):
            for one in _figures(source, metric):
                unit = "time" if metric is Metric.TIME else "memory"
                wide = f"d {one.width}" if one.width else ""
                curves.setdefault((one.table, one.implementation, one.which, one.dtype, wide, unit), []).append(one)
        for key, curve in curves.items():
            points = sorted((one.tokens, one.value, one.is_wrong) for one in curve if one.value and one.tokens)
            points = [point for point in points if 16 * point[0] >= points[-1][0]]
            if len({tokens for tokens, _, _ in points}) >= power.LEAST:
                found = power.exponent([point[0] for point in points], [point[1] for point in points])
                wrong = sum(point[2] for point in points)
                marked = f"{wrong} of {len(points)} points wrong" if wrong else ""
                yield source, ", ".join(filter(None, (part.strip('"') for part in key))), found, marked


@functools.cache
def _figures(source: str, metric: Metric) -> Sequence[_Figure]:
    """Return a source's figures of one kind that have a length."""
    found = []
    for row in of_source(source):
        context = row.context
        claim = row.claims[0] if row.claims else None
        if not context.get("seq_len"):
            continue
        is_memory = claim.metric is Metric.BYTES if claim else "MB" in context.get("unit")
        if (claim and claim.metric is not metric) or (not claim and is_memory != (metric is Metric.BYTES)):
            continue
        found.append(
            _Figure(
                table=context.get("table"),
                implementation=context.get("implementation"),
                which=context.get("pass") or context.get("component"),
                dtype=context.get("dtype"),
                tokens=int(context.get("seq_len")),
                width=int(next(filter(None, context.others), 0)),  # d_model, which the audit does not name
                value=claim.value if claim else None,
                is_wrong=row.judgement.is_flagged,
            )
        )
    return found
