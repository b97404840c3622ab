"""Matrix products of a given number and nothing else, in Triton: work of a known length, at about an attention's power.

Operands and sums stay in registers and shared memory, so that nothing but the clock of the multiprocessors decides how
long a product takes. A thread that only counts cycles would leave the device nearly idle, which at a power limit makes
the attention beside it faster.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK, _DEPTH = 128, 16  # a product of [128, 16] and [16, 128]: 128 cycles of a Hopper multiprocessor at least
_PROGRAMS, _WARPS = 2, 4  # to a multiprocessor; of a program


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _products_kernel(out_pointer: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr, DEPTH: tl.constexpr) -> None:
    """Add up `count` products of two tiles that differ in all elements, and write a number that depends on the sum."""
    row, depth = tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    a = ((row[:, None] * 37 + depth[None, :] * 11) % 101 - 50).to(tl.float32) / 64
    b = ((row[None, :] * 53 + depth[:, None] * 29) % 103 - 51).to(tl.float32) / 64
    left, right = a.to(tl.bfloat16), b.to(tl.bfloat16)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(count):
        total = tl.dot(left, right, total)
    tl.store(out_pointer + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0))


def multiply(count: int, device: torch.device) -> torch.Tensor:
    """Launch two programs to a multiprocessor that take `count` matrix products each, on the current stream.

    Returns a float32 tensor [programs], equal numbers in proportion to `count`.
    """
    programs = _PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
    out = torch.empty(programs, dtype=torch.float32, device=device)
    _products_kernel[(programs,)](out, count, BLOCK=_BLOCK, DEPTH=_DEPTH, num_warps=_WARPS)
    return out
