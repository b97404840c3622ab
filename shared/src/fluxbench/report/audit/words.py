"""A finding -> a sentence of fixed clauses with its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluxbench.analysis.audit.finding import Finding, Kind
from fluxbench.core.formatting import number, percent

Values = Mapping[str, Any]


def sentence(finding: Finding) -> str:
    """Return what is wrong, with the numbers, what could explain it, and what it rests on."""
    words = _WORDS[finding.kind](finding.values)
    return f"{words}; this holds if {finding.assumed}, which is not stated" if finding.assumed else words


def _ms(value: float) -> str:
    return f"{number(value)} ms"


def _bytes(value: float) -> str:
    unit, size = next(
        ((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if value >= size), ("B", 1)
    )
    return f"{number(value / size)} {unit}"


def _too_fast(values: Values) -> str:
    text = f"faster than the card can be: {number(values['ms'], 4)} ms, but {values['arithmetic']}"
    return f"{text}{_of_causal(values)}"


def _too_fast_layer(values: Values) -> str:
    text = f"with the projections {number(values['ms'], 4)} ms, but {values['arithmetic']}"
    return f"{text}{_of_causal(values)}"


def _of_causal(values: Values) -> str:
    """Return the bound of a causal call, where a figure is under it too and the mask is not stated."""
    if values["mask_stated"] or values["unless_causal"]:
        return ""
    return f", or {_ms(values['causal_bound_ms'])} if it was causal"


def _rate_over_peak(values: Values) -> str:
    return (
        f"faster than the card can be: {values['tflops']:,.4g} TFLOP/s, but its most is {values['most']:,.0f} TFLOP/s"
    )


def _training(values: Values) -> str:
    return (
        f"{values['per_parameter']} FLOP x {values['params'] / 1e9:.3g} billion parameters x "
        f"{values['tokens_per_s']:,.0f} tokens/s = {values['tflops']:,.0f} TFLOP/s, without attention"
    )


def _training_over_peak(values: Values) -> str:
    return f"faster than one card can be: {_training(values)}, but its most is {values['most']:,.0f} TFLOP/s"


def _training_near_peak(values: Values) -> str:
    share = percent(values["share"], 0)
    return f"{_training(values)} is {share} of the card's peak; FlashAttention-2's paper reaches 72% on an A100"


def _generation(values: Values) -> str:
    return (
        f"faster than one card can be: {number(values['weights_gb'])} GB of weights are read for each token, "
        f"{values['gb_s']:,.0f} GB/s at batch {values['batch']}, but its most is {values['most']:,.0f} GB/s"
    )


def _time_and_rate(values: Values) -> str:
    text = (
        f"{values['tflops']:,.4g} TFLOP/s, but its time of {number(values['ms'])} ms for {values['flops']:.3g} FLOP is "
        f"{values['implied_tflops']:,.0f} TFLOP/s"
    )
    if values["inferred_from"]:
        text += f" (shape of the row with the same time in {values['inferred_from']!r})"
    if values["as_if"] == "unit":
        return f"{text}; a factor of 1,000 would explain it"
    return text + (f"; counting {values['as_if']} would explain it" if values["as_if"] else "")


def _speedup(values: Values) -> str:
    return (
        f"a speedup of {number(values['speedup'])}, but the quotient of its own figures is {number(values['quotient'])}"
    )


def _speedup_range(values: Values) -> str:
    stated, quotient = number(values["speedup"]), number(values["quotient"])
    return f"{stated} as the {values['which']} speedup, but that of its own tables is {quotient}"


def _total_under_part(values: Values) -> str:
    return f"both passes take {_ms(values['ms'])}, less than the {values['part']} alone, {_ms(values['part_ms'])}"


def _total_under_sum(values: Values) -> str:
    total = values["forward_ms"] + values["backward_ms"]
    return (
        f"both passes take {_ms(values['ms'])}, but forward is {_ms(values['forward_ms'])} and backward "
        f"{_ms(values['backward_ms'])}, {_ms(total)} together"
    )


def _memory_total(values: Values) -> str:
    return f"a total of {_bytes(values['claimed_bytes'])}, but its parts are {_bytes(values['sum_bytes'])}"


def _backward_shorter(values: Values) -> str:
    return (
        f"backward takes {_ms(values['ms'])} and forward {_ms(values['forward_ms'])}, but backward needs at least "
        "twice the operations"
    )


def _two_values(values: Values) -> str:
    return f"{_ms(values['ms'])} here, but {_ms(values['other_ms'])} for the same in {values['other_table']!r}"


def _peaks_differ(values: Values) -> str:
    card = f"; the card's is {values['known']}" if values["known"] else ""
    return (
        f"{_implied(values)}, but the rows of this table imply {values['number']} peaks: {values['all_implied']}{card}"
    )


def _peak_unknown(values: Values) -> str:
    return f"{_implied(values)}, but the card's is {values['known']}"


def _implied(values: Values) -> str:
    rate, peak = f"{values['tflops']:,.4g} TFLOP/s", f"{values['implied']:,.0f} TFLOP/s"
    return f"{rate} at {values['share']:g}% imply a peak of {peak}"


def _matrix(values: Values) -> str:
    return _formula(values, "batch x heads x length x length")


def _cache(values: Values) -> str:
    return _formula(values, "2 x batch x length x key heads x head_dim")


def _formula(values: Values, formula: str) -> str:
    assumed = "" if values["dtype_stated"] else ", which are assumed"
    return (
        f"{values['claimed']}, but {formula} = {values['elements']:,} elements of {values['bytes_per_element']:g} bytes"
        f"{assumed}, are {_bytes(values['expected_bytes'])}"
    )


def _weights(values: Values) -> str:
    return f"{values['claimed']}, but the weights of {values['model']} alone are {_of_weights(values)}"


def _weights_and_cache(values: Values) -> str:
    cache = values["cache_bytes"]
    return (
        f"{values['claimed']}, but keys and values of {values['tokens']:,} tokens are {_bytes(cache)} and the weights "
        f"of {values['model']} {_of_weights(values)}: {_bytes(cache + values['weights_bytes'])}"
    )


def _weights_and_gradients(values: Values) -> str:
    return (
        f"{values['claimed']}, but the weights of {values['model']} are {_of_weights(values)}, and their gradients as "
        f"many again: {_bytes(2 * values['weights_bytes'])}"
    )


def _of_weights(values: Values) -> str:
    bits = 8 * values["bytes_per_weight"]
    assumed = "" if values["dtype_stated"] else ", which is assumed"
    return f"{_bytes(values['weights_bytes'])} in {bits:g} bits{assumed}"


def _per_token_growth(values: Values) -> str:
    return (
        f"'per token' grows with the length to the power of {values['power']:.2f} ({values['value']} at "
        f"{values['length']:,}, {values['other_value']} at {values['other_length']:,}), but operations and scores of a "
        "token grow in proportion to it"
    )


def _growths_differ(values: Values) -> str:
    return (
        f"grows with the length to the power of {values['power']:.2f}, but {values['other']} to that of "
        f"{values['other_power']:.2f}; both have the same operations"
    )


def _per_token_total(values: Values) -> str:
    text = (
        f"{values['claimed']} a token, but its total of {values['total']} over {values['tokens']:,} tokens is "
        f"{_bytes(values['each_bytes'])} a token"
    )
    if "cache" not in values:
        return text
    return (
        f"{text}; and as the memory while one token is made it would grow with the cache, which grows from "
        f"{values['cache']} to {values['other_cache']}"
    )


def _near_peak(values: Values) -> str:
    return (
        f"{percent(values['share'], 0)} of the peak at the highest clock, {number(values['times'])} times the "
        f"{percent(values['ours'], 0)} that {values['variant']} reaches here on {values['device']}"
    )


def _too_slow(values: Values) -> str:
    return (
        f"{_ms(values['ms'])} is {values['times']:,.0f} times the {_ms(values['unfused_ms'])} that unfused attention "
        "in float32 needs; a time in microseconds would explain it"
    )


_WORDS: Mapping[Kind, Callable[[Values], str]] = {
    Kind.TOO_FAST: _too_fast,
    Kind.TOO_FAST_LAYER: _too_fast_layer,
    Kind.RATE_OVER_PEAK: _rate_over_peak,
    Kind.TRAINING_OVER_PEAK: _training_over_peak,
    Kind.GENERATION_OVER_BANDWIDTH: _generation,
    Kind.TIME_AND_RATE: _time_and_rate,
    Kind.SPEEDUP: _speedup,
    Kind.SPEEDUP_RANGE: _speedup_range,
    Kind.TOTAL_UNDER_PART: _total_under_part,
    Kind.TOTAL_UNDER_SUM: _total_under_sum,
    Kind.MEMORY_TOTAL: _memory_total,
    Kind.BACKWARD_SHORTER: _backward_shorter,
    Kind.TWO_VALUES: _two_values,
    Kind.PEAKS_DIFFER: _peaks_differ,
    Kind.PEAK_UNKNOWN: _peak_unknown,
    Kind.ATTENTION_MATRIX: _matrix,
    Kind.CACHE: _cache,
    Kind.WEIGHTS: _weights,
    Kind.WEIGHTS_AND_CACHE: _weights_and_cache,
    Kind.WEIGHTS_AND_GRADIENTS: _weights_and_gradients,
    Kind.PER_TOKEN_GROWTH: _per_token_growth,
    Kind.GROWTHS_DIFFER: _growths_differ,
    Kind.PER_TOKEN_TOTAL: _per_token_total,
    Kind.NEAR_PEAK: _near_peak,
    Kind.TRAINING_NEAR_PEAK: _training_near_peak,
    Kind.TOO_SLOW: _too_slow,
}
