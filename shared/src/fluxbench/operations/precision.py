"""Precision classes: what a kernel of each may round.

A class's error budget follows from unfused attention that rounds exactly this (`math_attention`), see
`correctness.case`; no budget but that of a quantized variant is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EXACT, ROUNDED, TF32, QUANTIZED = "exact", "rounded", "tf32", "quantized"
_16_BIT = ("bfloat16", "float16")
UNIT_ROUNDOFF = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-24}  # by dtype of the inputs
_TF32_UNIT_ROUNDOFF = 2**-11


@dataclass(frozen=True, kw_only=True)
class PrecisionClass:
    """What a kernel may round."""

    rounds: str  # in words
    dtypes: tuple[str, ...]  # of inputs for which there is the class
    unit_roundoff: Mapping[str, float]
    ungated: tuple[str, ...] = ()  # kinds of inputs on which errors are recorded without a budget


CLASSES: Mapping[str, PrecisionClass] = {
    EXACT: PrecisionClass(
        rounds="what enters a matrix product, and the output, to the inputs' dtype",
        dtypes=(*_16_BIT, "float32"),
        unit_roundoff=UNIT_ROUNDOFF,
    ),
    ROUNDED: PrecisionClass(
        rounds="every intermediate to the inputs' dtype, on float16 inputs partial sums too",
        dtypes=_16_BIT,
        unit_roundoff=UNIT_ROUNDOFF,
    ),
    TF32: PrecisionClass(
        rounds="what enters a matrix product of float32 inputs to TF32",
        dtypes=("float32",),
        unit_roundoff={"float32": _TF32_UNIT_ROUNDOFF},
    ),
    QUANTIZED: PrecisionClass(
        rounds="what enters a matrix product to fewer than 16 bits",
        dtypes=_16_BIT,
        unit_roundoff=UNIT_ROUNDOFF,
        ungated=("peaked", "tailed"),  # the variants declare their budgets for normal and Flux-like inputs
    ),
}
