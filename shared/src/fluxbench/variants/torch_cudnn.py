"""cuDNN's fused attention, through torch's scaled_dot_product_attention.

Exact: probabilities are rounded to the inputs' dtype before the second product, sums are float32. Runs on NVIDIA GPUs
of compute capability 8.0 or newer, with the cuDNN that torch was installed with.
"""

from fluxbench.variants import _base, forms

VARIANT = _base.Variant(
    name="torch_cudnn",
    label="cuDNN (SDPA)",
    diffusers="_native_cudnn",
    load=lambda call: _base.sdpa("CUDNN_ATTENTION", call),
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(8, 0),
        causal=_base.YES,
        gqa=_base.YES,
        paged=_base.YES,  # gathered within the call
        backward=_base.YES,
        separate_head_dims=True,
    ),
    forms=forms.EVERY_FORM,
    plans=True,
    kernel_pattern=r"cudnn",
    backward_kernel_pattern=r"cudnn",
)
