"""torch's scaled_dot_product_attention with the backend that it picks by itself.

Exact. Runs everywhere. Which kernel it ran is in its record: that depends on the versions of torch and cuDNN.
"""

from fluxbench.variants import _base, forms

VARIANT = _base.Variant(
    name="torch_native",
    label="PyTorch default (SDPA)",
    diffusers="native",
    load=lambda call: _base.sdpa(None, call),
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
    plans=True,  # where it chooses cuDNN
)
