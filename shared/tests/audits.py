"""Small tables of published figures, and what the audit says of them."""

from __future__ import annotations

from pathlib import Path

from fluxbench.analysis.audit.finding import Kind
from fluxbench.analysis.audit.judge import Audit, Judged, audit
from fluxbench.report.audit.words import sentence

HEADER = "gpu,implementation,pass,dtype,batch,seq_len,heads,kv_heads,head_dim,value,unit"
ROW = "H200,x,forward,bfloat16,1,4608,24,24,128"
TIDY = "source,table,gpu,implementation,over,pass,batch,seq_len,heads,kv_heads,head_dim,component,per,model,value,unit"
NOT_STATED = "; this holds if the call was not causal, which is not stated"
CONDITIONAL = "wrong under an assumption"


def audited(folder: Path, *rows: str, header: str = HEADER, **options: object) -> Audit:
    (folder / "times.csv").write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return audit(folder / "times.csv", **options)  # type: ignore[arg-type]


def tidy(folder: Path, *rows: dict[str, object], **common: object) -> Audit:
    """Audit rows of a document: the fields of `TIDY` that each gives, beside those common to all."""
    shared = {"source": "s", "table": "t", "gpu": "H200", "pass": "forward", "batch": 1, "seq_len": 4608, "heads": 24}
    shared |= {"kv_heads": 24, "head_dim": 128, "unit": "ms", "implementation": "x", **common}
    lines = (",".join(str({**shared, **row}.get(name, "")) for name in TIDY.split(",")) for row in rows)
    return audited(folder, *lines, header=TIDY)


def judgements(table: Audit) -> list[str]:
    return [row.judgement.value for row in table.rows]


def found(table: Audit, kind: Kind) -> list[Judged]:
    return [row for row in table.rows if any(finding.kind is kind for finding in row.findings)]


def only_sentence(table: Audit) -> str:
    [finding] = [finding for row in table.rows for finding in row.findings]
    return sentence(finding)
