"""How far an output is from the answer: as a whole, by head, and by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from fluxbench.correctness.questions import Question, answers


@dataclass(frozen=True)
class Worst:
    """The largest relative L2 errors of an output, or the largest that are accepted."""

    rel_l2: float  # of the whole output
    head: float  # of one head of one batch entry; of an output without heads that of the whole
    row: float


@dataclass(frozen=True)
class Limits:
    """The largest relative L2 errors that are accepted of one output, of each of its heads and of each row."""

    rel_l2: float
    head: float | torch.Tensor  # [batch, heads]
    row: float | torch.Tensor  # of the output's shape without its last dimension


class Deviation:
    """Relative L2 errors of an output against the answer, of the same shape and device.

    The last dimension is a row. An output `[batch, tokens, heads, head_dim]` also has heads. A row's error is relative
    to its own norm, or to the root mean square norm of its head's rows where that is larger: what cancels to a small
    norm keeps the rounding errors of what it is made of.
    """

    def __init__(self, out: torch.Tensor, expected: torch.Tensor) -> None:
        self.errors = torch.linalg.vector_norm(out.to(expected.dtype) - expected, dim=-1)  # of rows
        self.norms = torch.linalg.vector_norm(expected, dim=-1)
        self._heads_dim = 1 if expected.ndim == 4 else None  # the tokens, over which a head's error is summed

    @property
    def error(self) -> float:
        """||out - expected||."""
        return self._figures[0]

    @property
    def rel_l2(self) -> float:
        """||out - expected|| / ||expected||."""
        return self._figures[1]

    @cached_property
    def heads(self) -> torch.Tensor | None:
        """The error of each head, `[batch, heads]`; None where the output has none."""
        if self._heads_dim is None:
            return None
        return share(self.errors.norm(dim=self._heads_dim), self.norms.norm(dim=self._heads_dim))

    @cached_property
    def units(self) -> torch.Tensor:
        """What the error of each row is relative to, of the output's shape without its last dimension."""
        squares = self.norms.square()
        usual = squares.mean() if self._heads_dim is None else squares.mean(self._heads_dim, keepdim=True)
        return torch.maximum(self.norms, usual.sqrt())

    @cached_property
    def rows(self) -> torch.Tensor:
        """The error of each row, of the output's shape without its last dimension."""
        return share(self.errors, self.units)

    @property
    def worst(self) -> Worst:
        """The errors of the whole, of the worst head and of the worst row."""
        _, rel_l2, row, *of_heads = self._figures
        return Worst(rel_l2, of_heads[0] if of_heads else rel_l2, row)

    @cached_property
    def _figures(self) -> list[float]:
        """The error, the relative one, the worst row's and, where there are heads, theirs."""
        return list(answers([self.question()])[0])

    def question(self) -> Question[tuple[float, ...]]:
        """Ask the device for the figures, without waiting for it; with the answer they are known."""
        error = self.errors.norm()
        heads = [] if self.heads is None else [self.heads.max()]
        figures = [error, share(error, self.norms.norm()), self.rows.max(), *heads]

        def told(numbers: Sequence[float]) -> tuple[float, ...]:
            self.__dict__["_figures"] = list(numbers)
            return tuple(numbers)

        return Question(torch.stack(figures).double(), told)


def place_of_worst(errors: torch.Tensor) -> list[int]:
    """Return the index of the largest error, or of the first that is not a number."""
    return [int(index) for index in torch.unravel_index(errors.argmax(), errors.shape)]


def share(error: torch.Tensor, norm: float | torch.Tensor) -> torch.Tensor:
    """Return error / norm, 0 where both are."""
    return torch.where(error == 0, error, error / norm)
