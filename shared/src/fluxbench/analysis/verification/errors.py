"""Whether errors and budgets can be those of the class that the registry gives a variant."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from statistics import median

from fluxbench.analysis.verification.origin import registered
from fluxbench.analysis.verification.problem import Finding, Findings, Kind, finding
from fluxbench.operations.precision import EXACT, UNIT_ROUNDOFF
from fluxbench.records.schema import Errors, Record
from fluxbench.records.status import Status

# An exact budget is twice the error of unfused attention, plus one rounding of u / sqrt(6). On normal inputs and on
# those with outlier channels unfused attention rounds scores below 8, the probabilities and the output, together at
# most 0.8 u. Of a gradient it also rounds the scores' gradient, and of inputs with a peaked softmax scores up to 64, by
# u / sqrt(3) each relative to itself: an absolute error, which the exponential makes a relative one.
_MOST_ROUNDINGS, _MOST_ROUNDINGS_ELSEWHERE = 2, 80
# Roundings of n terms that are added up in turn: each is one of the sum so far, so together they are u * sqrt(n / 3) of
# terms of one sign, and likewise of random signs; twice that in a budget, and of the scores too.
_OF_SUMS = 2
# The sums of a gradient cancel, and on inputs with a peaked softmax nearly all of it: dk had a budget of 157 u in
# float32, at 128 tokens (unfused attention on a CPU, 2026-11-23).
_MOST_ROUNDINGS_IN_FLOAT32 = 320
_FORWARD = ("attention", "decode")
# By which budgets and the mean square of the reference differ at one workload and kind of inputs, whose seeds may be
# different: that of inputs with a bias in V is of 3,072 random numbers, and has a standard deviation of 2.5%.
_ALIKE = 0.3
_ROUNDED = 0.9  # share of the error of rounding the output, which no kernel can be without
_FIRST = 16  # tokens of a causal call that are always among those that are judged: `correctness.allowance.FIRST`
_SLACK = 1e-3  # relative, for float64 sums in another order


def of_one(record: Record) -> Findings:
    """Yield what errors and budgets of a record cannot be."""
    formed = registered().get(record.variant)
    declared = formed.variant.quantized_budget_rel_l2 if formed else None
    passed = record.status is Status.PASSED
    for output, errors in record.errors.items():
        if declared is not None and errors.budget_rel_l2 != declared:
            yield finding(Kind.BUDGET, output=output, expected=declared, got=errors.budget_rel_l2)
        elif record.precision_class == EXACT and errors.budget_rel_l2 > (most := _most(record)):
            yield finding(Kind.EXACT_BUDGET, output=output, most=most, got=errors.budget_rel_l2)
        if passed and (errors.rel_l2 is None or errors.nan_count > 0 or errors.rel_l2 > errors.budget_rel_l2):
            got = f"{errors.nan_count} elements that are not finite" if errors.nan_count else errors.rel_l2
            yield finding(Kind.OVER_BUDGET, output=output, budget=errors.budget_rel_l2, got=got)
        for part, share in (("head", errors.head_budget_share), ("row", errors.row_budget_share)):
            if passed and share is not None and share > 1:
                yield finding(Kind.OVER_SHARE, output=output, part=part, got=share)
        for rule in _contradictions(record, errors):
            yield finding(Kind.ERRORS, output=output, rule=rule)


def _most(record: Record) -> float:
    """Return the largest budget that an exact kernel can have."""
    shape, unit = record.workload.shape, UNIT_ROUNDOFF.get(record.workload.dtype, 2**-8)
    if record.workload.dtype == "float32":  # whose sums are added up in turn
        longest = max(float(shape.get(name, 0)) for name in ("seq_len_q", "seq_len_k"))
        return (_MOST_ROUNDINGS_IN_FLOAT32 + _OF_SUMS * math.sqrt(longest)) * unit
    usual = record.workload.operation in _FORWARD
    usual &= all(set(errors.rel_l2_by_inputs) <= {"normal", "flux"} for errors in record.errors.values())
    roundings = _MOST_ROUNDINGS if usual else _MOST_ROUNDINGS_ELSEWHERE
    return roundings * unit


def _contradictions(record: Record, errors: Errors) -> Iterator[str]:
    """Yield the rules that the errors of one output break among themselves."""
    rel_l2, rms = errors.rel_l2, None if errors.mse is None else math.sqrt(errors.mse)
    if rel_l2 is None:
        return
    more = 1 + _SLACK
    if errors.rel_l2_by_inputs and rel_l2 not in errors.rel_l2_by_inputs.values():
        yield f"rel_l2 must be that of a kind of inputs, got {rel_l2:.3g}"
    if rms is not None and errors.mean_abs is not None and errors.mean_abs > rms * more:
        yield f"mean_abs must not exceed the root of mse, {rms:.3g}, got {errors.mean_abs:.3g}"
    if rms is not None and errors.max_abs is not None and rms > errors.max_abs * more:
        yield f"the root of mse must not exceed max_abs, {errors.max_abs:.3g}, got {rms:.3g}"
    # With out = expected + error, cosine is least where the error is orthogonal to the output.
    smallest = math.sqrt(max(0.0, 1 - (rel_l2 * more) ** 2)) - 1e-9
    if errors.cosine is not None and not smallest <= errors.cosine <= 1 + 1e-9:
        yield f"cosine must fit rel_l2 {rel_l2:.3g}, got {errors.cosine:.9g}"
    least = _ROUNDED * _rounded(record) * UNIT_ROUNDOFF.get(record.workload.dtype, 0.0) / math.sqrt(6)
    if 0 <= rel_l2 < least and record.workload.dtype in ("bfloat16", "float16"):
        yield f"rel_l2 must be at least that of rounding the output to {record.workload.dtype}, got {rel_l2:.3g}"


def _rounded(record: Record) -> float:
    """Return the share of the error of rounding all outputs that a record's have.

    Under a causal mask the first output is the first value, which nobody rounds. Squares of outputs fall as 1 / n with
    the tokens that they average, so the first has 1 / (1 + 1/2 + ... + 1/n) of all. Of a call that is judged by rows
    these are the first 16 tokens, and random ones, which are next to nothing.
    """
    shape, whole_up_to = record.workload.shape, record.fingerprint.get("whole_up_to")
    if not shape.get("causal") or "seq_len_q" not in shape:  # a layer's or a model's output is of no single value
        return 1.0
    tokens = int(shape["seq_len_q"])
    scores = int(shape["batch"]) * int(shape["heads"]) * tokens * int(shape["seq_len_k"])
    judged = min(tokens, _FIRST) if whole_up_to and scores > int(whole_up_to) else tokens
    return _not_of_the_first(judged)


@functools.lru_cache(maxsize=256)
def _not_of_the_first(tokens: int) -> float:
    """Return the share of the error of rounding all of some tokens' outputs that those after the first have."""
    return math.sqrt(1 - 1 / math.fsum(1 / n for n in range(1, tokens + 1))) if tokens > 1 else 0.0


def of_all(records: Sequence[Record]) -> Iterator[tuple[Record, Finding]]:
    """Yield the records whose budget or reference is not that of the others at their workload."""
    alike: dict[tuple[str, str, str], list[tuple[Record, Errors]]] = {}
    for record in records:
        for output, errors in record.errors.items():
            kind = next((k for k, value in errors.rel_l2_by_inputs.items() if value == errors.rel_l2), None)
            if errors.rel_l2 and kind:
                alike.setdefault((record.workload.name, output, kind), []).append((record, errors))
    for (_, output, _), those in alike.items():
        exact = [(r, e) for r, e in those if r.precision_class == EXACT]
        least = min((e.budget_rel_l2 for _, e in exact), default=0.0)
        for record, errors in exact:
            if errors.budget_rel_l2 > (1 + _ALIKE) * least:
                yield record, finding(Kind.OTHER_BUDGET, output=output, expected=least, got=errors.budget_rel_l2)
        squares = [(r, e.mse / e.rel_l2**2) for r, e in those if e.mse and e.rel_l2]
        middle = median(square for _, square in squares) if squares else 0.0
        for record, square in squares if len(squares) > 2 else ():
            if abs(square / middle - 1) > _ALIKE:
                rule = "mse over rel_l2 squared must be that of the other kernels on the same inputs"
                yield record, finding(Kind.ERRORS, output=output, rule=f"{rule}, {middle:.4g}, got {square:.4g}")
