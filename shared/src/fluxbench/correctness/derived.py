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

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return an output, `[batch, tokens, ...]`, of the dtype of what it follows from."""
        of = self._of[name]
        every, rng = {name: torch.arange(of.shape[1], device=of.device)}, random.Random(self._seed)
        return self._operation.varied(self._shape, {}, {name: of}, every, rng)[1][name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the outputs."""
        return iter(self._of)

    def __len__(self) -> int:
        """Return how many outputs there are."""
        return len(self._of)
