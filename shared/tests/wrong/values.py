"""Kernels whose values are wrong, each in every call."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def by_whole_blocks(x: torch.Tensor) -> torch.Tensor:
    """Return keys or values up to whole blocks of 64, with what lies in memory after the last one, and zeros after."""
    _, seq_len, heads, head_dim = x.shape
    blocks, found = -(-seq_len // 64) * 64, []
    for entry in x:
        end = entry.untyped_storage().size() // entry.element_size()
        last = entry.storage_offset() + (heads - 1) * entry.stride(1) + (head_dim - 1) * entry.stride(2)
        count = min(blocks, (end - 1 - last) // entry.stride(0) + 1)
        there = entry.as_strided((count, heads, head_dim), entry.stride())
        found.append(torch.nn.functional.pad(there, (0, 0, 0, 0, 0, blocks - count)))
    return torch.stack(found)


def reads_beyond(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It reads whole blocks of keys and values: beyond the last one a weight of 0 times what lies there."""
    keys, values = (by_whole_blocks(x) if x.shape[1] % 64 else x for x in (k, v))
    beyond = torch.arange(keys.shape[1]) >= k.shape[1]
    return weighted(q, keys, values, lambda scores: scores.masked_fill(beyond, -math.inf))


def heads_as_if_contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided(x.shape, (*x.stride()[:2], x.shape[-1], 1))


def one_nan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = attention_of(q, k, v)
    out[-1, -1, -1, -1] = math.nan
    return out


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: int) -> torch.Tensor:
    """Return an output of which only the first rows are written."""
    out = torch.empty_like(q)
    out[:, :rows] = attention_of(q, k, v)[:, :rows]
    return out


def changed(output: torch.Tensor, change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    change(output)
    return output


def int8_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores of every eighth head, from the first on, are products of int8 numbers."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        step = x.float().abs().amax((1, 3), keepdim=True) / 127
        low = ((x.float() / step).round() * step).to(x.dtype)
        return torch.where(torch.arange(x.shape[2])[:, None] % 8 == 0, low, x)

    return attention_of(rounded(q), rounded(k), v)


def without_lowest(scores: torch.Tensor, share: float = 0.01) -> torch.Tensor:
    """Drop of each query's keys the share that scores lowest."""
    count = max(1, round(share * scores.shape[-1]))
    return scores.scatter(-1, scores.topk(count, largest=False).indices, -math.inf)


def without_some(scores: torch.Tensor) -> torch.Tensor:
    """Drop 1% of the keys, another one for each of a tenth of the queries."""
    drawn = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.01
    return scores.masked_fill(drawn & (torch.arange(scores.shape[-2])[:, None] % 10 == 0), -math.inf)


def with_strides_of_q(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It reads k and v by the strides of q, as a kernel that takes one set of strides."""
    return attention_of(q, *(x.as_strided(x.shape, q.stride()) for x in (k, v)))


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
    # The same in float32: too large at scores of 89 and more.
    "no_max_in_float32": lambda q, k, v: weighted(q, k, v, weigh=torch.exp),
    # A running maximum that begins with 0: no weights are left where all scores of a query are below -104.
    "maximum_from_zero": lambda q, k, v: weighted(
        q, k, v, weigh=lambda scores: (scores - scores.amax(-1, keepdim=True).clamp(min=0)).exp()
    ),
    "clamped_where_exp_ends": lambda q, k, v: weighted(q, k, v, lambda scores: scores.clamp(-88, 88)),
    # What is wrong in a head, a row or an element is little of the whole.
    "last_row_zero": lambda q, k, v: changed(attention_of(q, k, v), lambda out: out[:, -1, -1].zero_()),
    "row_garbage": lambda q, k, v: changed(attention_of(q, k, v), lambda out: out[0, 7, 1].copy_(out[0, 9, 0])),
    "element_ten_times": lambda q, k, v: changed(
        attention_of(q, k, v), lambda out: out[0, 5, 1, out[0, 5, 1].abs().argmax()].mul_(10)
    ),
    "int8_in_some_heads": int8_heads,
    "clamped_scores": lambda q, k, v: weighted(q, k, v, lambda scores: scores.clamp(-50, 50)),
    "soft_capped_scores": lambda q, k, v: weighted(q, k, v, lambda scores: 30 * (scores / 30).tanh()),
    "lowest_keys_dropped": lambda q, k, v: weighted(q, k, v, without_lowest),
    "some_keys_dropped": lambda q, k, v: weighted(q, k, v, without_some),
    # Right at a workload of one batch entry, whole blocks and contiguous inputs.
    "tail_dropped": lambda q, k, v: attention_of(q, k, v, first_block=k.shape[1] // 64 * 64),
    "one_batch_entry": lambda q, k, v: changed(attention_of(q, k, v), lambda out: out[1:].mul_(1.1)),
    "strides_of_q": with_strides_of_q,
    "q_as_if_contiguous": lambda q, k, v: attention_of(q.as_strided(q.shape, q.contiguous().stride()), k, v),
    "heads_as_if_contiguous": lambda *qkv: attention_of(*map(heads_as_if_contiguous, qkv)),
    "reads_beyond": reads_beyond,
    "one_nan": one_nan,
    "unwritten_rows": lambda q, k, v: written(q, k, v, q.shape[1] - 8),
    # It writes whole blocks of 64 queries alone: at other lengths, the last rows are what lay in memory.
    "ragged_tail_uninitialised": lambda q, k, v: written(q, k, v, q.shape[1] // 64 * 64),
}
