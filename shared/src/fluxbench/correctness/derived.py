"""Whole outputs that follow from others, made when they are asked for: only what is judged whole needs them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import torch

from fluxbench.operations.protocol import KnowsSymmetries, Tensors
from fluxbench.operations.workload import Shape

Expected = Mapping[str, torch.Tensor]  # by output


class Derived(Expected):
    """What an operation's `varied` makes of whole outputs with a generator of one seed."""

    def __init__(self, operation: KnowsSymmetries, shape: Shape, of: Tensors, seed: bytes) -> None:
        self._operation, self._shape, self._of, self._seed = operation, shape, of, seed

    def made(self, *names: str) -> Tensors:
        """Return some outputs or all, each `[batch, tokens, ...]` and of the dtype of what it follows from."""
        of = {name: self._of[name] for name in names or self._of}
        return self._operation.varied(self._shape, {}, of, {}, random.Random(self._seed))[1]

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return an output, see `made`."""
        return self.made(name)[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the outputs."""
        return iter(self._of)

    def __len__(self) -> int:
        """Return how many outputs there are."""
        return len(self._of)
