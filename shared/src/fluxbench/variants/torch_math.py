"""torch's unfused math backend of scaled_dot_product_attention: two matrix products and a softmax.

Exact: bfloat16 and float16 inputs are computed in float32 (torch's default), so it is slow and precise, and it holds
all scores in memory. Runs everywhere. Its `_copy` form is left out: the copies vanish beside the rest.
"""

from fluxbench.variants import _base, forms

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
        backward=_base.YES,
        separate_head_dims=True,
    ),
    forms=forms.COMPILED,
)
