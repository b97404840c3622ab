"""FlashAttention-2 by the `flash-attn` package (2.8.3), called as its README does.

Exact: probabilities are rounded to the inputs' dtype before the second product, sums are float32. torch carries a
FlashAttention-2 of its own, in another namespace (`torch_flash`). Runs on compute capability 8.0 or newer for which
the package was built.
"""

from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(8, 0), dtypes=("bfloat16", "float16"))


def load(*, causal: bool = False) -> _base.Attention:
    """Return `flash_attn.flash_attn_func`, which takes [batch, seq_len, heads, head_dim]."""
    from flash_attn import flash_attn_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_func(q, k, v, causal=causal)

    return attend


def load_varlen(lengths: tuple[int, ...]) -> _base.Attention:
    """Return attention within each of several sequences, which lie one after the other."""
    from flash_attn import flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        bounds = _base.bounds(lengths, q.device)
        out = flash_attn_varlen_func(
            q[0], k[0], v[0],
            cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=max(lengths), max_seqlen_k=max(lengths),
        )  # fmt: skip
        return out[None]

    return attend


VARIANT = _base.Variant(
    name="flash_attn_2",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: load(causal=True),
        gqa=load,
        backward=load,
        varlen=load_varlen,
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"(?<!pytorch_)flash::flash_fwd",
    packages=("torch", "flash-attn"),
)
