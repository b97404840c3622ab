"""The findings: what the records show beyond the ranking."""

from __future__ import annotations

from fluxbench.analysis import findings
from fluxbench.analysis.findings.finding import Kind
from fluxbench.analysis.groups import groups
from fluxbench.report.blocks import Block
from fluxbench.report.findings import SHOWN
from fluxbench.report.findings import blocks as sentences
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows, estimate_cells

_HEADER = (
    *("kind", "workloads", "variant", "against", "ratio", "ratio_low", "ratio_high"),
    *("second_ratio", "second_ratio_low", "second_ratio_high", "part", "part_ms", "call_ms", "multiple_tokens"),
    *("slower", "cell", "weight", "folded"),
)


def blocks(results: Results) -> list[Block]:
    """Return the findings as sentences with links."""
    return sentences(results)


def rows(results: Results) -> Rows:
    """Return one row per case of each finding, in the order of the page; `analysis.findings.finding` says what is what.

    Ratios have 95% intervals, uncorrected. `slower` is 1 where that is said, and empty of other kinds than quantizing.
    `weight` orders the findings, `folded` is 1 for those that a page folds.
    """
    csv: Rows = [_HEADER]
    for group in groups(results.records):
        for place, finding in enumerate(findings.of_group(group)):
            for case in finding.cases:
                where = " ".join(workload.name for workload in case.workloads)
                part = (case.part.name, case.part.ms, case.part.call_ms) if case.part else (None,) * 3
                ratios = (*estimate_cells(case.value), *estimate_cells(case.second))
                slower = int(case.slower) if finding.kind is Kind.QUANTIZING else None
                last = (finding.multiple, slower, finding.cell, case.weight, int(place >= SHOWN))
                csv.append((finding.kind.value, where, case.variant, case.against or None, *ratios, *part, *last))
    return csv
