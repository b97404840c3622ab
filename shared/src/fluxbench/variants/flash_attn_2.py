"""FlashAttention-2 by the `flash-attn` package (2.8.3), called as its README does.

Exact: probabilities are rounded to the inputs' dtype before the second product, sums are float32. Its causal mask is
aligned to the end. torch carries a FlashAttention-2 of its own, in another namespace (`torch_flash`). Runs on compute
capability 8.0 or newer for which the package was built.

`flash_attn_2_det`: with `deterministic=True`, its backward pass adds up dq in a fixed order.
"""

import dataclasses
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms


def load(call: AttentionCall, *, deterministic: bool = False) -> Attention:
    """Return `flash_attn.flash_attn_func`, which takes [batch, seq_len, heads, head_dim]."""
    from flash_attn import flash_attn_func, flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_func(q, k, v, causal=call.causal, deterministic=deterministic)

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_varlen_func(q[0], k[0], v[0], **_base.varlen(call, q.device), causal=call.causal)[None]

    return attend_to_each if call.lengths else attend


VARIANT = _base.Variant(
    name="flash_attn_2",
    label="FlashAttention-2",
    diffusers="flash",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(8, 0),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
        varlen=_base.YES,
    ),
    forms=forms.COMPILED,
    kernel_pattern=r"(?<!pytorch_)flash::flash_fwd",
    backward_kernel_pattern=r"(?<!pytorch_)flash::flash_bwd",
    packages=("torch", "flash-attn"),
)
DETERMINISTIC = _base.deterministic(
    VARIANT,
    lambda call: load(call, deterministic=True),
    "FlashAttention-2 det.",
    capabilities=dataclasses.replace(VARIANT.capabilities, varlen=_base.DOCUMENTED),
)
