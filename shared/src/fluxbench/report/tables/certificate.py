"""The certificate's table: the questions asked of the harness, the answers, and whether the targets are met."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from fluxbench.analysis.certificate.certificate import Certificate, Conditions, certify
from fluxbench.analysis.certificate.judging import Detected
from fluxbench.analysis.certificate.summary_json import to_json
from fluxbench.core.formatting import count, listed, utc
from fluxbench.records import fingerprint, method
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.certificate_inputs import earlier_trials_of, half_width, reruns_of, trials_of
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
    trials = certificate.trials.records if certificate.trials else ()
    versions = sorted({record.method_version for record in trials})
    on_gpu = any(fingerprint.device_of(record.fingerprint).worker_kind != "cpu" for record in trials)
    shown += [Paragraph(_of_version(version, on_gpu=on_gpu)) for version in versions]
    keys_by_reason: dict[str, list[str]] = {}
    for key, why in certificate.missing.items():
        keys_by_reason.setdefault(why, []).append(key)
    details: list[Block] = [
        Paragraph(f"No value of {' and '.join(keys)}: {why}.") for why, keys in keys_by_reason.items()
    ]
    if certificate.conditions:
        when = f" Measured {utc(certificate.measured_at)}." if certificate.measured_at else ""
        details.insert(0, Paragraph(_state(certificate.conditions) + when))
    return [*shown, Fold("What this was measured with", details)] if details else shown


def _of_version(version: int, *, on_gpu: bool) -> str:
    """Return for which pages trials of a method version hold."""
    alike = method.burst_alike(version)
    own = method.of_sustained(version, on_gpu=on_gpu)
    same = [other for other in alike if method.of_sustained(other, on_gpu=on_gpu) == own]
    in_burst = [other for other in alike if other not in same]
    whole = f" and {listed(list(map(str, same)))}" if same else ""
    burst = f", of versions {listed(list(map(str, in_burst)))} for burst times alone," if in_burst else ""
    return (
        f"The trials are of method version {method.words(version)}. They hold for pages of this version{whole}{burst} "
        'and not for others. Each page names its version in "What this was measured with".'
    )


def files(results: Results) -> dict[str, str]:
    """Return what is published beside the page: `summary.json`, whose verdict the site shows."""
    certificate = certify(trials_of(results), reruns_of(results), results.rates, earlier_trials_of(results))
    content = {"verdict": _verdict(certificate, list(lines_of(certificate))), **to_json(certificate)}
    return {"summary.json": json.dumps(content, indent=1, allow_nan=False) + "\n"}


def _verdict(certificate: Certificate, lines: Sequence[Line]) -> str:
    """Return the certificate in sentences: A/A, injected slowdowns by regime, and how many targets are met."""
    if not certificate.same.count:
        return f"The harness could not be tested: {certificate.missing.get('a_a', 'nothing was compared')}."
    tables, loaded = certificate.independent.within, certificate.sustained
    sustained = (
        f", and {loaded.independent.within.called} of {loaded.independent.within.of} sustained" if loaded else ""
    )
    in_burst = _slowdowns(certificate.detection)
    device = f"{certificate.conditions.device}: " if certificate.conditions else ""
    sentences = [
        f"{device}{tables.called} of {tables.of} independent A/A tables had a false positive in burst (a rate of at "
        f"most {rate_text(tables.upper_bound)} with 95% confidence){sustained}.",
        f"Injected slowdowns detected in burst: {in_burst}." if in_burst else "",
        f"Sustained: {slowdowns}." if loaded and (slowdowns := _slowdowns(loaded.detection)) else "",
        _targets(lines),
    ]
    return " ".join(filter(None, sentences))


def _slowdowns(detection: Iterable[Detected | None]) -> str:
    """Return how often those with a target were detected; empty where none was compared."""
    return ", ".join(
        f"{one.percent:g}% in {_most(one.rate)} of {count(one.total.count, 'comparison')} with 95% intervals of "
        f"{half_width(one.total)}"
        for one in detection
        if one and one.total.count and one.percent in DETECTED_AT_LEAST
    )


def _targets(lines: Sequence[Line]) -> str:
    """Return how many targets are met, missed, open and without an answer."""
    answers = Counter(line.met for line in lines if line.target != "-")
    words = {
        "yes": ("is met", "are met"),
        "no": ("is missed", "are missed"),
        "too few": ("needs more trials", "need more trials"),
        "-": ("is not measured", "are not measured"),
    }
    parts = (f"{answers[met]} {forms[answers[met] > 1]}" for met, forms in words.items() if answers[met])
    return f"Of an H200's {answers.total()} targets {', '.join(parts)}."


def _state(conditions: Conditions) -> str:
    """Return the conditions as sentences."""
    processes = conditions.processes // max(1, conditions.runs)
    known = [
        f"{word} {' to '.join(dict.fromkeys(f'{end:,.0f}' for end in ends))} {unit}"
        for word, ends, unit in (
            ("SM clock", conditions.sm_clock_mhz, "MHz"),
            ("power", conditions.power_w, "W"),
            ("temperature", conditions.temperature_c, "°C"),
        )
        if ends
    ]
    if conditions.throttle_reasons:
        known.append(f"throttle reasons: {', '.join(conditions.throttle_reasons)}")
    sentences = [
        f"{conditions.device}; {count(conditions.runs, 'run')} of {processes} fresh processes each.",
        f"In burst, single calls on a device that rested: {'; '.join(known)}."
        if known
        else "The device reports no clock, power or temperature.",
        f"Another process used the device: {'; '.join(conditions.others)}." if conditions.others else "",
    ]
    return " ".join(filter(None, sentences))


def _most(share: float | None) -> str:
    if share in (0, 1):
        return "all" if share else "none"
    return rate_text(share)
