"""Workloads over the length: plain attention, attention of one causal head, and the shapes of two models.

Those of plain attention and of one head are the shapes of a published sweep (`assets/published`, source
`triton-sweep`), which states neither batch, heads nor mask. Here plain attention has batch 8, one head and no mask;
the other has batch 1, one head and a causal mask. Lengths go on beyond those of the sweep, up to memory that no card
of today has for all scores of plain attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxbench.operations import workload
from fluxbench.operations.workload import Shape, Workload

HEAD_DIMS = (16, 32, 64, 128)
PLAIN_TOKENS = (256, 1024, 4096, 8192, 16_384, 32_768, 65_536)
CAUSAL_TOKENS = tuple(2**power for power in range(7, 17))  # 128 to 65,536
# FLUX.1 attends over (pixels / 16)**2 image tokens, and 512 of text: 512 px without text and with it, 1024, 1536 and
# 2048 px with it. Wan 2.1 has 1,560 tokens of a latent frame at 480p and 3,600 at 720p; a latent frame stands for four
# frames but the first: one frame of each, 17 and 33 frames at 480p, 81 frames at 480p and at 720p.
FLUX_TOKENS = (1024, 1536, 4608, 9728, 16_896)
WAN_TOKENS = (1560, 3600, 7800, 14_040, 32_760, 75_600)
_PASSES = {"attention": "", "attention_backward": "-backward", "attention_training": "-training"}
_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the sets by name; those of a CPU are short."""
    passes = ("attention", "attention_backward", "attention_training")
    return {
        "lengths-plain": _plain(HEAD_DIMS, PLAIN_TOKENS, batch=8),
        "lengths-plain-small": _plain((64,), (64, 128, 256, 512), batch=2, name="plain-small"),
        "lengths-causal": tuple(
            each
            for dtype in _DTYPES
            for head_dim in HEAD_DIMS
            for operation in passes
            for each in _causal(operation, dtype, head_dim, CAUSAL_TOKENS)
        ),
        "lengths-causal-small": (
            *_causal("attention_training", "bfloat16", 64, (32, 64, 128, 256, 512), "causal-small"),
            *_causal("attention", "bfloat16", 64, (64, 128, 256, 512, 1024), "causal-small"),
        ),
        "lengths-models": (*_model("flux1", 24, FLUX_TOKENS), *_model("wan2.1-14b", 40, WAN_TOKENS)),
        "lengths-models-small": _model("flux1", 24, (64, 128, 256)),
    }


def _plain(head_dims: Iterable[int], lengths: Iterable[int], batch: int, name: str = "plain") -> tuple[Workload, ...]:
    """Return plain attention, forward and backward, in float32: the width of one head is d_model."""
    lengths = tuple(lengths)
    return tuple(
        _workload(operation, f"{name}-d{head_dim}", tokens, _shape(tokens, 1, head_dim, "float32", batch=batch))
        for head_dim in head_dims
        for operation in ("attention", "attention_backward")
        for tokens in lengths
    )


def _causal(
    operation: str, dtype: str, head_dim: int, lengths: Iterable[int], name: str = "causal"
) -> tuple[Workload, ...]:
    group = f"{name}-{_DTYPES[dtype]}-d{head_dim}"
    return tuple(
        _workload(operation, group, tokens, _shape(tokens, 1, head_dim, dtype, causal=True)) for tokens in lengths
    )


def _model(name: str, heads: int, lengths: Iterable[int]) -> tuple[Workload, ...]:
    return tuple(
        _workload("attention", f"{name}-lengths", tokens, _shape(tokens, heads, 128, "bfloat16")) for tokens in lengths
    )


def _workload(operation: str, group: str, tokens: int, shape: Shape) -> Workload:
    suffix = _PASSES[operation]
    return workload(operation, f"{group}-{tokens}{suffix}", shape, group=f"{group}{suffix}", x=tokens, x_unit="tokens")


def _shape(
    tokens: int, heads: int, head_dim: int, dtype: str, *, batch: int = 1, causal: bool = False
) -> Mapping[str, int | float | bool | str]:
    return {
        "batch": batch,
        "seq_len_q": tokens,
        "seq_len_k": tokens,
        "heads": heads,
        "kv_heads": heads,
        "head_dim_qk": head_dim,
        "head_dim_v": head_dim,
        "dtype": dtype,
        "causal": causal,
    }
