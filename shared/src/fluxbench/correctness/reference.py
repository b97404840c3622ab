"""The high-precision answer that every output is held against, and the error that plain math attention makes.

Both go one head and one block of queries at a time, so that 75,600 tokens fit as 1,152 do.
"""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fluxbench.operations.inputs import Inputs

_SCORES_BYTES = 1 << 30  # of one block of scores


def precise_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 where the device has no float64 (Apple's GPUs)."""
    return torch.float32 if device.type == "mps" else torch.float64


def attention(inputs: Inputs, *, causal: bool = False) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(head_dim)) v in float64: `[batch, seq_len, heads, head_dim]`."""
    dtype = precise_dtype(inputs[0].device)

    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first_query: int) -> torch.Tensor:
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        scores = (q @ k.T) * q.shape[-1] ** -0.5
        if causal:
            scores.masked_fill_(_future(q, k, first_query), float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    return _by_head(inputs, block, dtype)


def math_attention(inputs: Inputs, *, causal: bool = False) -> torch.Tensor:
    """Return torch's unfused math attention in the inputs' own dtype: `[batch, seq_len, heads, head_dim]`.

    Its error against `attention` is what this precision costs where nothing is fused, reordered or quantized.
    """

    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first_query: int) -> torch.Tensor:
        mask = ~_future(q, k, first_query) if causal else None
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], attn_mask=mask)[0, 0]

    return _by_head(inputs, block, inputs[0].dtype)


def _future(q: torch.Tensor, k: torch.Tensor, first_query: int) -> torch.Tensor:
    queries = torch.arange(first_query, first_query + q.shape[0], device=q.device)
    return torch.arange(k.shape[0], device=q.device)[None, :] > queries[:, None]


def _by_head(inputs: Inputs, block, dtype: torch.dtype) -> torch.Tensor:  # type: ignore[no-untyped-def]
    q, k, v = inputs
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    group = q.shape[2] // k.shape[2]  # query heads that share a key head
    rows = max(1, _SCORES_BYTES // (k.shape[1] * 8))
    for batch in range(q.shape[0]):
        for head in range(q.shape[2]):
            keys, values = k[batch, :, head // group], v[batch, :, head // group]
            for start in range(0, q.shape[1], rows):
                queries = q[batch, start : start + rows, head]
                out[batch, start : start + rows, head] = block(queries, keys, values, start)
    return out
