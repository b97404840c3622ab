"""Random powers of two on q, k and v, which change no rounding: a scale that a kernel kept of others is wrong then."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxbench.operations.protocol import Tensors

_MOST_DOUBLINGS = 2


def rescale(inputs: Tensors, dtype: str, rng: random.Random) -> None:
    """Multiply q by a power of two and k by its inverse, v by another one, in place.

    Of float16, whose small numbers would lose bits, v alone, and never made smaller.
    """
    doublings = 0 if dtype == "float16" else rng.randint(-_MOST_DOUBLINGS, _MOST_DOUBLINGS)
    inputs["q"].mul_(2.0**doublings)
    inputs["k"].mul_(2.0**-doublings)
    inputs["v"].mul_(2.0 ** rng.randint(0, 2 * _MOST_DOUBLINGS))
