"""Small gradients of attention: their inputs, what is exact, and what unfused attention makes of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from fluxbench.kernels.flash_gluon_backward import Tiling

ROUNDING = {torch.bfloat16: 2**-8 / math.sqrt(6), torch.float16: 2**-11 / math.sqrt(6)}


class Case(NamedTuple):
    """One call, in which order its programs run, and whether a partition runs as long as it can."""

    seq_len_q: int
    seq_len_k: int
    causal: bool = False
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    dtype: Any = torch.bfloat16
    scale: float | None = None
    tiling: Tiling = Tiling()
    backwards: bool = False
    greedy: bool = False
    programs: int = 1  # at once; of one, no tile is split
    deterministic: bool = False
    low: bool = False  # all scores are far below zero


FULL = Case(130, 200, batch=2, heads=4, kv_heads=2)
CAUSAL = Case(300, 330, causal=True, batch=2, heads=4, kv_heads=2)
SPLIT = FULL._replace(seq_len_q=700, programs=6)  # 8 tiles, of which 2 are split into 3 parts
ALONE = FULL._replace(seq_len_k=330, deterministic=True)
ALONE_CAUSAL = CAUSAL._replace(deterministic=True)
GREEDY, LOW = FULL._replace(greedy=True), FULL._replace(low=True)
LONG = FULL._replace(head_dim=128, greedy=True, scale=0.3)  # rows
CASES = [
    *(Case(n, n, causal=causal, dtype=torch.float16) for n in (2, 33, 123) for causal in (False, True)),
    *(FULL, CAUSAL, GREEDY, LOW, SPLIT, LONG, CAUSAL._replace(head_dim=128, greedy=True, scale=0.3)),
    *(case._replace(head_dim=128, heads=6, kv_heads=3, backwards=True) for case in (FULL, CAUSAL)),
    CAUSAL._replace(seq_len_q=1, seq_len_k=500),
    SPLIT._replace(programs=7, seq_len_k=300, greedy=True),
    SPLIT._replace(head_dim=128, programs=33, heads=2, kv_heads=2),
    *(ALONE, ALONE_CAUSAL, ALONE._replace(head_dim=128, greedy=True, low=True)),
    *(each._replace(deterministic=True, backwards=True) for each in (SPLIT, FULL)),
    *(ALONE_CAUSAL._replace(seq_len_q=n, scale=0.3) for n in (1, 129)),
    Case(200, 1, dtype=torch.float16),
]  # fmt: skip


def strided(batch: int, seq_len: int, heads: int, head_dim: int, generator: Any, dtype: Any) -> Any:
    """Return normal values among memory that is NaN."""
    whole = torch.full((batch, seq_len + 3, heads + 1, head_dim), math.nan, dtype=dtype)
    whole[:, :seq_len, 1:] = torch.randn((batch, seq_len, heads, head_dim), generator=generator).to(dtype)
    return whole[:, :seq_len, 1:]


def plain(q: Any, k: Any, v: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    """Return attention, step by step, and the log-sum-exp to the base 2."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if causal:
        hidden = torch.ones(scores.shape[2:]).triu(k.shape[1] - q.shape[1] + 1).bool()
        scores = scores.masked_fill(hidden.to(q.device), -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v), scores.logsumexp(-1) / math.log(2)


def of_autograd(case: Case, q: Any, k: Any, v: Any, dout: Any) -> tuple[Any, ...]:
    leaves = q, k, v = [x.detach().requires_grad_() for x in (q, k, v)]
    out, lse = plain(q, k, v, case.causal, case.scale or case.head_dim**-0.5)
    return (*torch.autograd.grad(out, leaves, dout), out.detach(), lse.detach())


def relative_l2(got: Any, exact: Any) -> float:
    return float((got.double() - exact).norm() / exact.norm())
