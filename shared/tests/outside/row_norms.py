"""The norms of the rows of an attention's output, a made-up operation, and a study of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from fluxbench import operations
from fluxbench.operations import math_attention, qkv
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape
from fluxbench.studies.study import Study

if TYPE_CHECKING:
    import torch

OPERATION = "outside.row_norms:RowNorms"


class RowNorms:
    """Output: `norms`, `[batch, seq_len_q, heads]`, of the inputs' dtype."""

    name = "row_norms"
    input_kinds = ("normal",)
    parts: Mapping[str, str] = MappingProxyType({"norms": r"(?i)norm"})
    differentiates = False

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention whose output has these rows."""
        return AttentionCall.of(shape)

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of the attention, whose output is not written."""
        call, forward = self.attention(shape), self.attention(shape).forward_cost
        rows = call.batch * call.seq_len_q * call.heads
        return Cost(
            flops=forward.flops + 2 * rows * call.head_dim_v,
            min_flops=forward.min_flops,
            min_bytes=forward.min_bytes - 2 * rows * (call.head_dim_v - 1),
        )

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return q, k and v."""
        return qkv.make(self.attention(shape), kind, qkv.generator("row norms", kind, seed, device))

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Change nothing."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = "exact") -> Tensors:
        """Return the norms by unfused operations."""
        return {"norms": math_attention.forward(self.attention(shape), inputs, dtype, precision).norm(dim=-1)}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return an attention with the norms after it."""
        attend = kernel.attention(self.attention(shape))
        return Bound(lambda tensors: {"norms": attend(*(tensors[name] for name in "qkv")).norm(dim=-1)})

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: whole references are cheap at these lengths."""
        return None


SHAPE: Shape = {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim_qk": 64, "head_dim_v": 64, "dtype": "bfloat16"}
WORKLOADS = tuple(
    operations.workload(
        OPERATION, f"row-norms-{tokens}", {**SHAPE, "seq_len_q": tokens, "seq_len_k": tokens},
        group="row-norms", x=tokens, x_unit="tokens",
    )
    for tokens in (33, 1024)  # of the longer one a call of the reference takes 20 ms or more: see test_real_workers.py
)  # fmt: skip
STUDY = Study(name="outside", references=("torch_math", "torch_flash"), workloads=WORKLOADS)
