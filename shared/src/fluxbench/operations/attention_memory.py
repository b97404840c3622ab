"""The memory that attention must hold: a model of a few terms beside which measured bytes can be read.

- *inputs*: q, k and v, and for a backward pass the gradient of the output.
- *fused*, forward: the output. It keeps for the backward pass the output and a float32 number a query and head,
  the logarithm of the sum of its softmax (Dao, FlashAttention-2, 2023, section 3.1.1). The backward pass adds dq, dk
  and dv.
- *unfused*, forward: the output, and two matrices of scores at once, as a softmax reads one and writes the other. It
  keeps the output and one matrix, the probabilities (Dao et al., FlashAttention, 2022, algorithm 0). The backward pass
  adds their gradient, that of the scores, and dq, dk and dv.

A matrix has batch * heads * queries * keys elements, of the inputs' dtype or, as torch's unfused attention has it for
16-bit inputs, of float32. What a library needs beyond this is its own choice: masks, copies of inputs in float32, and
partial gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT

_FLOAT32 = 4


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes that a call must hold, by the model."""

    inputs: int
    kept: int  # by the forward pass for the backward pass; 0 where there is none
    peak: int  # beside the inputs, outputs included, over both passes

    @property
    def total(self) -> int:
        """Inputs and peak."""
        return self.inputs + self.peak


def held(call: AttentionCall, *, fused: bool, backward: bool) -> Held:
    """Return what a call must hold: forward, or with `backward` forward and backward."""
    each = BYTES_PER_ELEMENT[call.dtype]
    rows = call.batch * call.heads * call.seq_len_q
    output = rows * call.head_dim_v * each
    qkv = call.elements * each - output
    matrix = 0 if fused else rows * call.seq_len_k * _FLOAT32
    statistics = rows * _FLOAT32 if fused else 0
    forward = output + 2 * matrix
    if not backward:
        return Held(inputs=qkv, kept=0, peak=forward)
    kept = output + matrix + statistics
    return Held(inputs=qkv + output, kept=kept, peak=max(forward, kept + 2 * matrix + qkv))
