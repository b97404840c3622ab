"""Kernels whose values are wrong, each in every call."""

from __future__ import annotations

import math

import torch

from fluxbench.operations.protocol import Attention
from wrong.right import attention_of, weighted


def float8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def padded(x: torch.Tensor) -> torch.Tensor:
    """Return keys or values with zeros up to whole blocks of 32."""
    return torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % 32))


def misread(x: torch.Tensor) -> torch.Tensor:
    batch, seq_len, heads, head_dim = x.shape
    return x.view(batch, heads, seq_len, head_dim).transpose(1, 2)


def no_max_subtraction(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
    weights = ((queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5).to(torch.float16).exp()
    out = (weights.float() @ values) / weights.sum(-1, keepdim=True)
    return out.to(q.dtype).transpose(1, 2).contiguous()


def one_nan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = attention_of(q, k, v)
    out[-1, -1, -1, -1] = math.nan
    return out


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: int) -> torch.Tensor:
    """Return an output of which only the first rows are written."""
    out = torch.empty_like(q)
    out[:, :rows] = attention_of(q, k, v)[:, :rows]
    return out


VALUES: dict[str, Attention] = {
    # The scores are 2% too large, as where a softmax scale is rounded or taken from another head_dim.
    "scale_off": lambda q, k, v: attention_of(q, k, v, scale=1.02),
    "half_the_keys": lambda q, k, v: attention_of(q, k[:, ::2], v[:, ::2]),
    # The last block of 32 keys, whole or ragged, is never looked at.
    "last_block_dropped": lambda q, k, v: attention_of(q, k, v, first_block=(k.shape[1] - 1) // 32 * 32),
    # Keys are taken in pairs: where their number is odd, the last one is never looked at.
    "right_for_even_lengths": lambda q, k, v: attention_of(q, k, v, first_block=k.shape[1] // 2 * 2),
    # The padding takes part in the softmax.
    "padding_attended": lambda q, k, v: attention_of(q, padded(k), padded(v)),
    # Of each query's scores it keeps the larger half: sparse attention, which is called exact.
    "top_keys_only": lambda q, k, v: weighted(
        q, k, v, lambda scores: scores.masked_fill(scores < scores.median(-1, keepdim=True).values, -math.inf)
    ),
    "causal_by_mistake": lambda q, k, v: weighted(
        q, k, v, lambda scores: scores + torch.full_like(scores, -math.inf).triu(1)
    ),
    # Where scores are small, the mean of the values is not far from attention.
    "mean_of_values": lambda q, k, v: v.float().mean(1, keepdim=True).expand(q.shape).to(q.dtype).contiguous(),
    "heads_swapped": lambda q, k, v: attention_of(q, k, v)[:, :, [1, 0, *range(2, q.shape[2])]].contiguous(),
    # It takes the memory for [batch, heads, seq_len, head_dim]; its output has the right shape and layout again.
    "layout_misread": lambda q, k, v: (
        attention_of(misread(q), misread(k), misread(v)).transpose(1, 2).contiguous().view(q.shape)
    ),
    # What goes through float8 (e4m3) of a variant that says that it is exact.
    "float8_keys": lambda q, k, v: attention_of(q, float8(k), v),
    "float8_values": lambda q, k, v: attention_of(q, k, float8(v)),
    "float8_scores": lambda q, k, v: weighted(q, k, v, float8),
    "float8_probabilities": lambda q, k, v: weighted(q, k, v, rounded=float8),
    # The softmax takes exp of the scores as they are, in float16: right on normal inputs, too large on outliers.
    "no_max_subtraction": no_max_subtraction,
    "one_nan": one_nan,
    "unwritten_rows": lambda q, k, v: written(q, k, v, q.shape[1] - 8),
    # It writes whole blocks of 64 queries alone: at other lengths, the last rows are what lay in memory.
    "ragged_tail_uninitialised": lambda q, k, v: written(q, k, v, q.shape[1] // 64 * 64),
}
