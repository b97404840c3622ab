"""The questions that the certificate asks of the harness, with their answers and targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from fluxbench.analysis.certificate import position
from fluxbench.analysis.certificate.certificate import Certificate, UnderLoad
from fluxbench.analysis.certificate.judging import PERCENT, Detected, Tally
from fluxbench.analysis.certificate.tables import Independent
from fluxbench.core.formatting import count, number, percent
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.stats.significance import Verdict

# The targets, of an H200, as shares; and the numbers of comparisons below which a rate says too little.
_FALSE_AT_MOST, _UNDECIDED_AT_MOST, _COMPARISONS = 0.01, 0.10, 200
DETECTED_AT_LEAST, _INJECTED = {1.0: 0.95, 2.0: 1.0}, 100
_TABLES, _TABLES_FALSE = 20, 0.05
_POSITION_AT_MOST = 0.002
_RERUN_AT_MOST, _RERUNS = 0.003, 3
_NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One question, its answer, how many measurements it rests on, the target, and whether it is met."""

    question: str
    answer: str
    of: str  # how many measurements it rests on
    target: str = "-"
    met: str = "-"


def lines_of(certificate: Certificate) -> Iterator[Line]:
    """Yield the questions, in the order of the table."""
    yield from _agreement(certificate)
    yield from _detection(certificate)
    if certificate.sustained:
        yield from _under_load(certificate.sustained, certificate.pairs_of_runs)
    yield _position(certificate)
    ratios = certificate.ratio_differences
    runs = certificate.conditions.runs if certificate.conditions else 0
    yield Line(
        question="between these runs: a burst ratio differs by",
        answer=_share(max(ratios, default=None)),
        of=f"{count(runs, 'run')}, {count(len(ratios), 'ratio')}",
    )
    yield from _reruns(certificate)
    shares = [abs(share) for _, share in certificate.cupti]
    yield Line(
        question="CUPTI cross-check, the same call: differs by",
        answer=f"{_share(median(shares))} (median)" if shares else _NOT_MEASURED,
        of=f"{count(len(shares), 'record')}" + (f", {_share(certificate.cupti_difference)} at most" if shares else ""),
    )
    event = certificate.event_us
    answer = _NOT_MEASURED if event is None else f"{number(event)} µs"
    yield Line(question="an event costs", answer=answer, of="medians of 3 processes")


def _agreement(certificate: Certificate) -> Iterator[Line]:
    within, between = _tables(certificate.independent)
    tables = certificate.independent.within
    met = _met(
        tables.called / tables.of if tables.of else None,
        lambda rate: rate <= _TABLES_FALSE,
        enough=len(certificate.independent.sessions) > 1 and tables.of >= _TABLES,
    )
    yield replace(within, target=f"<= {_TABLES_FALSE:.0%} of >= {_TABLES}, 2 sessions", met=met)
    yield between
    same = certificate.same
    enough, pairs = same.count >= _COMPARISONS, (certificate.pairs_of_runs, certificate.pairs_significant)
    wrong = same.rate(Verdict.FASTER, Verdict.SLOWER)
    yield Line(
        question="A/A: false positives",
        answer=rate_text(wrong),
        of=_compared(same, *pairs),
        target=f"<= {_FALSE_AT_MOST:.0%} of >= {_COMPARISONS}",
        met=_met(wrong, lambda rate: rate <= _FALSE_AT_MOST, enough=enough),
    )
    yield _undecided(same)


def _undecided(same: Tally, under: str = "") -> Line:
    """Return how many comparisons of equal runs show neither a change nor that there is none; burst has a target."""
    rate, enough = same.rate(Verdict.UNDECIDED), same.count >= _COMPARISONS
    return Line(
        question=f"A/A{under}: undecided",
        answer=rate_text(rate),
        of=count(same.count, "comparison"),
        target="-" if under else f"<= {_UNDECIDED_AT_MOST:.0%}",
        met="-" if under else _met(rate, lambda rate: rate <= _UNDECIDED_AT_MOST, enough=enough),
    )


def _tables(found: Independent, under: str = "") -> Iterator[Line]:
    """Yield a line of tables within a session, and one of tables across two: both kinds have the same runs.

    Those across the same two sessions share what differs between these, so they have no limit.
    """
    within, between = found.within, found.between
    limit, cards = f"; at most {percent(within.upper_bound)}", found.of_two_cards
    sessions = count(len(found.sessions), "session")
    of_pairs = count(len(found.pairs), "pair") + " of sessions" + (f", {cards} of two cards" if cards else "")
    yield Line(
        question=f"A/A{under}: tables of one session with a false positive",
        answer=f"{within.called} of {within.of}{limit}" if within.of else _NOT_MEASURED,
        of=f"disjoint pairs of successive runs, {sessions}; 95% upper limit",
    )
    yield Line(
        question=f"A/A{under}: tables of two sessions with a {'difference' if cards else 'false positive'}",
        answer=f"{between.called} of {between.of}" if between.of else _NOT_MEASURED,
        of=f"disjoint pairs of runs, {of_pairs}; not independent" if between.of else sessions,
    )


def _detection(certificate: Certificate) -> Iterator[Line]:
    """Yield a line for each slowdown that the trials have, and for all of them if there are no trials."""
    for level, slowdown in zip(PERCENT, certificate.detection, strict=True):
        if slowdown and not slowdown.by_base:
            continue
        rate, compared = (slowdown.rate, slowdown.total.count) if slowdown else (None, 0)
        least = DETECTED_AT_LEAST.get(level)
        yield Line(
            question=f"a slowdown of {level:g}% is detected",
            answer=rate_text(rate),
            of=count(compared, "comparison") + (_by_kernel(slowdown) if slowdown else ""),
            target="-" if least is None else f">= {least:.0%} of >= {_INJECTED}",
            met="-" if least is None else _met(rate, least.__le__, enough=compared >= _INJECTED),
        )


def _under_load(found: UnderLoad, pairs: int) -> Iterator[Line]:
    """Yield the same of sustained times."""
    yield from _tables(found.independent, ", sustained")
    wrong, compared = found.same.rate(Verdict.FASTER, Verdict.SLOWER), found.same.count
    yield Line(
        question="A/A, sustained: false positives",
        answer=rate_text(wrong),
        of=_compared(found.same, pairs, found.pairs_significant),
        target=f"<= {_FALSE_AT_MOST:.0%} of >= {_COMPARISONS}",
        met=_met(wrong, lambda rate: rate <= _FALSE_AT_MOST, enough=compared >= _COMPARISONS),
    )
    yield _undecided(found.same, ", sustained")
    for slowdown in found.detection:
        error = max((slowdown.truth_error[base] for base in slowdown.truth), default=math.inf)
        least = DETECTED_AT_LEAST.get(slowdown.percent)
        truths = slowdown.truth.values()
        ends = dict.fromkeys(_share(end - 1) for end in (min(truths), max(truths))) if truths else ("unknown",)
        yield Line(
            question=f"a slowdown of {slowdown.percent:g}% is detected, sustained",
            answer=rate_text(slowdown.rate),
            of=f"{count(slowdown.total.count, 'comparison')}{_by_kernel(slowdown)}; truly {' to '.join(ends)}, "
            f"standard error {'unknown' if math.isinf(error) else f'up to {_share(error)}'}",
            target="-" if least is None else f">= {least:.0%} of >= {_INJECTED}",
            met="-" if least is None else _met(slowdown.rate, least.__le__, enough=slowdown.total.count >= _INJECTED),
        )


def _by_kernel(slowdown: Detected) -> str:
    """Return between which rates it is detected of the single kernels, where these differ."""
    rates = [rate for tally in slowdown.by_base.values() if (rate := tally.rate(Verdict.SLOWER)) is not None]
    ends = list(dict.fromkeys(rate_text(end) for end in (min(rates), max(rates)))) if rates else []
    return f"; by kernel {' to '.join(ends)}" if len(ends) > 1 else ""


def _position(certificate: Certificate) -> Line:
    noise = max((effect.noise for effect in certificate.position), default=0.0)
    clear = noise < _POSITION_AT_MOST / 2
    of_kinds = (("samples", position.IN_ROUND), ("trials", position.IN_PROCESS))
    counts = [
        f"{sum(one.count for one in certificate.position if one.kind == kind):,} {name}" for name, kind in of_kinds
    ]
    met = _met(certificate.position_effect, lambda share: share <= _POSITION_AT_MOST, enough=True)
    return Line(
        question="the position in the order moves a median by",
        answer=_share(certificate.position_effect),
        of=f"{', '.join(counts)}; noise {percent(noise, 2)}{'' if clear else ', over half of the target'}",
        target=f"<= {percent(_POSITION_AT_MOST)}",
        met=met if clear else "too few",
    )


def _reruns(certificate: Certificate) -> Iterator[Line]:
    reruns = certificate.reruns
    runs, cards = (reruns.runs, ", several cards" * reruns.at_once) if reruns else (0, "")
    for regime in (BURST, SUSTAINED):
        share = certificate.rerun_difference(regime)
        spread = reruns.spread(regime, fast=True) if reruns else None
        yield Line(
            question=f"Flux again{cards}: a {regime} ratio differs by",
            answer=_share(share),
            of=f"{count(runs, 'run')}, {count(spread.count if spread else 0, 'ratio')}",
            target=f"<= {percent(_RERUN_AT_MOST)} of {_RERUNS} runs" if regime == BURST else "-",
            met=_met(share, lambda share: share <= _RERUN_AT_MOST, enough=runs >= _RERUNS) if regime == BURST else "-",
        )


def _compared(same: Tally, pairs: int, significant: int) -> str:
    """Return how many rows were compared, and in how many pairs of runs the false positives are."""
    which = f", {significant} of them with a false positive" if significant else ""
    return f"{count(same.count, 'comparison')} in {count(pairs, 'pair')} of runs{which}"


def _met(value: float | None, meets: Callable[[float], bool], *, enough: bool) -> str:
    if value is None:
        return "-"
    if not meets(value):
        return "no"
    return "yes" if enough else "too few"


def rate_text(share: float | None) -> str:
    """Return a rate with one decimal."""
    return _NOT_MEASURED if share is None else percent(share)


def _share(share: float | None) -> str:
    return _NOT_MEASURED if share is None else percent(share, 2)
