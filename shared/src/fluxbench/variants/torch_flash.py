"""torch's flash-attention backend of scaled_dot_product_attention: the reference of every ratio.

Wraps the FlashAttention-2 that torch carries (on a CPU, torch's own blocked kernel). Exact: probabilities are rounded
to the inputs' dtype before the second product, sums are float32. Runs on a CPU, and on compute capability 8.0 or newer.

`torch_flash_det`: its backward pass adds up dq in a fixed order, as torch's switch for deterministic algorithms asks.
"""

import dataclasses

from fluxbench.variants import _base, _determinism, forms

VARIANT = _base.Variant(
    name="torch_flash",
    label="FlashAttention-2 (SDPA)",
    diffusers="_native_flash",
    load=lambda call: _base.sdpa("FLASH_ATTENTION", call),
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(8, 0),
        cpu=True,
        causal=_base.YES,
        gqa=_base.YES,
        backward=_base.YES,
    ),
    forms=forms.EVERY_FORM,
    kernel_pattern=r"pytorch_flash::flash_fwd",
    backward_kernel_pattern=r"pytorch_flash::flash_bwd",
)
DETERMINISTIC = _base.deterministic(
    VARIANT,
    lambda call: _determinism.deterministic_backward(_base.sdpa("FLASH_ATTENTION", call)),
    "FlashAttention-2 det. (SDPA)",
    capabilities=dataclasses.replace(VARIANT.capabilities, cpu=False),
)
