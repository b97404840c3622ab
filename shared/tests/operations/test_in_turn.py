"""The kernel of sums that are added up in turn, under Triton's interpreter: it returns what torch's launches return."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from interpreted import printed

from fluxbench.operations import arithmetic
from fluxbench.operations.precision import ROUNDED

Change = Callable[[torch.Tensor], torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SHAPES = ((1, 5, 3, 7), (3, 33, 70, 45), (2, 66, 130, 16))  # matrices, rows, count and columns


def one_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for index in range(a.shape[-1]):
        total.addcmul_(a[..., index : index + 1], b[..., index : index + 1, :])
    return total


def shares() -> dict[str, list[float]]:
    """Return, by dtype and shape, the error of the kernel over that of a launch for each step."""
    from fluxbench.operations import in_turn

    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {}
    for matrices, rows, count, columns in SHAPES:
        a, b = (torch.randn(matrices, *size, generator=generator) for size in ((rows, count), (count, columns)))
        half = arithmetic.of(torch.float16, ROUNDED)
        ways: tuple[tuple[torch.dtype, Change, Product, dict[str, Any]], ...] = (
            (torch.float32, lambda x: x, one_by_one, {}),
            (torch.float16, half.operand, half.product, {"at_once": 4, "half": True}),
        )
        for dtype, operand, product, how in ways:
            one, other = operand(a), operand(b)
            expected, exact = product(one, other), one.double() @ other.double()
            out = in_turn.product(one, other, **how)
            of_kernel, of_torch = (float((x - exact).norm() / exact.norm()) for x in (out, expected))
            found.setdefault(str(dtype), []).append(of_kernel / of_torch)
    return found


def test_the_kernel_errs_as_much_as_one_launch_for_each_step() -> None:
    for dtype, found in printed(__file__).items():
        assert len(found) == len(SHAPES)
        assert all(0.8 < share < 1.25 for share in found), (dtype, found)


if __name__ == "__main__":
    print(json.dumps(shares()))
