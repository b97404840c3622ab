"""A workload in one process: sets of inputs, of which the last is checked, and what its outputs must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import verdict
from fluxbench.correctness.perturbing import OTHER_CASES, PerturbedInputs
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Workload
from fluxbench.timing.burst import Kept
from fluxbench.timing.stopwatch import last_level_cache_bytes

SEEDS_PER_PROCESS = 100
_OTHERS_FROM = 50  # first seed of the other cases of an operation without exact perturbations


class PreparedWorkload:
    """One workload in one process.

    Timed calls rotate through `rotation`; the last of it are the inputs of `case`, which are perturbed. `other_kinds`
    are cases of the other kinds of inputs, of the first process alone.
    """

    def __init__(
        self,
        workload: Workload,
        rotation: Sequence[Tensors],
        case: Case,
        seed: int,
        others: Sequence[Case],
        other_kinds: Mapping[str, Case],
    ) -> None:
        self.workload = workload
        self.rotation = rotation
        self.case = case
        self.other_kinds = other_kinds
        self.perturbed = PerturbedInputs(workload, case.inputs, seed, others)
        self._unperturbed = [PerturbedInputs(workload, inputs, seed) for inputs in rotation[:-1]]

    @classmethod
    def make(cls, workload: Workload, device: torch.device, process: int) -> PreparedWorkload:
        """Return a workload with the inputs of one process."""
        operation = operations.find(workload.operation)
        first, *others = operation.input_kinds
        seed = process * SEEDS_PER_PROCESS
        rotation = [
            operation.inputs(workload.shape, first, seed + index, device)
            for index in range(_rotation_length(workload, device))
        ]
        case = _case(workload, rotation[-1], device)
        rotation[-1] = case.inputs
        known = operation.perturbations(workload.shape, case.inputs, torch.Generator()) is not None
        other_cases = [
            _case(
                workload,
                operation.inputs(workload.shape, first, seed + _OTHERS_FROM + index, device),
                device,
                index + 1,
            )
            for index in range(0 if known else OTHER_CASES)
        ]
        other_kinds = {} if process else {kind: Case.make(workload, kind, seed, device) for kind in others}
        return cls(workload, rotation, case, seed, other_cases, other_kinds)

    @property
    def cases(self) -> dict[str, Case]:
        """The cases by kind of inputs, that of timed calls first."""
        return {operations.find(self.workload.operation).input_kinds[0]: self.case, **self.other_kinds}

    def judge(self, kept: Kept, quantized_budget: float | None, precision: str) -> str | None:
        """Return why the outputs of a timed call are wrong, or None."""
        expected = kept.expected(self.case.expected) if kept.expected else self.case.expected
        return verdict(kept.outputs, self.case.expecting(expected), quantized_budget, precision)

    def restore(self) -> str | None:
        """Put all inputs back as they were for the next variant; return why the one before is wrong, or None."""
        found = [each.restore() for each in (self.perturbed, *self._unperturbed)]
        return next((wrong for wrong in found if wrong), None)


def _rotation_length(workload: Workload, device: torch.device) -> int:
    """Return how many sets of inputs exceed twice the cache; two on a CPU, whose calls outlast any refill."""
    if device.type == "cpu":
        return 2
    return max(2, -(-2 * last_level_cache_bytes(device) // workload.cost.min_bytes) + 1)


def _case(workload: Workload, inputs: Tensors, device: torch.device, number: int = 0) -> Case:
    """Return these inputs with their reference; on a CPU, which takes seconds for it, those of the first process."""
    kept = Path(f"case-{workload.name}-{number}.pt")
    if device.type == "cpu" and kept.is_file():
        return Case.load(kept, workload)
    case = Case.of(operations.find(workload.operation), workload, inputs)
    if device.type == "cpu":
        case.save(kept)
    return case
