"""The certificate as `summary.json`. Its keys are fixed, since it is published."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from statistics import median
from typing import Any

import msgspec

from fluxbench.analysis.certificate.certificate import Certificate, UnderLoad
from fluxbench.analysis.certificate.judging import PERCENT, Detected
from fluxbench.analysis.certificate.tables import Independent
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.stats.significance import Verdict


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Return a JSON object. Rates and differences are shares; null is what could not be measured.

    `beside` holds counts, conditions and parts of the numbers, and by key why one is null.
    """
    trials, same = certificate.trials, certificate.same
    levels = {f"{percent:g}": one for percent, one in zip(PERCENT, certificate.detection, strict=True)}
    return {
        "tables": {
            **_tables(certificate.independent),
            "sessions": [dataclasses.asdict(session) for session in certificate.independent.sessions],
        },
        "a_a": {
            "comparisons": same.count,
            "false_verdict_rate": same.rate(Verdict.FASTER, Verdict.SLOWER),
            "undecided_rate": same.rate(Verdict.UNDECIDED),
        },
        "detection": {
            level: {"trials": one.total.count if one else 0, "found_rate": one.rate if one else None}
            for level, one in levels.items()
        },
        **({"sustained": _sustained(certificate.sustained)} if certificate.sustained else {}),
        "position_effect_max": certificate.position_effect,
        "rerun_ratio_max_difference": certificate.rerun_difference(BURST),
        "rerun_ratio_max_difference_sustained": certificate.rerun_difference(SUSTAINED),
        "clock_agreement_max_difference": certificate.cupti_difference,
        "event_overhead_us": certificate.event_us,
        "measured_at": certificate.measured_at,
        "fingerprint": dict(trials.fingerprint) if trials else {},
        "beside": _beside(certificate, levels),
    }


def _sustained(found: UnderLoad) -> dict[str, Any]:
    return {
        "tables": _tables(found.independent),
        "a_a": {
            "comparisons": found.same.count,
            "false_verdict_rate": found.same.rate(Verdict.FASTER, Verdict.SLOWER),
            "undecided_rate": found.same.rate(Verdict.UNDECIDED),
            "half_interval_median": found.same.half_width,
        },
        "detection": {
            f"{one.percent:g}": {"trials": one.total.count, "found_rate": one.rate, **_detected(one)}
            for one in found.detection
        },
    }


def _tables(found: Independent) -> dict[str, Any]:
    """Return both kinds of tables; those within sessions with the 95% upper limit of their rate of false positives."""
    within, between = found.within, found.between
    return {
        "within_sessions": {
            "of": within.of, "with_false_positive": within.called, "upper_bound": within.upper_bound,
        },
        "between_sessions": {
            "of": between.of, "with_difference": between.called,
            "of_two_cards": found.of_two_cards,
        },
    }  # fmt: skip


def _beside(certificate: Certificate, levels: Mapping[str, Detected | None]) -> dict[str, Any]:
    same, cupti, ratios = certificate.same, certificate.cupti, certificate.ratio_differences
    reruns = msgspec.to_builtins(certificate.reruns) if certificate.reruns else {}
    return {
        "null_because": dict(certificate.missing),
        "a_a": {
            "covers_truth_rate": same.coverage,
            "half_interval_median": same.half_width,
            "not_compared": same.missing,
            "pairs_of_runs": certificate.pairs_of_runs,
            "device_called_moved": certificate.device_significant,
        },
        "detection": {level: _detected(one) for level, one in levels.items() if one},
        "position": [dataclasses.asdict(effect) for effect in certificate.position],
        "reruns": {key: value for key, value in reruns.items() if key != "clocks"},
        "clocks": {"records": len(cupti), "largest_at": max(cupti, key=lambda one: abs(one[1]))[0]} if cupti else {},
        "trials_again": {"ratios": len(ratios), "max": max(ratios), "median": median(ratios)} if ratios else {},
        "conditions": dataclasses.asdict(certificate.conditions) if certificate.conditions else {},
    }


def _detected(one: Detected) -> dict[str, Any]:
    return {
        "true_ratio": dict(one.truth),
        "found_rate_by_kernel": {base: tally.rate(Verdict.SLOWER) for base, tally in one.by_base.items()},
        "called_faster": one.total.verdicts[Verdict.FASTER],
        "covers_truth_rate": one.total.coverage,
        "half_interval_median": one.total.half_width,
    }
