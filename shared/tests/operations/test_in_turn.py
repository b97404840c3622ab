"""The kernel of sums that are added up in turn, under Triton's interpreter: it returns what torch's launches return."""

from __future__ import annotations

import json
from typing import Any

import torch
from interpreted import printed

from fluxbench.operations import arithmetic
from fluxbench.operations.precision import EXACT, ROUNDED

SHAPES = ((1, 5, 3, 7), (3, 33, 70, 45), (2, 66, 130, 16))  # matrices, rows, count and columns


def shares() -> dict[str, list[float]]:
    """Return, by dtype and shape, the error of the kernel over that of a launch for each step."""
    from fluxbench.operations import in_turn

    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {}
    for matrices, rows, count, columns in SHAPES:
        a, b = (torch.randn(matrices, *size, generator=generator) for size in ((rows, count), (count, columns)))
        ways: tuple[tuple[torch.dtype, str, dict[str, Any]], ...] = (
            (torch.float32, EXACT, {}),
            (torch.float16, ROUNDED, {"at_once": 4, "half": True}),
        )
        for dtype, precision, how in ways:
            rounds = arithmetic.of(dtype, precision)
            one, other = rounds.operand(a), rounds.operand(b)
            expected, exact = rounds.product(one, other), one.double() @ other.double()
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
