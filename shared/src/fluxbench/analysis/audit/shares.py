"""Shares of the peak beside rates: together they imply a peak, which is one per card and format."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench.analysis.audit import cards
from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import NotDecidable
from fluxbench.analysis.audit.finding import Finding, Kind, Value, contradictory
from fluxbench.analysis.audit.index import Index

_WITHIN = 0.05


def judge(index: Index) -> Iterator[tuple[Claim, Finding | None]]:
    """Yield each share that has a rate beside it, with what is wrong where the peaks that they imply do not agree."""
    if Metric.SHARE not in index.metrics:
        return
    tables: dict[tuple[str, ...], list[tuple[Claim, Claim]]] = {}
    for group in index.by().values():
        shares = [one for one in group if one.metric is Metric.SHARE]
        rates = [one for one in group if one.metric is Metric.RATE]
        for share in shares:
            if rates:
                place = tuple(map(share.context.get, ("source", "table", "gpu")))
                tables.setdefault(place, []).append((share, rates[0]))
    for pairs in tables.values():
        implied = tuple(dict.fromkeys(round(_implied(*pair)) for pair in pairs))
        for share, rate in pairs:
            yield share, _finding(share, rate, pairs, ", ".join(f"{peak:,}" for peak in implied), len(implied))


def _implied(share: Claim, rate: Claim) -> float:
    return rate.value / share.value * 100


def _ends(share: Claim, rate: Claim) -> tuple[float, float]:
    return rate.low / share.high * 100 * (1 - _WITHIN), rate.high / share.low * 100 * (1 + _WITHIN)


def _finding(share: Claim, rate: Claim, pairs: list[tuple[Claim, Claim]], implied: str, number: int) -> Finding | None:
    low, high = _ends(share, rate)
    same_format = [
        pair for pair in pairs if pair[0].context.is_narrow == share.context.is_narrow and pair[0] is not share
    ]
    apart = [pair for pair in same_format if _ends(*pair)[0] > high or _ends(*pair)[1] < low]
    values: dict[str, Value] = {
        "share": share.value,
        "tflops": rate.value,
        "implied": _implied(share, rate),
        "all_implied": implied,
    }
    known = _known_peaks(share)
    listed = " or ".join(f"{peak:,.0f}" for peak in known)
    if apart:
        lines = (rate.line, *(pair[0].line for pair in apart))
        return contradictory(Kind.PEAKS_DIFFER, *lines, number=number, known=listed, **values)
    if known and not any(low <= peak <= high for peak in known):
        return contradictory(Kind.PEAK_UNKNOWN, rate.line, known=listed, **values)
    return None


def _known_peaks(share: Claim) -> list[float]:
    """Return the peaks of all cards that the row's name may mean, for its format; none where the card is not known."""
    try:
        name = share.context.gpu
    except NotDecidable:
        return []
    found = cards.every(name)
    rates = [one.fp8_tflops if share.context.is_narrow else one.bf16_tflops for one in found]
    return sorted({rate for rate in rates if rate})
