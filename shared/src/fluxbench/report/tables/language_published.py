"""Published figures of language models beside ours: ratios within each source, never times across cards."""

from __future__ import annotations

from fluxbench.analysis.audit.judge import Judged
from fluxbench.analysis.language_published import (
    GUIDE,
    SWEEP,
    Pair,
    figures,
    ours,
    ours_profiled,
    pairs,
    profiled,
)
from fluxbench.core.formatting import number
from fluxbench.report.audit.text import why
from fluxbench.report.blocks import Block, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import factor
from fluxbench.report.tables import Rows, estimate_cells
from fluxbench.stats.intervals import Estimate

_NOTES = (
    "Of throughput: fused over standard attention of the same source; of memory, which is of all layers: standard "
    "over fused, ours of training without the logits that the table of memory leaves out. Their standard may not be "
    "ours, torch_eager. A figure that the audit of published figures finds doubtful or wrong has its judgement beside "
    "it.",
    "The guide states no batch for GPT-2, GPT-J and GPT-NeoX, nor whether their tokens/s are of training; ours are of "
    "training, batch 4. Of generation it states none either; ours are of batch 1.",
    "The sweep states neither batch, context nor attention of its models. Each of its times is over its own forward "
    "pass of sm, each of ours over ours of the same length: standard attention, the least and the largest over the "
    "contexts at which neither time is launch-bound. Its forward + backward is beside our step, which has the "
    "optimizer too.",
)


def blocks(results: Results) -> list[Block]:
    """Return a row for each of both sources' rows of language models, and why figures are doubtful or wrong."""
    if not results.records:
        return [Paragraph("There are no records.")]
    body: list[Heading | Row] = []
    for table in dict.fromkeys(pair.table for pair in pairs()):
        body.append(Heading(f"Guide: {table}"))
        for pair in (pair for pair in pairs() if pair.table == table):
            found = ours(results.records, pair)
            body.append(Row((_place(pair), _theirs(pair), _text(found.ratio), found.of)))
    body.append(Heading("Sweep: model profile, over the forward pass of sm"))
    for judged, ratio in profiled():
        ratios, of = ours_profiled(results.records, judged)
        ends = dict.fromkeys(map(number, (min(ratios), max(ratios)))) if ratios else ()
        spans = f"{' to '.join(ends)}×" if ends else "-"
        body.append(Row((_name(judged), f"{number(ratio)}×{_mark(judged)}", spans, of)))
    columns = [Column("batch x tokens", left=True), Column("theirs"), Column("ours"), Column("ours is of", left=True)]
    wrong = [judged for judged in figures() if judged.judgement.is_flagged]
    reasons = [Row((judged.context.get("table").strip('"'), _figure(judged), why(judged))) for judged in wrong]
    of_reasons = Table([Column(head, left=True) for head in ("table", "figure", "why")], reasons)
    return [
        Table(columns, body, "What fused attention gains, theirs and ours", _NOTES),
        Fold(f"Why {len(wrong)} of their {len(figures())} figures are doubtful or wrong", [of_reasons]),
    ]


def rows(results: Results) -> Rows:
    """Return one row for each row of the sources, with both ratios."""
    csv: Rows = [("source", "table", "row", "their_ratio", "our_ratio", "our_ratio_low", "our_ratio_high", "of")]
    for pair in pairs():
        found = ours(results.records, pair)
        place = (GUIDE, pair.table, f"{pair.batch or '-'}x{pair.tokens}")
        csv.append((*place, pair.ratio, *estimate_cells(found.ratio), found.of))
    for judged, ratio in profiled():
        ratios, of = ours_profiled(results.records, judged)
        ends = (None, min(ratios), max(ratios)) if ratios else (None,) * 3
        csv.append((SWEEP, judged.context.get("table"), _name(judged), ratio, *ends, of))
    return csv


def _place(pair: Pair) -> str:
    return f"{pair.batch or '-'} x {pair.tokens:,}"


def _theirs(pair: Pair) -> str:
    """Return the ratio with the judgement of a wrong figure, or that a figure is out of memory."""
    if pair.ratio is None:
        return "standard out of memory" + (f", fused{mark}" if (mark := _mark(pair.fused)) else "")
    return f"{number(pair.ratio)}×" + next(filter(None, map(_mark, (pair.fused, pair.standard))), "")


def _mark(judged: Judged) -> str:
    return f" {judged.judgement.value}" if judged.judgement.is_flagged else ""


def _name(judged: Judged) -> str:
    table = judged.context.get("table").strip('"').removeprefix("model profile, ")
    return f"{judged.context.get('implementation')}, {table}: {judged.context.get('pass')}"


def _figure(judged: Judged) -> str:
    context = judged.context
    place = "x".join(filter(None, (context.get("batch"), context.get("seq_len"))))
    facts = (context.get("implementation"), context.get("pass"), place, judged.claims[0].text)
    return ", ".join(filter(None, facts))


def _text(ratio: Estimate | None) -> str:
    """Return our ratio; that of memory has no interval."""
    return f"{number(ratio.value)}×" if ratio and ratio.low == ratio.high else factor(ratio)
