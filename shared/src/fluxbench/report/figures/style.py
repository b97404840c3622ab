"""How a variant looks: the same on every figure, and told apart without colour.

Colour and marker say what the kernel is (its base), dash and marker filling say in what form it was called. Every
colour has a contrast of at least 3:1 on both of the page's backgrounds, #0a0a0a and #ffffff (WCAG 2.2, 1.4.11), and
the colours were chosen to differ also under protanopia and deuteranopia (Machado et al., 2009).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from fluxbench.analysis.ranking import base, form

# Suffix of a variant's name -> (dash pattern in points: drawn, left out, ...; filling of the marker).
_FORMS: dict[str, tuple[tuple[float, ...], str]] = {
    "": ((), "full"),
    "_copy": ((1.0, 2.0), "none"),
    "_compile_d": ((5.0, 2.0), "bottom"),
    "_compile_ma": ((6.0, 2.0, 1.0, 2.0), "left"),
}

COLOURS = ("#e96a0e", "#0697c5", "#9a4bff", "#b77a54", "#b12b66", "#e336fd", "#c11815", "#1060c2", "#019f9d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "<", ">", "p")

# One more base than there are colours starts the colours again, beside another marker.
BASES = (
    "torch_cudnn",
    "torch_flash",
    "torch_efficient",
    "torch_math",
    "torch_native",
    "flex",
    "triton_flash",
    "flash_attn_2",
    "flash_attn_3",
    "cudnn_frontend",
    "xformers",
    "flash_attn_4",
    "flash_attn_3_fp8",
    "te_fused",
    "te_flash",
    "te_unfused",
    "torch_fa3",
    "torch_fa4",
    "flex_flash",
    "flex_eager",
    "sage_int8_fp16_triton",
    "sage_int8_fp16_cuda",
    "sage_int8_fp8_sm90",
    "hf_flash_attn2",
    "hf_flash_attn3",
    "hf_sage",
    "cudnn_frontend_fp8",
)


@dataclass(frozen=True)
class Look:
    """Colour, marker, dash pattern in points (empty: solid) and filling of a variant's line."""

    colour: str
    marker: str
    dashes: tuple[float, ...]
    filling: str


def look(variant: str) -> Look:
    """Return how to draw a variant. It follows from the name alone, not from what else is on the figure."""
    kernel = base(variant)
    index = BASES.index(kernel) if kernel in BASES else zlib.crc32(kernel.encode(errors="replace"))
    dashes, filling = _FORMS[form(variant)]
    return Look(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], dashes, filling)
