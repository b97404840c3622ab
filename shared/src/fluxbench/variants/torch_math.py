"""torch's unfused math backend of scaled_dot_product_attention: two matrix products and a softmax.

Exact: bfloat16 and float16 inputs are computed in float32 (torch's default), so it is slow and precise, and it holds
all scores in memory. Runs everywhere. Its `_copy` form is left out: the copies vanish beside the rest.

`torch_math_tf32`: float32 inputs, whose matrix products are in TF32, as torch's switch for it asks. On a GPU of compute
capability 8.0 or newer.
"""

from dataclasses import replace

from fluxbench.operations import precision
from fluxbench.variants import _base, _tf32, forms

VARIANT = _base.Variant(
    name="torch_math",
    label="Unfused math (SDPA)",
    diffusers="_native_math",
    load=lambda call: _base.sdpa("MATH", call),
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        minimum=(5, 0),
        cpu=True,
        causal=_base.YES,
        gqa=_base.YES,
        paged=_base.YES,  # gathered within the call
        backward=_base.YES,
        separate_head_dims=True,
    ),
    forms=forms.COMPILED,
    holds_scores=True,
    score_bytes=(14, 24),  # of float32: scores, their softmax, what replaces masked rows, and their gradients
)
TF32 = replace(
    VARIANT,
    name="torch_math_tf32",
    label="Unfused math, TF32 (SDPA)",
    load=lambda call: _tf32.in_tf32(_base.sdpa("MATH", call), backward=call.backward),
    capabilities=replace(VARIANT.capabilities, dtypes=("float32",), minimum=(8, 0), cpu=False),
    forms=(forms.EAGER,),
    precision_class=precision.TF32,
)
