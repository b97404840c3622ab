"""FlashAttention-4 by the `flash-attn-4` package (4.0.0b36): CuTe DSL kernels, compiled at their first call.

Exact: probabilities are rounded to the inputs' dtype before the second product. Its causal mask is aligned to the end.
Its documentation names Hopper and Blackwell, compute capability 9.0 and newer. It shares the name `flash_attn` with the
`flash-attn` package: one environment each.

`flash_attn_4_det`: with `deterministic=True`, its backward pass adds up gradients in a fixed order.
"""

import dataclasses
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base


def load(call: AttentionCall, *, deterministic: bool = False) -> Attention:
    """Return `flash_attn.cute.flash_attn_func`, which takes [batch, seq_len, heads, head_dim]; returns (out, lse)."""
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return _base.only_output(flash_attn_func(q=q, k=k, v=v, causal=call.causal, deterministic=deterministic))

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        return _base.only_output(
            flash_attn_varlen_func(q=q[0], k=k[0], v=v[0], **_base.varlen(call, q.device), causal=call.causal)
        )[None]

    return attend_to_each if call.lengths else attend


VARIANT = _base.Variant(
    name="flash_attn_4",
    label="FlashAttention-4",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),  # head_dim 192 on compute capability 9.x alone
        minimum=(9, 0),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
        varlen=_base.YES,
        separate_head_dims=True,  # on compute capability 9.x; on 10.x 192 of q and k with 128 of v
    ),
    jit=True,
    kernel_pattern=r"FlashAttentionForward",
    backward_kernel_pattern=r"FlashAttentionBackward",
    packages=("torch", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels"),
)
DETERMINISTIC = _base.deterministic(
    VARIANT,
    lambda call: load(call, deterministic=True),
    "FlashAttention-4 det.",
    capabilities=dataclasses.replace(VARIANT.capabilities, majors=(9, 10), varlen=_base.DOCUMENTED),
)
