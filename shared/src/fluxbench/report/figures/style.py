"""How a variant looks: the same on every figure, and told apart without colour.

Colour says whose kernel it is and the marker which, dash and marker filling say in what form it was called. Every
colour has a contrast of at least 3:1 on both of the page's backgrounds, #0a0a0a and #ffffff (WCAG 2.2, 1.4.11), and
the colours were chosen to differ also under protanopia and deuteranopia (Machado et al., 2009).
"""

from __future__ import annotations

import itertools
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
# Markers of kernels, by the number of the colour: a family, of which several often lie together.
_FAMILIES: dict[int, dict[str, str]] = {
    1: {  # cuDNN's
        **{"torch_cudnn": "o", "cudnn_frontend": ">", "te_fused": "^", "cudnn_frontend_fp8": "p"},
        **{"cudnn_frontend_det": "s", "te_fused_det": "X"},
    },
    2: {"torch_native": "v"},
    3: {"flash_attn_4": "D", "flex_flash": "h", "torch_fa4": "X", "flash_attn_4_det": "<"},
    4: {  # without fusing, with little memory, and SageAttention
        **{"torch_efficient": "^", "torch_math": "D", "te_unfused": "v", "torch_eager": ">"},
        **{"torch_efficient_det": "X", "torch_efficient_tf32": "h", "torch_math_tf32": "<"},
        **{"sage_int8_fp16_triton": "P", "sage_int8_fp16_cuda": "p", "sage_int8_fp8_sm90": "o", "hf_sage": "s"},
    },
    5: {"gluon_flash": "P", "gluon_int8_fp8": "o", "hf_local_flash": "h", "gluon_flash_det": "X", "flashinfer": "s"},
    6: {"flex": "P", "flex_eager": "<", "flex_dynamic": "p"},
    7: {"triton_flash": "X", "triton_decode": "<", "triton_flash_tf32": "v"},
    8: {  # FlashAttention-2
        **{"torch_flash": "s", "flash_attn_2": "h", "te_flash": "D", "xformers": "p", "hf_flash_attn2": "P"},
        **{"torch_flash_det": "<", "flash_attn_2_det": "o", "flash_attn_2_kvcache": "v"},
    },
    9: {  # FlashAttention-3
        **{"flash_attn_3": "<", "flash_attn_3_fp8": "s", "flash_attn_3_kvcache": "^"},
        **{"torch_fa3": "X", "hf_flash_attn3": "D"},
    },
}


def _looks() -> dict[str, tuple[int, str]]:
    """Return colour and marker of each kernel of the registry; those of no family get what is left."""
    found = {kernel: (series, marker) for series, family in _FAMILIES.items() for kernel, marker in family.items()}
    left = (each for each in itertools.product(_FAMILIES, MARKERS) if each not in found.values())
    return found | {one.name: next(left) for one in REGISTRY if one.name not in found}


_LOOKS = _looks()


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
    number = zlib.crc32(kernel.encode(errors="replace"))
    series, marker = _LOOKS.get(kernel, (number % len(COLOURS) + 1, tuple(MARKERS)[number % len(MARKERS)]))
    return Look(series, marker, *_FORMS.get(form, _FORMS[forms.EAGER.name]))


def look_of(record: Record) -> Look:
    """Return how to draw a record's variant."""
    return look(record.kernel, record.form)
