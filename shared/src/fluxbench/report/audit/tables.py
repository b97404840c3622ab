"""The audit as tables: an overview, the findings of a source, both counts of whole layers, and theirs beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.audit.context import Context
from fluxbench.analysis.audit.finding import BEYOND_CARD, CERTAIN, WRONG, Judgement, Kind
from fluxbench.analysis.audit.judge import Audit, Judged
from fluxbench.analysis.audit.ours import Ours
from fluxbench.analysis.audit.published import Source
from fluxbench.core.formatting import count, number, percent
from fluxbench.operations.words import describe
from fluxbench.report.audit.text import why
from fluxbench.report.audit.words import sentence
from fluxbench.report.blocks import Block, Bullets, Column, Facts, Fold, Heading, Paragraph, Row, Table

Rows = list[Sequence[object]]  # of a CSV, the header first
_SIZES = {"batch": "batch", "seq_len": "length", "heads": "heads", "kv_heads": "key heads", "head_dim": "head_dim"}
_OF_ALL = Column("rows"), *(Column(judgement.value) for judgement in Judgement)
_BOTH = {"attention alone": Kind.TOO_FAST, "with projections": Kind.TOO_FAST_LAYER}


def overview(audit: Audit, sources: Sequence[str]) -> list[Block]:
    """Return how many rows of each source are what, and how many are wrong under which assumption."""
    rows = [_counts(name, _of(audit, name)) for name in sources]
    total = _counts("all", list(audit.rows))
    table = Table(columns=(Column("source", left=True), *_OF_ALL), rows=[*rows, total])
    items = [(_under_assumption(name, assumed, of), "") for (name, assumed), of in _assumptions(audit).items()]
    return [
        table,
        *([Bullets("Wrong if something holds that the source does not state:", items)] if items else []),
    ]


def of_source(audit: Audit, name: str, source: Source) -> list[Block]:
    """Return what a source says of its method, its rows that are not fine, and what others lack."""
    rows = _of(audit, name)
    facts = [("published", source.published_as), ("card", source.gpu or "not stated")]
    facts += [("software", source.software or "not stated"), ("method", source.method)]
    blocks: list[Block] = [Facts(facts), Paragraph("Caveats: " + " ".join(source.caveats))]
    blocks.append(Table(columns=(Column("source", left=True), *_OF_ALL), rows=[_counts(name, rows)]))
    if found := [row for row in rows if row.findings]:
        columns = (
            Column("what", left=True),
            Column("figure"),
            Column("judgement", left=True),
            Column("why", left=True),
        )
        blocks.append(Table(columns=columns, rows=list(_found(found))))
    missing: dict[str, int] = {}
    for row in rows:
        if row.judgement is Judgement.UNDECIDABLE:
            missing[row.missing] = missing.get(row.missing, 0) + 1
    if missing:
        items = [(f"{count:,} row{'s' * (count > 1)}: {reason}", "") for reason, count in missing.items()]
        blocks.append(Bullets("Not decidable, and what is missing:", items))
    if binary := sum(row.binary for row in rows):
        blocks.append(Paragraph(f"{binary} figures in MB agree with their formula only if a MB is 2**20 bytes."))
    return blocks


def layers(audit: Audit) -> list[Block]:
    """Return by implementation and pass how many whole layers exceed the card, by both counts of operations."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for row in audit.rows:
        if row.context.get("layer") and row.claims and row.share is not None:
            groups.setdefault((row.context.get("implementation"), row.context.get("pass")), []).append(row)
    columns = [Column("implementation", left=True), Column("pass", left=True), Column("layers")]
    columns += [Column(f"too fast:\n{words}") for words in _BOTH]
    columns += [Column(f"{words},\neven if causal") for words in _BOTH]
    columns.append(Column("backward shorter\nthan forward"))
    rows = []
    for (implementation, passes), of_group in groups.items():
        cells = [str(_exceeding(of_group, kind)) for kind in _BOTH.values()]
        cells += [str(_exceeding(of_group, kind, even_if_causal=True)) for kind in _BOTH.values()]
        shorter = sum(_has(row, Kind.BACKWARD_SHORTER) for row in of_group) if passes == "backward" else ""
        rows.append(Row((implementation, passes, str(len(of_group)), *cells, str(shorter))))
    return [Table(columns=columns, rows=rows)]


def beside_ours(audit: Audit, ours: Ours) -> list[Block]:
    """Return the largest share of the peak by source, pass and head_dim, beside those that were measured here."""
    largest: dict[tuple[str, str, str], Judged] = {}
    for row in audit.rows:
        context = row.context
        if row.share is None or context.is_narrow or not context.get("head_dim") or row.judgement in WRONG:
            continue
        key = (context.get("source"), context.get("pass"), context.get("head_dim"))
        if key not in largest or row.share > (largest[key].share or 0):
            largest[key] = row
    rows = [
        Row(
            (
                *key,
                row.context.get("implementation"),
                row.context.gpu,
                percent(row.share or 0),
                *_ours(row.context, ours),
            )
        )
        for key, row in sorted(largest.items(), key=lambda item: (item[0][0], item[0][1], int(item[0][2])))
    ]
    heads = ("source", "pass", "head_dim", "their largest", "card")
    columns = [*(Column(head, left=True) for head in heads), Column("share of\ntheir peak")]
    columns += [Column("same shape,\nhere"), Column("largest here,\nany shape"), Column("here", left=True)]
    return [Table(columns=columns, rows=rows), _measured_here(audit, ours)]


def rows(audit: Audit) -> Rows:
    """Return every row with its judgement, for a CSV."""
    header = ("line", "source", "table", "what", "figure", "judgement", "share_of_peak", "why")
    return [header, *(_csv(row) for row in audit.rows)]


def _csv(row: Judged) -> Sequence[object]:
    context = row.context
    share = None if row.share is None else f"{row.share:.6g}"
    return (
        *(row.line, context.get("source"), context.get("table"), _configuration(context)),
        *(", ".join(claim.text for claim in row.claims), row.judgement.value, share, why(row)),
    )


def _assumptions(audit: Audit) -> dict[tuple[str, str], list[Judged]]:
    """Return the rows with a finding that rests on an assumption, by source and assumption."""
    found: dict[tuple[str, str], list[Judged]] = {}
    for row in audit.rows:
        for assumed in dict.fromkeys(finding.assumed for finding in row.findings if finding.assumed):
            found.setdefault((row.context.get("source"), assumed), []).append(row)
    return found


def _under_assumption(source: str, assumed: str, rows: Sequence[Judged]) -> str:
    """Return how many rows are wrong if an assumption holds, and how many of them are without it."""
    kinds = {finding.kind for row in rows for finding in row.findings if finding.assumed == assumed}
    wrong = "impossible" if kinds <= BEYOND_CARD else "contradictory"
    without = sum(row.judgement in CERTAIN for row in rows)
    besides = f"; {without} of them {'are' if without > 1 else 'is'} wrong without it too" if without else ""
    return f"{source}: {count(len(rows), 'row')} {'are' if len(rows) > 1 else 'is'} {wrong} if {assumed}{besides}"


def _of(audit: Audit, source: str) -> list[Judged]:
    return [row for row in audit.rows if row.context.get("source") == source]


def _counts(name: str, rows: Sequence[Judged]) -> Row:
    counts = (sum(row.judgement is judgement for row in rows) for judgement in Judgement)
    return Row((name, f"{len(rows):,}", *(f"{count:,}" for count in counts)))


def _found(found: Sequence[Judged]) -> Iterator[Row | Heading]:
    table = None
    for row in found:
        if row.context.get("table") != table:
            table = row.context.get("table")
            yield Heading(table)
        reasons = "; ".join(dict.fromkeys(sentence(finding) for finding in row.findings))
        figures = ", ".join(claim.text for claim in row.claims)
        is_wrong = row.judgement in CERTAIN
        yield Row((_configuration(row.context), figures, row.judgement.value, reasons), failed=is_wrong)


def _configuration(context: Context) -> str:
    named = [context.get(name) for name in ("implementation", "pass", "dtype", "component") if context.get(name)]
    sizes = [f"{words} {context.get(name)}" for name, words in _SIZES.items() if _shows(context, name)]
    over = [f"over {context.get('over')}"] if context.get("over") else []
    return ", ".join([*named, *over, *sizes])


def _shows(context: Context, name: str) -> bool:
    return bool(context.get(name)) and not (name == "kv_heads" and context.get(name) == context.get("heads"))


def _has(row: Judged, kind: Kind, *, even_if_causal: bool = False) -> bool:
    return any(
        finding.kind is kind and not (even_if_causal and finding.values.get("unless_causal"))
        for finding in row.findings
    )


def _exceeding(rows: Sequence[Judged], kind: Kind, *, even_if_causal: bool = False) -> int:
    """Return how many rows have a finding of a kind."""
    return sum(_has(row, kind, even_if_causal=even_if_causal) for row in rows)


def _ours(context: Context, ours: Ours) -> tuple[str, str, str]:
    same, best = ours.at_shape_of(context), ours.best(context.get("pass"))
    if best is None:
        return "not measured", "not measured", ""
    shown = f"{best.variant}, {best.device.removeprefix('NVIDIA ')}, {best.regime}"
    return percent(same.share) if same else "not measured", percent(best.share), shown


def _measured_here(audit: Audit, ours: Ours) -> Block:
    """Return a fold with the shapes of theirs that were measured here, or a sentence where there are none."""
    both = [(row, same) for row in audit.rows if row.share is not None and (same := ours.at_shape_of(row.context))]
    if both:
        body = [
            Row(
                (
                    row.context.get("source"), _configuration(row.context), percent(row.share or 0),
                    percent(same.share), same.variant, number(same.ms),
                )
            )
            for row, same in both
        ]  # fmt: skip
        columns = [Column("source", left=True), Column("theirs", left=True), Column("share of\ntheir peak")]
        columns += [Column("here"), Column("by", left=True), Column("ms")]
        are = "are" if len(both) > 1 else "is"
        return Fold(f"{len(both):,} of their figures {are} of a shape that was measured here", [Table(columns, body)])
    shapes = sorted({describe(one.workload) for one in ours.measured})
    here = f" Here: {'; '.join(shapes)}." if shapes else ""
    return Paragraph(
        f"None of their shapes was measured here, so only shares of the peak can stand beside one another.{here}"
    )
