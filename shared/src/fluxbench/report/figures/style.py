"""How a variant looks: the same on every figure, and told apart without colour.

Colour and marker say what the kernel is, dash and marker filling say in what form it was called. Every colour has a
contrast of at least 3:1 on both of the page's backgrounds, #0a0a0a and #ffffff (WCAG 2.2, 1.4.11), and the colours were
chosen to differ also under protanopia and deuteranopia (Machado et al., 2009).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from fluxbench.records.schema import Record
from fluxbench.variants import REGISTRY, forms

INK = "#010203"  # what is drawn in this colour becomes the page's text colour
COLOURS = ("#e96a0e", "#0697c5", "#9a4bff", "#b77a54", "#b12b66", "#e336fd", "#c11815", "#1060c2", "#019f9d")

# Shapes around the origin in CSS pixels, as SVG paths, by matplotlib's name of the marker. The site draws these.
MARKERS = {
    "o": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "s": "M-4.5 -4.5h9v9h-9z",
    "^": "M0 -5.5L5.5 4.5H-5.5z",
    "D": "M0 -6L6 0L0 6L-6 0z",
    "v": "M0 5.5L5.5 -4.5H-5.5z",
    "P": "M-2 -5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z",
    "X": "M-5 -2.5L-2.5 -5L0 -2.5L2.5 -5L5 -2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0z",
    "h": "M0 -5.5L4.8 -2.75V2.75L0 5.5L-4.8 2.75V-2.75z",
    "<": "M-5.5 0L4.5 -5.5V5.5z",
    ">": "M5.5 0L-4.5 -5.5V5.5z",
    "p": "M0 -5.5L5.2 -1.7L3.2 4.5H-3.2L-5.2 -1.7z",
}

# By form: dash pattern in points (drawn, left out, ...; empty is solid) and filling of the marker.
_FORMS: dict[str, tuple[tuple[float, ...], str]] = {
    forms.EAGER.name: ((), "full"),
    forms.COPY.name: ((1.0, 2.0), "none"),
    forms.COMPILE_DEFAULT.name: ((5.0, 2.0), "bottom"),
    forms.COMPILE_MAX_AUTOTUNE.name: ((6.0, 2.0, 1.0, 2.0), "left"),
}
# Kernels by their number, which gives colour and marker, so that a kernel keeps its look. Those that the registry
# has beside these follow. One more than there are colours starts the colours again, beside another marker.
_NUMBERED = (
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
_NUMBERS = {name: number for number, name in enumerate(dict.fromkeys((*_NUMBERED, *(v.name for v in REGISTRY))))}


@dataclass(frozen=True)
class Look:
    """Colour, marker, dash pattern in points (empty: solid) and filling of a variant's line."""

    series: int  # number of the colour, from 1 on: `--s1` of the pages
    marker: str
    dashes: tuple[float, ...]
    filling: str

    @property
    def colour(self) -> str:
        """The colour in a figure before it takes the page's."""
        return COLOURS[self.series - 1]

    @property
    def dash_options(self) -> dict[str, tuple[float, ...]]:
        """What a line of matplotlib's takes for the dashes; nothing where it is solid."""
        return {"dashes": self.dashes} if self.dashes else {}

    def mark_options(self, size_pt: float) -> dict[str, object]:
        """Return what a mark of matplotlib's takes, of a size in points."""
        return {"color": self.colour, "fillstyle": self.filling, "markersize": size_pt, "clip_on": False}


def look(kernel: str, form: str) -> Look:
    """Return how to draw a kernel in a form. It follows from the two alone, not from what else is on the figure."""
    number = _NUMBERS.get(kernel, zlib.crc32(kernel.encode(errors="replace")))
    dashes, filling = _FORMS.get(form, _FORMS[forms.EAGER.name])
    return Look(number % len(COLOURS) + 1, tuple(MARKERS)[number % len(MARKERS)], dashes, filling)


def look_of(record: Record) -> Look:
    """Return how to draw a record's variant."""
    return look(record.kernel, record.form)
