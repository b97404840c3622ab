"""What no kernel can do on a card: times shorter than its operations or bytes take, rates over its peak.

Every bound errs on the side of the card: highest clocks, fewest operations, as much in the cache as it holds
(`operations/roofline.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from fluxbench.analysis.audit import cards
from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import Context, NotDecidable, projection_flops
from fluxbench.analysis.audit.finding import Finding, Kind, Value, implausible, impossible, resting_on
from fluxbench.operations.roofline import Roofline, compute_bound, shortest

# FlashAttention-2's count of operations over the fewest: by so much may a rate that follows that count exceed the peak.
_COUNTED = {"forward": 1.0, "backward": 2.5 / 2, "forward+backward": 3.5 / 3}
# Operations per parameter and token: 2 forward, 4 backward (Kaplan et al., Scaling Laws for Neural Language Models,
# 2020, section 2.1); attention's own are left out.
_PER_PARAMETER = {"forward": 2, "backward": 4, "forward+backward": 6}
# FlashAttention-2 trains GPT models at 225 TFLOP/s on an A100, 72% of its peak (Dao, 2023, section 4.2).
_TRAINING_SHARE = 0.75
_SLOW = 10.0  # times as long as unfused attention in float32 takes
_SLOW_FROM_MS = 1.0  # shorter times may be those of launching
_ROWS = 64  # of queries that one multiprocessor takes at least: with fewer such parts others idle
# What a finding may rest on.
_NOT_CAUSAL, _IN_16_BITS = "the call was not causal", "it computed in 16 bits"
_WIDTH, _ONE_CARD = "the width is heads x head_dim", "it ran on one card"


def judge(claim: Claim) -> Iterator[Finding]:
    """Yield what is impossible, or far from what a card does, about a figure by itself. Raises `NotDecidable`."""
    context = claim.context
    if claim.metric is Metric.TIME and not context.get("per"):
        yield from _time(claim)
    elif claim.metric is Metric.RATE:
        yield from _rate(claim)
    elif claim.metric in (Metric.SAMPLES, Metric.TOKENS):
        yield from _throughput(claim)


def flops_per_s(claim: Claim) -> float | None:
    """Return the rate that a figure implies, in TFLOP/s as operations are usually counted; None: unknown."""
    context = claim.context
    try:
        if claim.metric is Metric.RATE:
            return claim.value
        if claim.metric is Metric.TIME and not context.get("per"):
            return context.counted.cost.flops / claim.value / 1e9
        if claim.metric in (Metric.SAMPLES, Metric.TOKENS) and context.passes in _PER_PARAMETER:
            return _model_tflops(claim)
    except NotDecidable:
        pass
    return None


def share_of_peak(claim: Claim) -> float | None:
    """Return a figure as a share of the data sheet's dense peak, fp8's for what is narrow; None: unknown."""
    tflops = flops_per_s(claim)
    try:
        rates = claim.context.rates
    except NotDecidable:
        return None
    peak = rates.fp8_tflops if claim.context.is_narrow else rates.bf16_tflops
    return tflops / peak if tflops and peak else None


@functools.lru_cache(maxsize=1 << 16)
def _bound(context: Context, *, causal: bool, narrow: bool, layer: bool) -> Roofline | None:
    """Return the shortest time of a call, with its projections for a layer; None where no bound is known.

    In a narrow format inputs may be narrow too, and a layer reads its input and not q, k and v: bytes are not counted.
    """
    workload, rates = context.workload(causal=causal), context.rates
    precision = "narrow" if narrow else "16-bit"
    if not context.layer:
        return compute_bound(workload, rates, precision) if narrow else shortest(workload, rates)
    bound = compute_bound(workload, rates, precision)
    if bound is None or not layer:
        return bound
    flops = workload.cost.min_flops + projection_flops(context)
    tflops = rates.limits.tflops(narrow=narrow)
    ms = flops / tflops / 1e9
    return Roofline(ms=ms, arithmetic=f"{flops:.3g} FLOP / {tflops:,.0f} TFLOP/s = {ms:.3g} ms")


def _time(claim: Claim) -> Iterator[Finding]:
    yield from _too_fast(claim, Kind.TOO_FAST)
    if claim.context.layer:
        yield from _too_fast(claim, Kind.TOO_FAST_LAYER, _WIDTH)
    yield from _too_slow(claim)


def _too_fast(claim: Claim, kind: Kind, *assumed: str) -> Iterator[Finding]:
    """Yield that a time is shorter than its bound, and what must hold for that beside `assumed`."""
    context, ms = claim.context, claim.high
    bound_of = functools.partial(_bound, context, layer=kind is Kind.TOO_FAST_LAYER)
    stated, is_narrow = bool(context.causal), context.is_narrow
    bound = bound_of(causal=stated, narrow=is_narrow)
    if bound is None or ms >= bound.ms:
        return
    may_be_causal = context.causal is None and context.may_be_causal

    def is_possible(causal: bool, narrow: bool) -> bool:
        other = bound_of(causal=stated or causal, narrow=is_narrow or narrow)
        return other is None or ms >= other.ms

    of_causal = bound_of(causal=stated or may_be_causal, narrow=is_narrow)
    finding = impossible(
        kind,
        ms=claim.value,
        bound_ms=bound.ms,
        arithmetic=bound.arithmetic,
        unless_causal=may_be_causal and is_possible(True, False),
        mask_stated=context.causal is not None,
        causal_bound_ms=of_causal.ms if of_causal else 0.0,
    )
    of_call = _assumed(is_possible, mask=may_be_causal, precision=not context.states_precision)
    yield resting_on([*assumed, *of_call], finding)


def _assumed(is_possible: Callable[[bool, bool], bool], *, mask: bool, precision: bool) -> tuple[str, ...]:
    """Return what must hold for a figure to be impossible, of a `mask` and a `precision` that are not stated.

    `is_possible` says whether it is of a causal call, and in a narrow format.
    """
    needed = {
        _NOT_CAUSAL: mask and is_possible(True, False),
        _IN_16_BITS: precision and is_possible(False, True),
    }
    if not any(needed.values()) and mask and precision and is_possible(True, True):
        return (f"either {_NOT_CAUSAL} or {_IN_16_BITS}",)
    return tuple(words for words, is_needed in needed.items() if is_needed)


def _too_slow(claim: Claim) -> Iterator[Finding]:
    """Yield that a time is far longer than unfused attention in float32 would take: the unit may be another."""
    context, rates = claim.context, claim.context.rates
    if context.known_whole:
        return
    workload = context.workload(causal=False)
    pairs = context.shape["batch"] * context.shape["heads"] * context.shape["seq_len_q"] * context.shape["seq_len_k"]
    # float32 without tensor cores runs at a sixteenth of the 16-bit rate (A100: 19.5 of 312); scores are moved 8 times.
    slowest = workload.cost.flops / rates.bf16_tflops * 16 / 1e9
    slowest += 8 * 4 * pairs / rates.memory_gb_s / 1e6 if rates.memory_gb_s else slowest
    parts = context.shape["batch"] * context.shape["heads"] * math.ceil(context.shape["seq_len_q"] / _ROWS)
    slowest *= max(1.0, rates.limits.sms / parts)
    slowest += projection_flops(context) / rates.bf16_tflops * 16 / 1e9 if context.layer else 0.0
    if claim.low > max(_SLOW * slowest, _SLOW_FROM_MS):
        yield implausible(Kind.TOO_SLOW, ms=claim.value, unfused_ms=slowest, times=claim.value / slowest)


def _rate(claim: Claim) -> Iterator[Finding]:
    context = claim.context
    passes = context.passes
    if passes not in _COUNTED:
        raise NotDecidable(f"the operations of {passes} are not known")
    limits, counted = context.rates.limits, _COUNTED[passes]
    most = limits.tflops(narrow=context.is_narrow) * counted
    if claim.low <= most:
        return

    def is_possible(causal: bool, narrow: bool) -> bool:
        return claim.low <= limits.tflops(narrow=context.is_narrow or narrow) * counted * (2 if causal else 1)

    assumed = _assumed(is_possible, mask=context.causal is None, precision=not context.states_precision)
    yield resting_on(assumed, impossible(Kind.RATE_OVER_PEAK, tflops=claim.value, most=most))


def _model_tflops(claim: Claim) -> float:
    context = claim.context
    tokens = claim.value * (context.size("seq_len") if claim.metric is Metric.SAMPLES else 1)
    return _PER_PARAMETER[context.passes] * context.model.params * tokens / 1e12


def _throughput(claim: Claim) -> Iterator[Finding]:
    context = claim.context
    model, rates = context.model, context.rates
    if context.passes == "generation":
        yield from _generation(claim)
        return
    tflops, most = _model_tflops(claim), rates.limits.tflops(narrow=context.is_narrow)
    tokens_per_s = claim.value * (context.size("seq_len") if claim.metric is Metric.SAMPLES else 1)
    values: dict[str, Value] = {
        "claimed": claim.text,
        "model": model.name,
        "per_parameter": _PER_PARAMETER[context.passes],
        "params": model.params,
        "tokens_per_s": tokens_per_s,
        "tflops": tflops,
        "peak": rates.bf16_tflops,
    }
    low = tflops * claim.low / claim.value
    if low > most:
        narrow = not context.states_precision and low <= rates.limits.tflops(narrow=True)
        yield resting_on([_ONE_CARD, *[_IN_16_BITS] * narrow], impossible(Kind.TRAINING_OVER_PEAK, most=most, **values))
    elif not context.is_narrow and tflops > _TRAINING_SHARE * cards.sustained_peak(rates):
        yield implausible(Kind.TRAINING_NEAR_PEAK, share=tflops / rates.bf16_tflops, best=_TRAINING_SHARE, **values)


def _generation(claim: Claim) -> Iterator[Finding]:
    """Yield that generating reads the weights faster than the memory can: once for a token of each batch entry."""
    context, rates = claim.context, claim.context.rates
    if not rates.memory_gb_s:
        raise NotDecidable("the memory bandwidth of the card is not known")
    weights = context.model.weights_bytes(0.5 if context.is_narrow else 2)
    batch = context.size("batch") if context.get("batch") else 1
    gb_s, most = claim.low * weights / batch / 1e9, rates.limits.gb_s()
    if gb_s > most and not context.get("batch"):
        raise NotDecidable("the batch size is not stated")
    if gb_s > most:
        narrow = not context.states_precision and gb_s / 4 <= most  # weights of 4 bits
        values: dict[str, Value] = {"gb_s": gb_s, "most": most, "weights_gb": weights / 1e9, "batch": batch}
        yield resting_on([_ONE_CARD, *[_IN_16_BITS] * narrow], impossible(Kind.GENERATION_OVER_BANDWIDTH, **values))
