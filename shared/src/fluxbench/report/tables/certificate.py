"""The certificate's table: the questions asked of the harness, the answers, and whether the targets are met."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fluxbench.analysis.certificate.certificate import Certificate, Conditions, certify
from fluxbench.analysis.certificate.judging import PERCENT
from fluxbench.analysis.certificate.summary_json import to_json
from fluxbench.core.formatting import utc
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.certificate_inputs import earlier_trials_of, reruns_of, trials_of
from fluxbench.report.certificate_lines import DETECTED_AT_LEAST, Line, lines_of, rate_text
from fluxbench.report.results import Results


def blocks(results: Results) -> list[Block]:
    """Return the verdict, the questions with their answers, the conditions, and why a number is missing."""
    certificate = certify(trials_of(results), reruns_of(results), results.rates, earlier_trials_of(results))
    lines = list(lines_of(certificate))
    heads = (("question", True), ("answer", False), ("of", True), ("target, H200", True), ("met", True))
    shown: list[Block] = [
        Paragraph(_verdict(certificate, lines), kind="lead"),
        Table(
            columns=[Column(head, left=left) for head, left in heads],
            rows=[Row((line.question, line.answer, line.of, line.target, line.met)) for line in lines],
        ),
    ]
    details: list[Block] = [Paragraph(f"No value of {key}: {why}.") for key, why in certificate.missing.items()]
    if certificate.conditions:
        when = f" Measured {utc(certificate.measured_at)}." if certificate.measured_at else ""
        details.insert(0, Paragraph(_state(certificate.conditions) + when))
    return [*shown, Fold("What this was measured with", details)] if details else shown


def files(results: Results) -> dict[str, str]:
    """Return what is published beside the page: `summary.json`, whose verdict the site shows."""
    certificate = certify(trials_of(results), reruns_of(results), results.rates, earlier_trials_of(results))
    content = {"verdict": _verdict(certificate, list(lines_of(certificate))), **to_json(certificate)}
    return {"summary.json": json.dumps(content, indent=1, allow_nan=False) + "\n"}


def _verdict(certificate: Certificate, lines: Sequence[Line]) -> str:
    """Return the certificate in at most three sentences: A/A, injected slowdowns, and how many targets are missed."""
    if not certificate.same.count:
        return f"The harness could not be tested: {certificate.missing.get('a_a', 'nothing was compared')}."
    tables = certificate.independent.within
    slowdowns = [
        f"{level:g}% in {_most(slowdown.rate)} of {slowdown.total.count:,} comparisons"
        for level, slowdown in zip(PERCENT, certificate.detection, strict=True)
        if slowdown and level in DETECTED_AT_LEAST
    ]
    missed, few = (sum(line.met == met for line in lines) for met in ("no", "too few"))
    sentences = [
        f"{tables.called} of {tables.of} independent A/A tables had a false positive: a rate of at most "
        f"{rate_text(tables.upper_bound)} with 95% confidence.",
        f"Injected slowdowns detected: {', '.join(slowdowns)}." if slowdowns else "",
        f"{missed or 'No'} target{'s are' if missed > 1 else ' is'} missed"
        + (f", {few} need{'s' if few == 1 else ''} more trials." if few else "."),
    ]
    return " ".join(filter(None, sentences))


def _state(conditions: Conditions) -> str:
    """Return the conditions as a sentence."""
    parts = [f"{conditions.runs} runs of {conditions.processes // max(1, conditions.runs)} fresh processes each"]
    known = [
        f"{word} {' to '.join(dict.fromkeys(f'{end:,.0f}' for end in ends))} {unit}"
        for word, ends, unit in (
            ("SM clock", conditions.sm_clock_mhz, "MHz"),
            ("power", conditions.power_w, "W"),
            ("temperature", conditions.temperature_c, "°C"),
        )
        if ends
    ]
    parts += known or ["the device reports no clock, power or temperature"]
    if conditions.throttle_reasons:
        parts.append(f"throttle reasons: {', '.join(conditions.throttle_reasons)}")
    if conditions.others:
        parts.append(f"another process used the device: {'; '.join(conditions.others)}")
    return f"Regime: burst, single calls on a device that rested. {conditions.device}; {'; '.join(parts)}."


def _most(share: float | None) -> str:
    if share in (0, 1):
        return "all" if share else "none"
    return rate_text(share)
