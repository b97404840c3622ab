"""Seeded q, k and v of four kinds, each of which shows errors that the others hide.

- `normal`: independent standard normal noise.
- `flux`: shaped like the activations of a diffusion transformer. A few channels of k carry a constant offset many times
  the noise, and v has a bias, as SageAttention reports for K in image and video models (Zhang et al., 2024,
  arXiv:2410.02367, section 3.2 and figure 4). Low precision is hard on these.
- `peaked`: keys lie around centroids, eight around each, and a query points at one of them. It scores 60 there, give or
  take 2, and less than 30 elsewhere, so a few keys make up the output. Scores that are clamped, soft-capped or coarse
  show, which on the kinds above are small or cancel in the softmax.
- `tailed`: all queries rank the keys nearly alike, and values grow as probabilities fall, so that each tenth of the
  keys contributes about as much as any other. A kernel that drops the 1% of keys with the lowest scores errs by 8%
  here, and by 0.3% on normal inputs.

All values fit in float16.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

KINDS = ("normal", "flux", "peaked", "tailed")
# On tailed ones the gradients of right kernels differ by more than they may: see `docs/methodology.md`.
KINDS_OF_GRADIENTS = KINDS[:3]
_OUTLIER_CHANNELS = 4
_OUTLIER_OFFSET = 8.0  # standard deviations of the noise
_VALUE_BIAS = 0.5  # standard deviation of v's bias over channels; larger would hide errors behind a large mean
_PEAK = 60.0  # score of a query at a key of its own centroid
_PER_CENTROID = 8  # keys
_AROUND_CENTROID = 0.3  # standard deviation of the keys around their centroid, whose own is 1
_COMMON = 1.5  # size of what all queries of a head have in common: the standard deviation of a key's mean score
_OWN = 0.3  # standard deviation of what a query has of its own


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
    elif kind == "peaked":
        q, k = _peaked(call, k, rng)
    elif kind == "tailed":
        common = _COMMON * noise(call.batch, 1, call.kv_heads, call.head_dim_qk).sign()
        v *= torch.exp(-(k * common).sum(-1, keepdim=True) * call.head_dim_qk**-0.5)
        q = _OWN * q + common.repeat_interleave(call.heads // call.kv_heads, dim=2)
    return {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype)}


def _peaked(call: AttentionCall, around: torch.Tensor, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries that point at the centroid of a key that they see, and keys at `around` times a width from them.

    The scores of a centroid's keys are `_PEAK` times 1 + 0.3 x / sqrt(head_dim), x standard normal.
    """
    import torch

    options = {"generator": rng, "device": rng.device}
    number = -(-call.seq_len_k // _PER_CENTROID)
    centroids = torch.randn(call.batch, number, *around.shape[2:], **options)
    centroids *= call.head_dim_qk**0.5 / centroids.norm(dim=-1, keepdim=True)
    of_keys = torch.randperm(call.seq_len_k, **options) % number
    seen = torch.arange(1, call.seq_len_q + 1, device=rng.device) + call.seq_len_k - call.seq_len_q
    seen = seen if call.causal else torch.full_like(seen, call.seq_len_k)
    of_queries = of_keys[(torch.rand(call.seq_len_q, **options) * seen).long()]
    k = centroids[:, of_keys] + _AROUND_CENTROID * around
    q = centroids[:, of_queries].repeat_interleave(call.heads // call.kv_heads, dim=2)
    return q * (_PEAK * call.head_dim_qk**-0.5), k
