"""Kernels whose values are wrong, each in every call."""

from __future__ import annotations

import torch

from wrong.right import attention_of, weighted


def scale_off(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The scores are 2% too large, as where a softmax scale is rounded or taken from another head_dim."""
    return attention_of(q, k, v, scale=1.02)


def half_the_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It looks at every other key."""
    return attention_of(q, k[:, ::2], v[:, ::2])


def last_block_dropped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last block of 32 keys, whole or ragged, is never looked at."""
    return attention_of(q, k, v, first_block=(k.shape[1] - 1) // 32 * 32)


def right_for_even_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys are taken in pairs: where their number is odd, the last one is never looked at."""
    return attention_of(q, k, v, first_block=k.shape[1] // 2 * 2)


def padding_attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys are padded with zeros to whole blocks of 32, and the padding takes part in the softmax."""
    missing = -k.shape[1] % 32
    return attention_of(q, *(torch.nn.functional.pad(x, (0, 0, 0, 0, 0, missing)) for x in (k, v)))


def top_keys_only(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of each query's scores it keeps the larger half: sparse attention, which is called exact."""
    return weighted(
        q, k, v, lambda scores: scores.masked_fill(scores < scores.median(-1, keepdim=True).values, float("-inf"))
    )


def causal_by_mistake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A query sees the keys up to its own position alone, as in a language model."""
    return weighted(q, k, v, lambda scores: scores + torch.full_like(scores, float("-inf")).triu(1))


def mean_of_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Every query gets the mean of the values: where scores are small, that is not far from attention."""
    return v.float().mean(1, keepdim=True).expand(q.shape).to(q.dtype).contiguous()


def heads_swapped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Two heads' outputs have changed places."""
    order = [1, 0, *range(2, q.shape[2])]
    return attention_of(q, k, v)[:, :, order].contiguous()


def layout_misread(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It takes the memory for [batch, heads, seq_len, head_dim]; its output has the right shape and layout again."""
    batch, seq_len, heads, head_dim = q.shape
    misread = (x.view(batch, heads, seq_len, head_dim).transpose(1, 2) for x in (q, k, v))
    return attention_of(*misread).transpose(1, 2).contiguous().view(q.shape)


def float8_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """K goes through float8 (e4m3), and the variant says that it is exact."""
    return attention_of(q, k.to(torch.float8_e4m3fn).to(k.dtype), v)


def float8_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """V goes through float8 (e4m3), and the variant says that it is exact."""
    return attention_of(q, k, v.to(torch.float8_e4m3fn).to(v.dtype))


def float8_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The scores go through float8 (e4m3) before the softmax, and the variant says that it is exact."""
    return weighted(q, k, v, lambda scores: scores.to(torch.float8_e4m3fn).float())


def float8_probabilities(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The probabilities go through float8 (e4m3) before they meet V, and the variant says that it is exact."""
    return weighted(q, k, v, rounded=lambda weights: weights.to(torch.float8_e4m3fn))


def no_max_subtraction(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The softmax takes exp of the scores as they are, in float16: right on normal inputs, too large on outliers."""
    queries, keys, values = (x.transpose(1, 2).float() for x in (q, k, v))
    weights = ((queries @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5).to(torch.float16).exp()
    out = (weights.float() @ values) / weights.sum(-1, keepdim=True)
    return out.to(q.dtype).transpose(1, 2).contiguous()


def one_nan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One element of the output is NaN."""
    out = attention_of(q, k, v)
    out[-1, -1, -1, -1] = float("nan")
    return out


def unwritten_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last eight rows of the output are never written."""
    out = torch.empty_like(q)
    out[:, :-8] = attention_of(q, k, v)[:, :-8]
    return out


def ragged_tail_uninitialised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """It writes whole blocks of 64 queries alone: at other lengths, the last rows are what lay in memory."""
    out = torch.empty_like(q)
    whole = q.shape[1] // 64 * 64
    out[:, :whole] = attention_of(q, k, v)[:, :whole]
    return out
