"""How unfused attention of each precision class rounds: the operands of its matrix products, and what lies between.

Products are of matrices, or of as many matrices on both sides. Those that are added up in turn take a launch for each
step, or on a GPU for which Triton compiles one in all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluxbench.operations.precision import EXACT, ROUNDED, TF32

if TYPE_CHECKING:
    import torch

    Change = Callable[[torch.Tensor], torch.Tensor]
    Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_SUMMED_AT_ONCE = 4  # products that a matrix instruction adds to a float16 accumulator, at least (PTX ISA, mma.m8n8k4)
_TF32_DROPS = 0x1FFF  # the 13 bits of a float32 significand that TF32 lacks
_TF32_HALF = 0x1000  # half a unit in the last place of TF32


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic in float32 (float64 for float64), in which some values are rounded further."""

    operand: Change  # of a matrix product
    intermediate: Change  # every other value
    product: Product
    summed_exactly: Product  # the same of the same operands, but summed in float64
    scores_too: bool = False  # are rounded, and so is the rest of the softmax
    rounds_nothing: bool = False


def of(dtype: torch.dtype, precision: str) -> Arithmetic:
    """Return the arithmetic of a precision class on inputs of a dtype; float64 rounds nothing.

    TF32 operands are truncated: tensor cores ignore the low bits of what is not rounded before, which errs more than
    rounding. A product of float32 may be three of TF32 (`_of_three`). float16 partial sums are rounded after each 4
    products; no tensor core has bfloat16 accumulators.
    """
    import torch

    def to_dtype(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype).to(x.dtype)

    if precision == EXACT:
        if dtype == torch.float32:
            in_turn, exactly = (functools.partial(_of_three, summed=each) for each in (_summed_in_turn, _in_float64))
            return Arithmetic(to_dtype, _same, in_turn, exactly)
        return Arithmetic(to_dtype, _same, torch.matmul, _in_float64, rounds_nothing=dtype == torch.float64)
    if precision == ROUNDED:
        product = _summed_in_float16 if dtype == torch.float16 else torch.matmul
        return Arithmetic(to_dtype, to_dtype, product, _in_float64, scores_too=True)
    if precision == TF32:
        return Arithmetic(_truncated, _same, torch.matmul, _in_float64)
    raise ValueError(f"precision class must be exact, rounded or tf32, got {precision!r}")


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _truncated(x: torch.Tensor) -> torch.Tensor:
    import torch

    return (x.view(torch.int32) & ~_TF32_DROPS).view(torch.float32)


def _of_three(a: torch.Tensor, b: torch.Tensor, summed: Product) -> torch.Tensor:
    """Return a @ b as float32 kernels on tensor cores have it: by three products of TF32.

    An operand is a part that is truncated to TF32 and one that is what is left, rounded; the product of the two small
    parts is left out (CUTLASS, `gemm/warp/mma_tensor_op_fast_f32.h`; Ootomo and Yokota, 2022, arXiv:2203.03341). A
    term errs by up to 2**-20, at small parts near 2**-10, where one of float32 errs by 2**-24; TF32 errs by 2**-10.
    """
    (big_a, small_a), (big_b, small_b) = _two_parts(a), _two_parts(b)
    return summed(big_a + small_a, big_b + small_b).sub_(small_a @ small_b)


def _two_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    big = _truncated(x)
    return big, _truncated(((x - big).view(torch.int32) + _TF32_HALF).view(torch.float32))


def _in_float64(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def _summed_in_float16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    import torch

    if (found := _by_kernel(a, b, at_once=_SUMMED_AT_ONCE, half=True)) is not None:
        return found
    total = _zeros(a, b, torch.float16)
    for start in range(0, a.shape[-1], _SUMMED_AT_ONCE):
        part = slice(start, start + _SUMMED_AT_ONCE)
        total = (total.float() + a[..., part] @ b[..., part, :]).half()
    return total.float()


def _summed_in_turn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if (found := _by_kernel(a, b)) is not None:
        return found
    total = _zeros(a, b, a.dtype)
    for column, row in zip(a.unsqueeze(-1).unbind(-2), b.unsqueeze(-3).unbind(-2), strict=True):
        total.addcmul_(column, row)
    return total


def _by_kernel(a: torch.Tensor, b: torch.Tensor, **how: Any) -> torch.Tensor | None:
    """Return `in_turn.product`; None on a CPU, and where there is no Triton or it finds no compiler."""
    if not a.is_cuda:
        return None
    try:
        from fluxbench.operations import in_turn

        return in_turn.product(a, b, **how)
    except (ImportError, RuntimeError):
        return None


def _zeros(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros of the shape of a @ b, `[..., rows of a, columns of b]`."""
    import torch

    return torch.zeros(*a.shape[:-1], b.shape[-1], dtype=dtype, device=a.device)
