"""Inputs whose contents change in place, at the same addresses, to others whose answer is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.operations.protocol import Perturbation, Tensors
from fluxbench.operations.workload import Workload

OTHER_CASES = 2  # beside the first, where an operation knows no exact perturbations

Expected = Callable[[Tensors], Tensors]  # outputs for the first contents -> for others


def _unchanged(first: Tensors) -> Tensors:
    return first


class PerturbedInputs:
    """Inputs that are perturbed in place.

    An operation's exact perturbations (`Operation.perturbations`) need no reference of their own. An operation that has
    none gets the contents of `others` in turn, cases of the same workload. Without either, contents stay.
    """

    def __init__(self, workload: Workload, inputs: Tensors, seed: int, others: Sequence[Case] = ()) -> None:
        operation = operations.find(workload.operation)
        self.inputs = inputs
        self._first = {name: x.clone() for name, x in inputs.items()}
        found = operation.perturbations(workload.shape, self._first, torch.Generator().manual_seed(seed))
        self._perturbations = iter(_from_cases(others) if found is None else found)
        self._present = Perturbation(self._first, _unchanged)

    def perturb(self) -> None:
        """Change the contents."""
        self._present = next(self._perturbations, self._present)
        for name, x in self.inputs.items():
            x.copy_(self._present.inputs[name])

    @property
    def expected(self) -> Expected:
        """What turns the right outputs for the first contents into those for the present ones."""
        return self._present.expected

    def restore(self) -> str | None:
        """Put the first contents back; return why a kernel is wrong that was given the present ones, or None."""
        changed = [name for name, x in self.inputs.items() if not x.equal(self._present.inputs[name])]
        for name, x in self.inputs.items():
            x.copy_(self._first[name])
        self._present = Perturbation(self._first, _unchanged)
        return f"the kernel changes its inputs: {', '.join(changed)}" if changed else None


def _from_cases(cases: Sequence[Case]) -> Iterator[Perturbation]:
    for case in itertools.cycle(cases):
        yield Perturbation(case.inputs, lambda first, case=case: case.expected)  # type: ignore[misc]
