"""An audit for a terminal and as JSON."""

from __future__ import annotations

import json
from typing import Any

from fluxbench.analysis.audit.finding import Judgement
from fluxbench.analysis.audit.judge import Audit, Judged
from fluxbench.core.output import one_line
from fluxbench.report.audit.words import sentence

_LONGEST = 200  # characters of what a row says of itself
_SHOWN = 200  # rows in a terminal
BINARY = "its MB or GB agree with the formula only as powers of two"


def text(audit: Audit) -> str:
    """Return the rows that are not fine, the counts, and why others are not decidable, as lines."""
    rows = [row for row in audit.rows if row.findings]
    lines = [f"line {row.line}: {label(row)}: {_judged(row)}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"and {len(rows) - _SHOWN:,} more rows; --json has them all")
    lines.append(f"{audit.table}: {summary(audit)}")
    lines += [f"{count:>6}  {shortened(why)}" for why, count in audit.missing().items()]
    if binary := sum(row.binary for row in audit.rows):
        lines.append(f"{binary:>6}  fine, but {BINARY}")
    return "\n".join(map(one_line, lines))


def summary(audit: Audit) -> str:
    """Return how many rows there are, and of each judgement: "3 rows: 1 impossible, ..."."""
    counts = ", ".join(f"{audit.count(judgement):,} {judgement}" for judgement in Judgement)
    return f"{len(audit.rows):,} row{'s' if len(audit.rows) != 1 else ''}: {counts}"


def to_json(audit: Audit) -> str:
    """Return counts, what is missing and where, and every row that is neither fine nor undecidable."""
    content = {
        "table": audit.table,
        "rows": len(audit.rows),
        "counts": {judgement.value: audit.count(judgement) for judgement in Judgement},
        "not_decidable": audit.missing(),
        "not_decidable_lines": audit.missing_lines(),
        "found": [_row(row) for row in audit.rows if row.findings],
    }
    return json.dumps(content, ensure_ascii=False)


def label(row: Judged) -> str:
    """Return a row's own words for what was measured, and its figures."""
    figures = ", ".join(claim.text for claim in row.claims)
    return shortened(": ".join(filter(None, (row.context.label, figures))))


def why(row: Judged) -> str:
    """Return the sentences of a row's findings, or what is missing."""
    sentences = [f"{finding.judgement}: {sentence(finding)}" for finding in row.findings]
    return ". ".join(sentences) or row.missing or (BINARY if row.binary else "")


def shortened(words: str) -> str:
    """Return words, cut where they are very long."""
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _judged(row: Judged) -> str:
    return "; ".join(f"{finding.judgement}: {_short_sentence(finding)}" for finding in row.findings)


def _short_sentence(finding: Any) -> str:
    words = sentence(finding)
    return words if len(words) <= 2 * _LONGEST else f"{words[: 2 * _LONGEST - 1]}…"


def _row(row: Judged) -> dict[str, object]:
    return {
        "line": row.line,
        "what": label(row),
        "judgement": row.judgement.value,
        "share_of_peak": row.share,
        "findings": [
            {
                "kind": finding.kind.value,
                "judgement": finding.judgement.value,
                "sentence": sentence(finding),
                "assumed": finding.assumed,
                "values": dict(finding.values),
                "lines": list(finding.lines),
            }
            for finding in row.findings
        ],
    }
