"""How several ranks share a model's step: diffusers' context parallelism. Without torch."""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.operations.model_shape import WAN, ModelShape
from fluxbench.operations.workload import Shape

SHARED_BY = ("ulysses", "ring", "gpus")  # what the shape of a shared step has beside that of the model


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """The tokens are split over `ulysses * ring` ranks.

    For the attention, Ulysses gives each rank some heads of all tokens (Jacobs et al., DeepSpeed Ulysses, 2023), and
    ring attention all heads of its own queries, over all keys in turn (Liu et al., Ring Attention, 2023).
    """

    ulysses: int = 1
    ring: int = 1

    def __post_init__(self) -> None:
        """Raise `ValueError` where a degree is none."""
        for name in ("ulysses", "ring"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} of a shared step must be a positive integer, got {getattr(self, name)!r}")

    @property
    def ranks(self) -> int:
        """How many ranks share a step."""
        return self.ulysses * self.ring

    def problem(self, shape: ModelShape) -> str | None:
        """Return why so many ranks cannot share a step of this shape, or None."""
        if shape.heads % self.ulysses:
            return f"heads must be a multiple of the ulysses degree, got {shape.heads} heads on {self.ulysses} ranks"
        tokens = {"image": shape.image_tokens, **({} if shape.model == WAN else {"text": shape.text_tokens})}
        for name, count in tokens.items():
            if count % self.ranks:
                return f"{name} tokens must be a multiple of the ranks, got {count:,} tokens on {self.ranks} ranks"
        return None


def model_of(shape: Shape) -> Shape:
    """Return the shape of the model alone, of a shared step or of one that is not."""
    return {name: value for name, value in shape.items() if name not in SHARED_BY}
