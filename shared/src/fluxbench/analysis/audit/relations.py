"""Figures of one document against one another. Only where no reading of the rows agrees is a figure contradictory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import NotDecidable
from fluxbench.analysis.audit.finding import Finding, Kind, Value, contradictory
from fluxbench.analysis.audit.index import Group, Index

Found = tuple[Claim, Finding | None]  # None: it was compared, and agrees
_RATE_WITHIN = 0.1  # of a count of operations: some count the softmax
_SPEEDUP_WITHIN = 0.01
_MEMORY_WITHIN = 0.02
_PART_WITHIN = 0.02
_OF_SUM = 0.75  # of the times of both passes; each may hold the launching that both together hold once
_TWICE = 1.5  # quotient of two times of one thing
_LEAST_FORWARD_MS = 0.1  # shorter ones may be those of launching


def judge(index: Index) -> Iterator[Found]:
    """Yield each figure that can be compared with others, with what is wrong where it does not agree."""
    if Metric.RATE in index.metrics:
        yield from _times_and_rates(index)
    if Metric.SPEEDUP in index.metrics:
        yield from _speedups(index)
    if Metric.TIME in index.metrics:
        yield from _parts(index)
        yield from _two_values(index)
    if Metric.BYTES in index.metrics:
        yield from _memory_totals(index)


def _times_and_rates(index: Index) -> Iterator[Found]:
    lines: dict[int, Group] = {}
    for claim in index.claims:
        if claim.metric is Metric.TIME:
            lines.setdefault(claim.line, []).append(claim)
    for rate in index.claims:
        if rate.metric is not Metric.RATE:
            continue
        times = lines.get(rate.line, [])
        if not times and rate.context.get("source"):
            times = [one for one in index.by()[rate.context.key()] if one.metric is Metric.TIME]
        try:
            counts = _counts(rate)
        except NotDecidable:
            continue
        if times:
            yield rate, _disagreement(rate, times, counts)


def _counts(rate: Claim) -> dict[str, float]:
    """Return the operations of a call by how they may be counted. Raises `NotDecidable`."""
    context = rate.context
    full = float(context.workload(causal=False).cost.flops)
    if not context.may_be_causal:
        return {"full": full}
    return {"full": full, "causal": float(context.workload(causal=True).cost.flops)}


def _disagreement(rate: Claim, times: Sequence[Claim], counts: dict[str, float]) -> Finding | None:
    for flops, time in itertools.product(counts.values(), times):
        low, high = flops / time.high / 1e9, flops / time.low / 1e9
        if rate.low <= high * (1 + _RATE_WITHIN) and rate.high >= low * (1 - _RATE_WITHIN):
            return None
    time, flops = times[0], counts["full"]
    implied = flops / time.value / 1e9
    values: dict[str, Value] = {"tflops": rate.value, "ms": time.value, "flops": flops, "implied_tflops": implied}
    return contradictory(
        Kind.TIME_AND_RATE,
        *(one.line for one in times if one.line != rate.line),
        **values,
        as_if=_as_if(rate.context.passes, rate.value / implied),
        inferred_from=rate.context.inferred_from,
    )


def _as_if(passes: str, quotient: float) -> str:
    """Return whose count of operations, or "unit", would explain a quotient of two rates; empty where none would."""
    counts = {"forward": 1.0, "backward": 2.5, "forward+backward": 3.5}
    for name, count in counts.items():
        if name != passes and abs(quotient * counts[passes] / count - 1) < _RATE_WITHIN:
            return name
    return "unit" if abs(quotient / 1000 - 1) < 0.2 or abs(quotient * 1000 - 1) < 0.2 else ""


def _speedups(index: Index) -> Iterator[Found]:
    groups = index.by("implementation", "component")
    for claim in index.claims:
        context = claim.context
        if claim.metric is not Metric.SPEEDUP or not context.get("over"):
            continue
        if context.get("component") in ("smallest", "largest"):
            yield from _extreme(claim, groups.values())
            continue
        quotients = list(_quotients(claim, groups[context.key("implementation", "component")]))
        if not quotients:
            continue
        fits = any(_overlap(claim, low, high) for _, low, high, _ in quotients)
        value, _, _, lines = quotients[0]
        yield claim, None if fits else contradictory(Kind.SPEEDUP, *lines, speedup=claim.value, quotient=value)


def _overlap(claim: Claim, low: float, high: float) -> bool:
    return claim.low <= high * (1 + _SPEEDUP_WITHIN) and claim.high >= low * (1 - _SPEEDUP_WITHIN)


def _quotients(claim: Claim, group: Group) -> Iterator[tuple[float, float, float, tuple[int, int]]]:
    """Yield the quotients of times, or of throughputs, that a speedup may be, with their ends and their lines."""
    mine, baseline = claim.context.get("implementation"), claim.context.get("over")
    for one, other in itertools.product(
        (one for one in group if one.context.get("implementation") == mine),
        (one for one in group if one.context.get("implementation") == baseline),
    ):
        if one.metric is not other.metric or one.metric not in (Metric.TIME, Metric.SAMPLES, Metric.TOKENS):
            continue
        slow, fast = (other, one) if one.metric is Metric.TIME else (one, other)
        yield slow.value / fast.value, slow.low / fast.high, slow.high / fast.low, (one.line, other.line)


def _extreme(claim: Claim, groups: Iterable[Group]) -> Iterator[Found]:
    """Yield whether the smallest or largest speedup that a document names is that of its times."""
    stated = [claim.context.get(name) for name in ("source", "pass", "gpu")]
    quotients = [
        quotient
        for group in groups
        if [group[0].context.get(name) for name in ("source", "pass", "gpu")] == stated
        for quotient in _quotients(claim, group)
    ]
    if not quotients:
        return
    pick = min if claim.context.get("component") == "smallest" else max
    value, low, high, lines = pick(quotients)
    if _overlap(claim, low, high):
        yield claim, None
        return
    which = claim.context.get("component")
    yield claim, contradictory(Kind.SPEEDUP_RANGE, *lines, speedup=claim.value, quotient=value, which=which)


def _parts(index: Index) -> Iterator[Found]:
    """Yield where both passes are shorter than one, or much shorter than their sum, or backward than forward."""
    if len({claim.context.get("pass") for claim in index.claims}) < 2:
        return
    for group in index.by("pass").values():
        times: dict[str, list[Claim]] = {}
        for claim in group:
            if claim.metric is Metric.TIME and claim.context.get("pass"):
                try:
                    times.setdefault(claim.context.passes, []).append(claim)
                except NotDecidable:
                    continue
        forward, backward, both = (times.get(name, []) for name in ("forward", "backward", "forward+backward"))
        for claim in both:
            yield from _total(claim, forward, backward)
        for claim in backward:
            if forward and all(claim.high < one.low * (1 - _PART_WITHIN) for one in forward):
                shortest = min(forward, key=lambda one: one.value)
                if shortest.value >= _LEAST_FORWARD_MS:
                    values: dict[str, Value] = {"ms": claim.value, "forward_ms": shortest.value}
                    yield claim, contradictory(Kind.BACKWARD_SHORTER, shortest.line, **values)


def _total(claim: Claim, forward: Sequence[Claim], backward: Sequence[Claim]) -> Iterator[Found]:
    for name, parts in (("forward", forward), ("backward", backward)):
        if parts and all(claim.high < part.low * (1 - _PART_WITHIN) for part in parts):
            part = min(parts, key=lambda one: one.value)
            values: dict[str, Value] = {"ms": claim.value, "part_ms": part.value, "part": name}
            yield claim, contradictory(Kind.TOTAL_UNDER_PART, part.line, **values)
            return
    sums = [one.low + other.low for one in forward for other in backward]
    if sums and claim.high < _OF_SUM * min(sums):
        one, other = forward[0], backward[0]
        of_sum: dict[str, Value] = {"ms": claim.value, "forward_ms": one.value, "backward_ms": other.value}
        yield claim, contradictory(Kind.TOTAL_UNDER_SUM, one.line, other.line, **of_sum)


def _two_values(index: Index) -> Iterator[Found]:
    """Yield where two tables of a source give times of one configuration that are far apart."""
    for group in index.by("table").values():
        timed = [one for one in group if one.metric is Metric.TIME and one.context.get("source")]
        if len({one.context.get("table") for one in timed}) < 2:
            continue
        for claim in timed:
            others = [one for one in timed if one.context.get("table") != claim.context.get("table")]
            if all(max(claim.low / one.high, one.low / claim.high) > _TWICE for one in others):
                other = others[0]
                values: dict[str, Value] = {
                    "ms": claim.value,
                    "other_ms": other.value,
                    "other_table": other.context.get("table"),
                }
                yield claim, contradictory(Kind.TWO_VALUES, other.line, **values)


def _memory_totals(index: Index) -> Iterator[Found]:
    for group in index.by("component").values():
        parts: dict[str, Claim] = {}
        for one in group:
            if one.metric is Metric.BYTES:
                parts.setdefault(one.context.get("component").lower(), one)
        total = parts.pop("total", None)
        parts.pop("", None)
        if total is None or len(parts) < 2:
            continue
        low, high = sum(one.low for one in parts.values()), sum(one.high for one in parts.values())
        if total.low <= high * (1 + _MEMORY_WITHIN) and total.high >= low * (1 - _MEMORY_WITHIN):
            yield total, None
            continue
        values: dict[str, Value] = {"claimed_bytes": total.value, "sum_bytes": sum(one.value for one in parts.values())}
        yield total, contradictory(Kind.MEMORY_TOTAL, *(one.line for one in parts.values()), **values)
