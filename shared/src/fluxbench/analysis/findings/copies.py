"""What copying q, k and v to another layout costs: forms with these copies against the kernel as it is."""

from __future__ import annotations

from fluxbench.analysis.findings.evidence import part_of
from fluxbench.analysis.findings.finding import Finding, Kind, finding
from fluxbench.analysis.findings.forms import slower_forms
from fluxbench.analysis.groups import Group
from fluxbench.variants.forms import COPY


def find(group: Group, level: float) -> list[Finding]:
    """Return one finding of all forms that their copies make measurably slower; none where there is no such form."""
    cases = [pair.case(group, part_of(pair.form, "copies")) for pair in slower_forms(group, (COPY.name,), level)]
    return [finding(Kind.COPIES, cases, "parts")] if cases else []
