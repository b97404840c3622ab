"""Compiled forms that are measurably slower than the kernel as it is."""

from __future__ import annotations

from fluxbench.analysis.findings.evidence import EXPLAINS
from fluxbench.analysis.findings.finding import Case, Finding, Kind, Part, finding
from fluxbench.analysis.findings.forms import Pair, slower_forms
from fluxbench.analysis.groups import Group
from fluxbench.records.schema import Record
from fluxbench.variants.forms import COMPILE_DEFAULT, COMPILE_MAX_AUTOTUNE


def find(group: Group, level: float) -> list[Finding]:
    """Return the slower compiled forms, a finding for each mode of compiling and each cause."""
    together: dict[tuple[str, str], list[Case]] = {}
    for pair in slower_forms(group, (COMPILE_DEFAULT.name, COMPILE_MAX_AUTOTUNE.name), level):
        cause = _cause(pair)
        together.setdefault((pair.form.form, cause.name if cause else ""), []).append(pair.case(group, cause))
    return [finding(Kind.SLOWER_COMPILED, cases, "parts", form=form) for (form, _), cases in together.items()]


def _cause(pair: Pair) -> Part | None:
    """Return the part beside the attention that makes up most of what the form takes longer; None where none does."""
    if pair.form.cupti is None or pair.plain.cupti is None:
        return None
    longer_ms = pair.form.cupti.events_ms - pair.plain.cupti.events_ms
    parts_ms = {name: ms for name, ms in pair.form.cupti.parts_ms.items() if name != "attention"}
    added = {name: ms - _part_ms(pair.plain, name) for name, ms in parts_ms.items()}
    name = max(added, key=lambda part: added[part], default="")
    if not name or longer_ms <= 0 or added[name] < EXPLAINS * longer_ms:
        return None
    return Part(name=name, ms=added[name], call_ms=pair.form.cupti.events_ms)


def _part_ms(record: Record, name: str) -> float:
    return record.cupti.parts_ms.get(name, 0.0) if record.cupti else 0.0
