"""The published table of attention layers beside ours: speedups over PyTorch within each source, never across cards."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from fluxbench.analysis.audit.claim import Metric
from fluxbench.analysis.audit.finding import FLAGGED
from fluxbench.analysis.audit.judge import Judged, of_source
from fluxbench.analysis.layers import BACKWARD, EAGER, FORWARD, TOTAL, Layer, layers
from fluxbench.core.formatting import number
from fluxbench.operations import layer_sets, layer_shape
from fluxbench.operations.words import KIND
from fluxbench.operations.workload import Workload
from fluxbench.report.audit.text import why
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import label

SOURCE = "attention-layers"
PYTORCH, TRITON, FLASH = "pytorch", "triton", "flash"  # the source's columns
OURS = {TRITON: "triton_flash", FLASH: "flash_attn_2"}  # the same of ours; the source does not say which flash
_KINDS = {
    "Multi-Head Self-Attention (Fused QKV)": layer_shape.FUSED,
    "Multi-Head Attention (Separate Q/K/V)": layer_shape.SEPARATE,
    "Grouped Query Attention (GQA)": layer_shape.GROUPED,
    "Multi-Query Attention (MQA)": layer_shape.MULTI_QUERY,
    "Multi-Head Latent Attention": layer_shape.LATENT,
}
_PASSES = {"forward": FORWARD, "backward": BACKWARD, "forward+backward": TOTAL}
_SIZES = ("batch", "seq_len", "heads", "kv_heads", "head_dim")
_Key = tuple[str, str]  # the name of a layer, and the pass


def blocks(results: Results) -> list[Block]:
    """Return a row for each of the source's 45 configurations, and why its wrong figures are wrong."""
    if not results.records:
        return [Paragraph("There are no records.")]
    theirs, ours = _theirs(), {layer.name: layer for layer in layers(results.records)}
    body: list[Heading | Row] = []
    for kind, configurations in _configurations().items():
        body.append(Heading(KIND[kind]))
        for workload in configurations:
            for which in _PASSES.values():
                body.append(_row(workload, which, theirs, ours.get(workload.group)))
    marked = [judged for row in theirs.values() for judged in row.values() if judged.judgement.is_flagged]
    counts = ", ".join(f"{sum(one.judgement is mark for one in marked)} {mark}" for mark in FLAGGED)
    heads = [f"theirs: {other}\nover PyTorch" for other in ("Triton", "Flash")]
    heads += [f"ours: {label(variant)}\nover {label(EAGER)}" for variant in OURS.values()]
    columns = [Column("layer", left=True), Column("pass", left=True), *map(Column, heads)]
    table = Table(
        columns=columns,
        rows=body,
        caption=f"Speed over PyTorch's unfused attention: theirs on {_card(theirs)}, ours on {results.device.name}.",
        notes=[
            f"Of their {sum(map(len, theirs.values()))} times the audit of published figures finds {counts}. A speedup "
            "by such a time means nothing, and has the judgement beside it.",
            "Ours have 95% intervals; -: no time here.",
        ],
    )
    reasons = [Row((*_figure(judged), why(judged))) for judged in marked]
    of_reasons = Table([Column(head, left=True) for head in ("layer", "figure", "why")], reasons)
    return [table, Fold(f"Why {len(marked)} of their times are wrong", [of_reasons])]


def rows(results: Results) -> Rows:
    """Return one row per configuration and pass of the source: its times, their judgements, and our speedups."""
    ours = {layer.name: layer for layer in layers(results.records)}
    header = [
        "layer",
        "pass",
        *(f"their_{one}_{what}" for one in (PYTORCH, TRITON, FLASH) for what in ("ms", "judgement")),
    ]
    header += [f"our_{one}_speedup{end}" for one in OURS for end in ("", "_low", "_high")]
    csv: Rows = [header]
    for (layer, which), row in _theirs().items():
        cells: list[object] = [layer, which]
        for one in (PYTORCH, TRITON, FLASH):
            cells += [row[one].claims[0].value, row[one].judgement.value]
        for variant in OURS.values():
            cells += estimate_cells(_speedup(ours.get(layer), variant, which))
        csv.append(cells)
    return csv


@functools.cache
def _theirs() -> Mapping[_Key, Mapping[str, Judged]]:
    """Return the source's rows by layer and pass, and by implementation, with the judgements of the audit."""
    names = {_sizes(workload): workload.group for group in _configurations().values() for workload in group}
    found: dict[_Key, dict[str, Judged]] = {}
    for row in of_source(SOURCE):
        context = row.context
        is_layer = context.get("table") in _KINDS  # not its summary
        if is_layer and row.claims[0].metric is Metric.TIME:
            sizes = (_KINDS[context.get("table")], *(int(context.get(size)) for size in _SIZES))
            key = names[*sizes, int(context.get("latent_dim") or 0)], _PASSES[context.get("pass")]
            found.setdefault(key, {})[context.get("implementation")] = row
    return found


@functools.cache
def _configurations() -> Mapping[str, tuple[Workload, ...]]:
    """Return the forward workloads of the source's layers by kind."""
    forward = [one for one in layer_sets.sets()["layers-published"] if one.operation == "layer"]
    return {kind: tuple(one for one in forward if one.shape["kind"] == kind) for kind in _KINDS.values()}


def _sizes(workload: Workload) -> tuple[object, ...]:
    shape = workload.shape
    return shape["kind"], *(shape[size] for size in _SIZES), shape.get("latent_dim", 0)


def _row(workload: Workload, which: str, theirs: Mapping[_Key, Mapping[str, Judged]], ours: Layer | None) -> Row:
    of_source = theirs[workload.group, which]
    cells = [_their_speedup(of_source, other) for other in (TRITON, FLASH)]
    return Row((workload.group, which, *cells, *_our_speedups(ours, which)))


def _their_speedup(row: Mapping[str, Judged], other: str) -> str:
    speedup = row[PYTORCH].claims[0].value / row[other].claims[0].value
    wrong = next((one.judgement for one in (row[other], row[PYTORCH]) if one.judgement.is_flagged), None)
    return f"{number(speedup)}×" + (f" {wrong}" if wrong else "")


def _our_speedups(layer: Layer | None, which: str) -> Iterator[str]:
    for variant in OURS.values():
        yield factor(_speedup(layer, variant, which))


def _speedup(layer: Layer | None, variant: str, which: str) -> Estimate | None:
    return layer.speedup(variant, EAGER, which) if layer else None


def _figure(judged: Judged) -> tuple[str, str]:
    context = judged.context
    sizes = "x".join(context.get(size) for size in ("batch", "seq_len"))
    heads = f"{context.get('heads')}/{context.get('kv_heads')} heads of {context.get('head_dim')}"
    what = f"{KIND[_KINDS[context.get('table')]]}, {sizes}, {heads}"
    return what, f"{context.get('implementation')} {context.get('pass')}, {judged.claims[0].text}"


def _card(theirs: Mapping[_Key, Mapping[str, Judged]]) -> str:
    return next(iter(theirs.values()))[PYTORCH].context.gpu
