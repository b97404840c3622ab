"""Figures "per token" over the length: whatever is divided by the tokens of a call grows with them at most."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import NotDecidable
from fluxbench.analysis.audit.finding import Finding, Kind, Value, contradictory
from fluxbench.analysis.audit.index import Index

Found = tuple[Claim, Finding | None]
_MOST = 1.5  # power of the length: exact attention has operations, and scores, in proportion to it for each token
_APART = 0.5  # powers of two implementations of the same operations
_TIMES = 1.5  # by which a figure per token may differ from its total over the tokens
_LEAST = 3  # lengths


def judge(index: Index) -> Iterator[Found]:
    """Yield each figure per token that can be compared, with what is wrong where it does not agree."""
    if not any(claim.context.get("per") for claim in index.claims):
        return
    curves = list(_curves(index))
    for metric, curve in curves:
        power = _power(curve)
        for claim in curve:
            finding = None
            if power > _MOST:
                values: dict[str, Value] = {"power": power, **_ends(curve)}
                finding = contradictory(Kind.PER_TOKEN_GROWTH, curve[-2].line, metric=metric.value, **values)
            yield claim, finding
        if metric is Metric.TIME:
            yield from _other_growths(curve, power, [other for which, other in curves if which is metric])
    yield from _totals(index)


def _curves(index: Index) -> Iterator[tuple[Metric, list[Claim]]]:
    for group in index.by("seq_len").values():
        if group[0].context.get("per") != "token":
            continue
        for metric in (Metric.TIME, Metric.BYTES):
            points: dict[int, Claim] = {}
            for claim in group:
                if claim.metric is metric and (length := _length(claim)):
                    points[length] = claim
            if len(points) >= _LEAST:
                yield metric, [points[length] for length in sorted(points)]


def _length(claim: Claim) -> int:
    try:
        return claim.context.size("seq_len")
    except NotDecidable:
        return 0


def _power(curve: list[Claim]) -> float:
    """Return the power of the length with which a curve grows at its end."""
    one, other = curve[-2:]
    return math.log(other.value / one.value) / math.log(_length(other) / _length(one))


def _ends(curve: list[Claim]) -> dict[str, float | int | str]:
    one, other = curve[-2:]
    lengths = {"length": _length(one), "other_length": _length(other)}
    return {**lengths, "value": one.text, "other_value": other.text}


def _other_growths(curve: list[Claim], power: float, others: list[list[Claim]]) -> Iterator[Found]:
    """Yield where another implementation of the same operations grows with quite another power."""
    context = curve[0].context
    for other in others:
        same = other[0].context.key("seq_len", "implementation") == context.key("seq_len", "implementation")
        if other is not curve and same and power > _power(other) + _APART:
            values: dict[str, Value] = {"power": power, "other_power": _power(other)}
            name = other[0].context.get("implementation")
            yield curve[-1], contradictory(Kind.GROWTHS_DIFFER, other[-1].line, other=name, **values)


def _totals(index: Index) -> Iterator[Found]:
    """Yield whether memory per token is the total of the same document over its tokens."""
    totals: dict[tuple[str, ...], list[Claim]] = {}
    caches: dict[tuple[str, ...], list[Claim]] = {}
    for claim in index.claims:
        component = claim.context.get("component").lower()
        if claim.metric is Metric.BYTES and component in ("total", "kv cache"):
            kept = totals if component == "total" else caches
            kept.setdefault(_configuration(claim), []).append(claim)
    for claim in index.claims:
        if claim.metric is not Metric.BYTES or claim.context.get("per") != "token":
            continue
        cached = sorted(caches.get(_configuration(claim), ()), key=_length)
        for total in totals.get(_configuration(claim), ()):
            if _length(total) != _length(claim):
                continue
            tokens = total.context.size("batch") * _length(total)
            each = total.value / tokens
            times = max(claim.low / each, each / claim.high)
            values: dict[str, Value] = {
                "claimed": claim.text,
                "total": total.text,
                "tokens": tokens,
                "each_bytes": each,
                "times": times,
            }
            growth = {"cache": cached[0].text, "other_cache": cached[-1].text} if len(cached) > 1 else {}
            finding = contradictory(Kind.PER_TOKEN_TOTAL, total.line, **values, **growth)
            yield claim, finding if times > _TIMES else None


def _configuration(claim: Claim) -> tuple[str, ...]:
    return tuple(map(claim.context.get, ("source", "implementation", "heads", "head_dim")))
