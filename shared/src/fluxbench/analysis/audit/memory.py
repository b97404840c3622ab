"""Memory against its formula: the matrix of scores, the cache of keys and values, a model's weights."""

from __future__ import annotations

from collections.abc import Iterator

from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.columns import BINARY
from fluxbench.analysis.audit.context import NotDecidable
from fluxbench.analysis.audit.finding import Finding, Kind, Value, contradictory, resting_on

_WITHIN = 0.02  # of a formula that has no unknowns
_16_BITS = "its elements have 16 bits"
_OTHER_BYTES = 0.5, 1.0, 4.0  # of an element that is not of 16 bits


def judge(claim: Claim) -> Iterator[Finding]:
    """Yield where bytes contradict their formula. Raises `NotDecidable`."""
    context = claim.context
    if claim.metric is not Metric.BYTES or context.get("per"):
        return
    component = context.component
    if component == "attention matrix":
        yield from _exact(claim, Kind.ATTENTION_MATRIX, _matrix_elements(claim))
    elif component == "kv cache":
        yield from _exact(claim, Kind.CACHE, _cache_elements(claim))
    elif component == "" and context.get("model"):
        yield from _of_model(claim)
    elif component == "":
        raise NotDecidable("of what the memory is made is not stated")


def is_binary_only(claim: Claim) -> bool:
    """Whether a figure in MB or GB agrees with its formula only if these are powers of two."""
    try:
        if claim.context.component == "kv cache":
            elements = _cache_elements(claim)
        elif claim.context.component == "attention matrix":
            elements = _matrix_elements(claim)
        else:
            return False
    except NotDecidable:
        return False
    expected = elements * _bytes_per_element(claim)
    return claim.factor in BINARY and not _fits(claim, expected, 1.0) and _fits(claim, expected, _binary(claim))


def _matrix_elements(claim: Claim) -> int:
    context = claim.context
    return context.size("batch") * context.size("heads") * context.size("seq_len") ** 2


def _cache_elements(claim: Claim) -> int:
    context = claim.context
    heads = "kv_heads" if context.get("kv_heads") else "heads"
    return 2 * context.size("batch") * context.size("seq_len") * context.size(heads) * context.size("head_dim")


def _bytes_per_element(claim: Claim) -> float:
    if claim.context.is_narrow:
        raise NotDecidable("the bytes of an element of a narrow format are not stated")
    return 4.0 if claim.context.dtype == "float32" else 2.0


def _binary(claim: Claim) -> float:
    """Return by how much larger a figure is if its MB is 2**20 bytes, and so on."""
    return BINARY.get(claim.factor, claim.factor) / claim.factor


def _fits(claim: Claim, expected: float, times: float) -> bool:
    return claim.low * times <= expected * (1 + _WITHIN) and claim.high * times >= expected * (1 - _WITHIN)


def _exact(claim: Claim, kind: Kind, elements: int) -> Iterator[Finding]:
    """Yield where a figure is neither the formula's, in powers of ten or of two, nor zero: nothing is stored then."""
    each = _bytes_per_element(claim)
    expected = elements * each
    if claim.value == 0 or _fits(claim, expected, 1.0) or _fits(claim, expected, _binary(claim)):
        return
    others = () if claim.context.states_precision else (elements * each for each in _OTHER_BYTES)
    fits = any(_fits(claim, other, times) for other in others for times in (1.0, _binary(claim)))
    finding = contradictory(
        kind,
        claimed=claim.text,
        claimed_bytes=claim.value,
        elements=elements,
        bytes_per_element=each,
        expected_bytes=expected,
        dtype_stated=bool(claim.context.get("dtype")),
    )
    yield resting_on([_16_BITS] * fits, finding)


def _of_model(claim: Claim) -> Iterator[Finding]:
    """Yield where a model's weights alone, or with its cache or its gradients, are larger than the memory claimed."""
    context = claim.context
    each = 0.5 if context.is_narrow else 2.0  # float32 has more
    model = context.model
    weights = model.weights_bytes(each)
    most = claim.high * _binary(claim)
    values: dict[str, Value] = {
        "claimed": claim.text,
        "model": model.name,
        "weights_bytes": weights,
        "bytes_per_weight": each,
        "dtype_stated": bool(context.get("dtype")),
    }
    is_training = bool(context.get("pass")) and context.passes == "forward+backward"
    # A fourth of the bytes is left in 4 bits.
    least = 1.0 if context.states_precision else 0.25

    def assumed(needed: float) -> list[str]:
        return [_16_BITS] * (most >= least * needed)

    if most < weights:
        yield resting_on(assumed(weights), contradictory(Kind.WEIGHTS, **values))
    elif is_training and most < 2 * weights:
        trained = "most weights are trained"
        yield resting_on([trained, *assumed(2 * weights)], contradictory(Kind.WEIGHTS_AND_GRADIENTS, **values))
    elif not is_training and context.get("seq_len"):
        batch = context.size("batch") if context.get("batch") else 1
        cache = model.cache_bytes(batch * context.size("seq_len"), each)
        if most < weights + cache:
            tokens = batch * context.size("seq_len")
            finding = contradictory(Kind.WEIGHTS_AND_CACHE, cache_bytes=cache, tokens=tokens, **values)
            yield resting_on(assumed(weights + cache), finding)
