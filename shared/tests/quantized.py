"""What the 8-bit kernel reads of q, k and v, in torch: the same as `gluon_int8_fp8_quantize.quantize`, step by step."""

from __future__ import annotations

import math
from typing import Any

import torch

from fluxbench.kernels.gluon_int8_fp8_quantize import Quantized

SAMPLES = 64
_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def quantized(q: Any, k: Any, v: Any, *, scale: float, block_n: int) -> Quantized:
    """Return q and k as int8, v as float8, and their scales."""
    q8, q_scales = _rounded(q.float(), (3,), torch.int8)
    k_blocks, v_blocks = (_blocks(x, block_n) for x in (smoothed(k), v.float()))
    k8, k_scales = _rounded(k_blocks, (2, 4), torch.int8)
    v8, v_scales = _rounded(v_blocks, (2, 4), torch.float8_e4m3fn)
    places = [16 * (i // 16) + (0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)[i % 16] for i in range(block_n)]
    v8 = v8.view(torch.uint8)[:, :, places].view(torch.float8_e4m3fn)
    flat = [x[:, :, 0, :, 0].transpose(1, 2) for x in (k_scales, v_scales)]
    return Quantized(
        q=q8,
        k=k8.flatten(1, 2)[:, : k.shape[1]].contiguous(),
        v=v8.flatten(1, 2).permute(0, 2, 3, 1).contiguous(),
        q_scales=(q_scales[..., 0] * (scale * math.log2(math.e))).transpose(1, 2).contiguous(),
        scales=torch.stack([flat[0], flat[1], 1 / flat[1]], -1).contiguous(),
    )


def dequantized(q: Any, k: Any, v: Any, *, block_n: int) -> tuple[Any, Any, Any]:
    """Return what is left of q, k (less its mean) and v, float32."""
    tokens = k.shape[1]
    of_q, of_k, of_v = (
        x8.float() * scales
        for x8, scales in (
            _rounded(q.float(), (3,), torch.int8),
            _rounded(_blocks(smoothed(k), block_n), (2, 4), torch.int8),
            _rounded(_blocks(v.float(), block_n), (2, 4), torch.float8_e4m3fn),
        )
    )
    return of_q, of_k.flatten(1, 2)[:, :tokens], of_v.flatten(1, 2)[:, :tokens]


def smoothed(k: Any) -> Any:
    """Return keys less the mean of a few, `[batch, seq_len_k, kv_heads, head_dim]`, float32."""
    sampled = [i * k.shape[1] // SAMPLES for i in range(SAMPLES)]
    return k.float() - k[:, sampled].float().mean(1, keepdim=True)


def _blocks(x: Any, block_n: int) -> Any:
    """Return `[batch, blocks, block_n, kv_heads, head_dim]`, zero past the sequence."""
    missing = -x.shape[1] % block_n
    return torch.nn.functional.pad(x, (0, 0, 0, 0, 0, missing)).unflatten(1, (-1, block_n))


def _rounded(x: Any, dims: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """Return x divided by a scale, rounded, and the scale, which is one for all of `dims`."""
    scales = x.abs().amax(dims, keepdim=True).clamp_min(2.0**-50) / _LARGEST[dtype]
    x = x / scales
    return (x.round() if dtype == torch.int8 else x).to(dtype), scales
