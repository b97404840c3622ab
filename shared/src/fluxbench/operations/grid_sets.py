"""The grid of small attentions that a published study has: 135 shapes, here in two passes and two dtypes.

Batch, seq_len, head_dim and heads are those of fxmarty/efficient-attention-benchmark, in its tables of PyTorch eager,
scaled_dot_product_attention and FlashAttention on an A100. Nothing is masked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from fluxbench.operations import workload
from fluxbench.operations.workload import Shape, Workload

BATCHES, LENGTHS, HEAD_DIMS, HEADS = (8, 16, 64), (64, 128, 256, 512, 1024), (32, 64, 128), (12, 16, 24)
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
PASSES = {"attention": "", "attention_training": "-training"}  # suffixes of names
_SIZES = ("batch", "seq_len_k", "head_dim_qk", "heads")


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the grid by dtype and pass: `sdpa-bf16`, `sdpa-bf16-training` and so on.

    Workloads are ordered by what a call reads and writes, so that neighbours have about as much of it.
    """
    shapes = list(itertools.product(BATCHES, LENGTHS, HEAD_DIMS, HEADS))
    found = {}
    for operation, suffix in PASSES.items():
        for dtype, short in DTYPES.items():
            made = (_one(operation, dtype, *shape) for shape in shapes)
            found[f"sdpa-{short}{suffix}"] = tuple(sorted(made, key=lambda one: one.cost.min_bytes))
    return found


def named(
    lengths: Iterable[int], head_dims: Iterable[int], operations: Iterable[str] = tuple(PASSES)
) -> tuple[str, ...]:
    """Return the names of the workloads of these lengths and head dims with the smallest batch and fewest heads."""
    sizes = set(itertools.product(BATCHES[:1], lengths, head_dims, HEADS[:1]))
    every = (one for of_set in sets().values() for one in of_set if one.operation in operations)
    return tuple(one.name for one in every if tuple(one.shape[name] for name in _SIZES) in sizes)


def _one(operation: str, dtype: str, batch: int, seq_len: int, head_dim: int, heads: int) -> Workload:
    group = f"sdpa-b{batch}-h{heads}-d{head_dim}-{DTYPES[dtype]}{PASSES[operation]}"
    shape: Shape = {
        "batch": batch, "seq_len_q": seq_len, "seq_len_k": seq_len, "heads": heads, "kv_heads": heads,
        "head_dim_qk": head_dim, "head_dim_v": head_dim, "dtype": dtype, "causal": False,
    }  # fmt: skip
    name = group.replace(f"-h{heads}", f"-s{seq_len}-h{heads}")
    return workload(operation, name, shape, group=group, x=seq_len, x_unit="tokens")
