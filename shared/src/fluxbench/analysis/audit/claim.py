"""One published figure: what it states, its value in one unit, and how far rounding leaves it open."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxbench.analysis.audit.context import Context

_NUMBER = re.compile(r"[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?|[+-]?\.(\d+)(?:[eE]([+-]?\d+))?")


class Metric(enum.StrEnum):
    """What a figure states, by the unit in which it is kept."""

    TIME = "ms"
    RATE = "TFLOP/s"
    SHARE = "% of peak"
    SPEEDUP = "x"
    BYTES = "bytes"
    SAMPLES = "samples/s"
    TOKENS = "tokens/s"


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A figure of a row. `low` and `high` are the ends of what rounds to `value`."""

    line: int  # of the file, from 1
    context: Context
    metric: Metric
    value: float
    low: float
    high: float
    factor: float  # of the unit that the row states, to that of `metric`
    text: str  # value and unit as the row has them


def number(text: str) -> tuple[float, float, float] | None:
    """Return a positive number and the ends of what rounds to it; None where the text is none.

    A zero at the end of a whole number may be a rounded one: 1150 is 1145 to 1155.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        return None
    whole, decimals, power = match[1] or "0", match[2] or match[4] or "", int(match[3] or match[5] or 0)
    zeros = int(not decimals and whole.endswith("0"))
    half = 0.5 * 10.0 ** (power - len(decimals) + zeros) if abs(power) < 300 else 0.0
    return value, max(value - half, value / 2), value + half
