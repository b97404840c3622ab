"""A workload in one process: what is checked, by kind of inputs, and the contents of timed calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.contents import Contents
from fluxbench.operations.workload import Workload
from fluxbench.timing.stopwatch import last_level_cache_bytes

SEEDS_PER_PROCESS = 100


class PreparedWorkload:
    """One workload in one process: `case` is checked, timed calls get `contents`.

    `other_kinds` are cases of the other kinds of inputs, of the first process alone.
    """

    def __init__(self, workload: Workload, case: Case, contents: Contents, other_kinds: Mapping[str, Case]) -> None:
        self.workload = workload
        self.case = case
        self.contents = contents
        self.other_kinds = other_kinds

    @classmethod
    def make(
        cls, workload: Workload, device: torch.device, process: int, *, most: int = 48, share: float = 1.0
    ) -> PreparedWorkload:
        """Return a workload with the inputs of one process: `most` contents at most, see `Contents.make`."""
        operation = operations.find(workload.operation)
        first, *others = operation.input_kinds
        seed = process * SEEDS_PER_PROCESS
        case = _case(workload, first, seed, device)
        other_kinds = {} if process else {kind: Case.make(workload, kind, seed, device) for kind in others}
        rotation = _rotation_length(workload, device)
        contents = Contents.make(workload, case, device, rotation=rotation, most=most, share=share)
        return cls(workload, case, contents, other_kinds)

    @property
    def cases(self) -> dict[str, Case]:
        """The cases by kind of inputs, that of timed calls first."""
        return {operations.find(self.workload.operation).input_kinds[0]: self.case, **self.other_kinds}


def _rotation_length(workload: Workload, device: torch.device) -> int:
    """Return how many sets of inputs exceed twice the cache; two on a CPU, whose calls outlast any refill."""
    if device.type == "cpu":
        return 2
    return max(2, -(-2 * last_level_cache_bytes(device) // workload.cost.min_bytes) + 1)


def _case(workload: Workload, kind: str, seed: int, device: torch.device) -> Case:
    """Return seeded inputs with their reference; on a CPU, which takes seconds for it, those of the first process."""
    kept = Path(f"case-{workload.name}.pt")
    if device.type == "cpu" and kept.is_file():
        return Case.load(kept, workload)
    case = Case.make(workload, kind, seed, device)
    if device.type == "cpu":
        case.save(kept)
    return case
