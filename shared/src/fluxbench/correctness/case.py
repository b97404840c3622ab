"""Inputs with the outputs that they must give, and how far an output may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fluxbench import operations
from fluxbench.operations.protocol import Operation, Tensors
from fluxbench.operations.workload import Workload

# Rounding a number to nearest once errs by u / sqrt(6), relative and root-mean-square, with the unit roundoff u
# (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.1): the absolute error is uniform within
# half a unit in the last place, and relative to a significand x uniform in [1, 2) that is
# u / sqrt(3) * sqrt(mean of 1/x^2).
# A fused kernel rounds the probabilities to the inputs' dtype before the second product; math attention does not.
UNIT_ROUNDOFF = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-24}


@dataclass(frozen=True)
class Case:
    """Inputs with their reference, against which any number of outputs can be judged."""

    inputs: Tensors
    expected: Tensors  # by output, float64
    unfused_rel_l2: dict[str, float]  # by output, the error of unfused torch operations in the inputs' dtype
    dtype: torch.dtype  # of the inputs and the outputs

    @classmethod
    def of(cls, operation: Operation, workload: Workload, inputs: Tensors) -> Case:
        """Compute the reference of these inputs. Raises `ValueError` where the operation has none."""
        dtype = getattr(torch, operation.attention(workload.shape).dtype)
        expected = operation.reference(workload.shape, inputs, torch.float64)
        unfused = operation.reference(workload.shape, inputs, dtype)
        if not expected or expected.keys() != unfused.keys():
            raise ValueError(f"operation {operation.name!r} must have a reference with the same outputs in each dtype")
        return cls(inputs, expected, {name: relative_l2(unfused[name], want) for name, want in expected.items()}, dtype)

    @classmethod
    def make(cls, workload: Workload, kind: str, seed: int, device: torch.device) -> Case:
        """Return a case of a workload with inputs of one kind."""
        operation = operations.find(workload.operation)
        return cls.of(operation, workload, operation.inputs(workload.shape, kind, seed, device))

    def save(self, path: Path) -> None:
        """Keep the case in a file."""
        torch.save((self.inputs, self.expected, self.unfused_rel_l2, self.dtype), path)

    @classmethod
    def load(cls, path: Path) -> Case:
        """Return the case that `save` kept."""
        return cls(*torch.load(path))

    def expecting(self, expected: Tensors) -> Case:
        """Return the case with other right outputs."""
        return replace(self, expected=expected)

    def budget(self, output: str, quantized_budget: float | None = None) -> float:
        """Return the relative L2 error that is accepted of an output.

        An exact kernel may err twice as much as unfused operations of the same precision, plus the rounding of one more
        step. `quantized_budget` is what a quantized variant declares.
        """
        if quantized_budget is not None:
            return quantized_budget
        return 2 * self.unfused_rel_l2[output] + UNIT_ROUNDOFF[self.dtype] / math.sqrt(6)


def relative_l2(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ||out - expected|| / ||expected||."""
    return float((out.to(expected.dtype) - expected).norm() / expected.norm())
