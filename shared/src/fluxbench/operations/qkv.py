"""Seeded q, k and v of two kinds.

`normal` is independent standard normal noise. `flux` is shaped like the activations of a diffusion transformer: a few
channels of k carry a constant offset many times the noise, and v has a bias, as SageAttention reports for K in image
and video models (Zhang et al., 2024, arXiv:2410.02367, section 3.2 and figure 4). What is easy on normal inputs, such
as low precision, is hard on these.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

KINDS = ("normal", "flux")
_OUTLIER_CHANNELS = 4
_OUTLIER_OFFSET = 8.0  # standard deviations of the noise
_VALUE_BIAS = 0.5  # standard deviation of v's bias over channels; larger would hide errors behind a large mean


def generator(name: str, kind: str, seed: int, device: torch.device | str) -> torch.Generator:
    """Return a seeded generator; different names and kinds give different numbers."""
    import torch

    return torch.Generator(device=device).manual_seed(zlib.crc32(f"{name}/{kind}".encode()) + seed)


def make(call: AttentionCall, kind: str, rng: torch.Generator) -> Tensors:
    """Return q `[batch, seq_len_q, heads, head_dim_qk]`, k and v `[batch, seq_len_k, kv_heads, head_dim]`.

    They are of the call's dtype, on the generator's device. Raises `ValueError` where the kind is unknown.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind of inputs must be one of {', '.join(KINDS)}, got {kind!r}")
    dtype = getattr(torch, call.dtype)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng, device=rng.device)

    q = noise(call.batch, call.seq_len_q, call.heads, call.head_dim_qk)
    k = noise(call.batch, call.seq_len_k, call.kv_heads, call.head_dim_qk)
    v = noise(call.batch, call.seq_len_k, call.kv_heads, call.head_dim_v)
    if kind == "flux":
        channels = torch.randperm(call.head_dim_qk, generator=rng, device=rng.device)[:_OUTLIER_CHANNELS]
        k[..., channels] += _OUTLIER_OFFSET * noise(call.kv_heads, len(channels)).sign()
        v += _VALUE_BIAS * noise(call.kv_heads, call.head_dim_v)
    return {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype)}
