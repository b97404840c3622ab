"""FlashAttention-4 by the `flash-attn-4` package (4.0.0b36): CuTe DSL kernels, compiled at their first call.

Exact: probabilities are rounded to the inputs' dtype before the second product. Its documentation names Hopper and
Blackwell, compute capability 9.0 and newer. It shares the name `flash_attn` with the `flash-attn` package: one
environment each.
"""

from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(9, 0), dtypes=("bfloat16", "float16"))


def load(*, causal: bool = False) -> _base.Attention:
    """Return `flash_attn.cute.flash_attn_func`, which takes [batch, seq_len, heads, head_dim]; returns (out, lse)."""
    from flash_attn.cute import flash_attn_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        result = flash_attn_func(q=q, k=k, v=v, causal=causal)
        return result[0] if isinstance(result, tuple) else result

    return attend


def load_varlen(lengths: tuple[int, ...]) -> _base.Attention:
    """Return attention within each of several sequences, which lie one after the other."""
    from flash_attn.cute import flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        bounds = _base.bounds(lengths, q.device)
        out, _ = flash_attn_varlen_func(
            q=q[0], k=k[0], v=v[0],
            cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=max(lengths), max_seqlen_k=max(lengths),
        )  # fmt: skip
        return out[None]

    return attend


VARIANT = _base.Variant(
    name="flash_attn_4",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,  # 192 on compute capability 9.x alone
        minimum=(9, 0),
        causal=lambda: load(causal=True),
        gqa=load,
        backward=load,
        varlen=load_varlen,
    ),
    jit=True,
    kernel_pattern=r"FlashAttentionForward",
    packages=("torch", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels"),
)
