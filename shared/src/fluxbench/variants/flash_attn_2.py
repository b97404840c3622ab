"""FlashAttention-2 by the `flash-attn` package (2.8.3), called as its README does.

Exact: probabilities are rounded to the inputs' dtype before the second product, sums are float32. Its causal mask is
aligned to the end. torch carries a FlashAttention-2 of its own, in another namespace (`torch_flash`). Runs on compute
capability 8.0 or newer for which the package was built.

`flash_attn_2_det`: with `deterministic=True`, its backward pass adds up dq in a fixed order.
`flash_attn_2_kvcache`: decoding by `flash_attn_with_kvcache`, on a contiguous cache or one in pages of 256 tokens or a
multiple of it.
"""

import dataclasses
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms

_PAGE = 256  # tokens, by the documentation of flash_attn_with_kvcache


def load(call: AttentionCall, *, deterministic: bool = False) -> Attention:
    """Return `flash_attn.flash_attn_func`, which takes [batch, seq_len, heads, head_dim]."""
    from flash_attn import flash_attn_func, flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_func(q, k, v, causal=call.causal, deterministic=deterministic)

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_varlen_func(q[0], k[0], v[0], **_base.varlen(call, q.device), causal=call.causal)[None]

    return attend_to_each if call.lengths else attend


def load_decoding(call: AttentionCall) -> Attention:
    """Return `flash_attn.flash_attn_with_kvcache`; the lengths of the sequences are on the device already."""
    from flash_attn import flash_attn_with_kvcache

    def attend(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        lengths = _base.cached_lengths(call.batch, call.seq_len_k, q.device)
        return flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, block_table=table)

    return attend


def refuses_pages(device: Device, call: AttentionCall) -> str | None:
    """Return why a cache in such pages is refused, or None."""
    if call.page_size % _PAGE == 0:
        return None
    return f"flash_attn_2_kvcache takes pages of a multiple of {_PAGE} tokens, got {call.page_size}"


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
KV_CACHE = _base.Variant(
    name="flash_attn_2_kvcache",
    label="FlashAttention-2 KV cache",
    load=load_decoding,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"), minimum=(8, 0), gqa=_base.YES, varlen=_base.DOCUMENTED, paged=_base.YES
    ),
    refuses=refuses_pages,
    kernel_pattern=r"(?<!pytorch_)flash::flash_fwd",
    packages=("torch", "flash-attn"),
    only_decodes=True,
)
