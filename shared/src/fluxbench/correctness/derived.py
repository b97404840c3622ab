"""Whole outputs that follow from others, made when they are asked for: only what is judged whole needs them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch

from fluxbench.operations.protocol import KnowsSymmetries, Tensors
from fluxbench.operations.workload import Shape

if TYPE_CHECKING:
    from fluxbench.correctness.content import Content

Expected = Mapping[str, torch.Tensor]  # by output


class Origin(NamedTuple):
    """The content from which another follows, by the symmetries of an operation that a generator of this seed draws."""

    content: Content
    operation: KnowsSymmetries
    shape: Shape
    seed: bytes

    def outputs(self, of: Tensors) -> Tensors:
        """Return whole outputs that follow from some of the content's."""
        return self.operation.varied(self.shape, {}, of, {}, random.Random(self.seed))[1]

    def scales(self, of: Tensors, positions: Tensors) -> Tensors:
        """Return error scales of rows that follow from those of all rows of the content's outputs."""
        return self.operation.varied_scales(self.shape, of, positions, random.Random(self.seed))


class Derived(Expected):
    """The whole outputs of a content that follows from another."""

    def __init__(self, origin: Origin) -> None:
        assert isinstance(origin.content.expected, dict)
        self._origin, self._of = origin, origin.content.expected

    def made(self, *names: str) -> Tensors:
        """Return some outputs or all, each `[batch, tokens, ...]` and of the dtype of what it follows from."""
        of = {name: self._of[name] for name in names or self._of}
        return self._origin.outputs(of)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return an output, see `made`."""
        return self.made(name)[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the outputs."""
        return iter(self._of)

    def __len__(self) -> int:
        """Return how many outputs there are."""
        return len(self._of)
