"""The upper limit of a rate of which few cases or none were seen."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(count: int, of: int) -> float:
    """Return the one-sided 95% upper limit of a rate: `count` cases of `of` independent ones (Clopper, Pearson, 1934).

    Of none in n it is 1 - 0.05 ** (1 / n), about 3 / n; of nothing observed it is 1. Raises `ValueError` for a count
    that is negative or more than `of`.
    """
    if not 0 <= count <= of:
        raise ValueError(f"a count must be between 0 and {of}, got {count}")
    if count == of:
        return 1.0
    whole = math.lgamma(of + 1)  # logarithms: of many cases a number of combinations is no float
    ways = [whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) for k in range(count + 1)]
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        seen = math.fsum(
            math.exp(log + k * math.log(middle) + (of - k) * math.log1p(-middle)) for k, log in enumerate(ways)
        )
        low, high = (middle, high) if seen > 1 - CONFIDENCE else (low, middle)
    return high
