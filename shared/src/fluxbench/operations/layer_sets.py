"""Workloads of attention layers: those of the published table, and those of today's models.

The published table (`assets/published`, source `attention-layers`) gives heads, kv_heads, head_dim, latent_dim, batch
and seq_len. It states neither width nor mask nor dtype: here the width is heads x head_dim, nothing is masked, and the
dtype is bfloat16. Models: Llama-3 8B and 70B, Qwen3-8B and DeepSeek-V3 by their published configurations, causal, one
sequence of 4,096 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluxbench.operations import layer_shape, workload
from fluxbench.operations.workload import Shape, Workload

PASSES = {"layer_training": "-training", "layer": "", "layer_backward": "-backward"}  # operations and their suffixes
_MODEL_TOKENS = 4096
_SMALL: Shape = {"batch": 2, "seq_len": 64, "width": 128, "heads": 4, "head_dim": 32, "dtype": "bfloat16"}


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the sets by name: of each configuration the forward pass, the backward pass and both."""
    return {
        "layers-models": _workloads(_models()),
        "layers-published": _workloads(_published()),
        "layers-small": _workloads(_small()),
    }


def _models() -> dict[str, Shape]:
    """Llama-3 and Qwen3: grouped; DeepSeek-V3: latent, head_dim 128 + 64 rotated, values of 128."""
    grouped: Shape = {"kind": layer_shape.GROUPED, "batch": 1, "seq_len": _MODEL_TOKENS, "kv_heads": 8, "head_dim": 128}
    grouped = {**grouped, "rotary": True, "causal": True, "dtype": "bfloat16"}
    latent: Shape = {"kind": layer_shape.LATENT_ROTARY, "batch": 1, "seq_len": _MODEL_TOKENS, "causal": True}
    latent = {
        **latent,
        "dtype": "bfloat16",
        "latent_dim": 512,
        "q_latent_dim": 1536,
        "rotary_dim": 64,
        "value_dim": 128,
    }
    return {
        "llama3-8b": {**grouped, "width": 4096, "heads": 32},
        "llama3-70b": {**grouped, "width": 8192, "heads": 64},
        "qwen3-8b": {**grouped, "width": 4096, "heads": 32, "qk_norm": True},
        "deepseek-v3": {**latent, "width": 7168, "heads": 128, "kv_heads": 128, "head_dim": 128},
    }


def _published() -> dict[str, Shape]:
    """Return the table's 15: batch, seq_len, heads, kv_heads, head_dim, and latent_dim of latent ones."""
    of_kinds: dict[str, tuple[tuple[int, ...], ...]] = {
        layer_shape.FUSED: ((2, 2048, 12, 12, 64), (1, 4096, 32, 32, 128), (1, 2048, 40, 40, 128)),
        layer_shape.SEPARATE: ((2, 2048, 12, 12, 64), (1, 4096, 32, 32, 128), (1, 2048, 40, 40, 128)),
        layer_shape.GROUPED: ((2, 2048, 32, 8, 64), (1, 4096, 32, 8, 128), (1, 2048, 40, 8, 128)),
        layer_shape.MULTI_QUERY: ((2, 2048, 16, 1, 64), (1, 4096, 32, 1, 128), (1, 2048, 40, 1, 128)),
        layer_shape.LATENT: (
            *((2, 2048, 32, 32, 128, 512), (1, 4096, 64, 64, 128, 1024), (1, 2048, 128, 128, 128, 2048)),
        ),
    }
    found: dict[str, Shape] = {}
    for kind, rows in of_kinds.items():
        for batch, seq_len, heads, kv_heads, head_dim, *latent in rows:
            sizes = {"batch": batch, "seq_len": seq_len, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
            sizes |= {"width": heads * head_dim} | ({"latent_dim": latent[0]} if latent else {})
            name = f"{kind.replace('_', '-')}-{batch}x{seq_len}-{heads}x{head_dim}"
            found[name] = {"kind": kind, **sizes, "causal": False, "dtype": "bfloat16"}
    return found


def _small() -> dict[str, Shape]:
    """Return one layer of each kind, for a CPU."""
    latent = {"latent_dim": 64, "kv_heads": 4}
    return {
        "small-llama": {"kind": layer_shape.GROUPED, **_SMALL, "kv_heads": 2, "rotary": True, "causal": True},
        "small-deepseek": {
            **{"kind": layer_shape.LATENT_ROTARY, **_SMALL, **latent, "causal": True},
            **{"q_latent_dim": 64, "rotary_dim": 16, "value_dim": 32},
        },
        "small-fused": {"kind": layer_shape.FUSED, **_SMALL, "kv_heads": 4, "causal": False},
        "small-separate": {"kind": layer_shape.SEPARATE, **_SMALL, "kv_heads": 4, "causal": False},
        "small-multi-query": {"kind": layer_shape.MULTI_QUERY, **_SMALL, "kv_heads": 1, "causal": False},
        "small-latent": {"kind": layer_shape.LATENT, **_SMALL, **latent, "causal": False},
    }


def _workloads(shapes: Mapping[str, Shape]) -> tuple[Workload, ...]:
    return tuple(
        workload(
            operation, f"{name}-layer{suffix}", shape,
            group=name, x=int(shape["seq_len"]), x_unit="tokens",
        )
        for operation, suffix in PASSES.items()
        for name, shape in shapes.items()
    )  # fmt: skip
