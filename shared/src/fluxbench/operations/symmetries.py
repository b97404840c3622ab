"""Perturbations of q, k and v that attention follows exactly, without a rounding.

- A random sign for each channel of q and k leaves their products as they are; one for each channel of v goes to the
  output too.
- Without a mask, q is rolled along its tokens and the output with it; k and v are rolled together along theirs, which
  changes nothing.
- q is multiplied by a power of two and k divided by it; v is multiplied by another one, and the output with it. In
  float16, whose small numbers would lose bits, v alone is, and never made smaller.

So a kernel that keeps what it computed before, be it the output, the maxima of its rows or the scales of a
quantization, gives a wrong answer, and one that compares contents finds none that it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.protocol import Tensors

_MOST_DOUBLINGS = 2


@dataclass(frozen=True)
class Symmetry:
    """How q, k and v are perturbed, and what follows for an output and for gradients.

    Signs are `[kv_heads, head_dim]`, shifts are in tokens, scales are powers of two.
    """

    signs_qk: torch.Tensor
    signs_v: torch.Tensor
    shift_q: int
    shift_k: int
    scale_q: float  # k is divided by it
    scale_v: float

    def inputs(self, first: Tensors) -> Tensors:
        """Return q, k and v in place of the first ones, and the output's gradient `dout` where there is one."""
        q, k, v = (first[name] for name in "qkv")
        perturbed = {
            "q": (q * (_of_heads(self.signs_qk, q) * self.scale_q)).roll(self.shift_q, 1),
            "k": (k * (self.signs_qk / self.scale_q)).roll(self.shift_k, 1),
            "v": (v * (self.signs_v * self.scale_v)).roll(self.shift_k, 1),
        }
        if "dout" in first:
            perturbed["dout"] = (first["dout"] * _of_heads(self.signs_v, first["dout"])).roll(self.shift_q, 1)
        return perturbed

    def outputs(self, first: Tensors) -> Tensors:
        """Return the outputs that follow from those for the first inputs: out, or dq, dk and dv."""
        expected = {}
        if "out" in first:
            out = first["out"]
            expected["out"] = out.roll(self.shift_q, 1) * _of_heads(self.signs_v * self.scale_v, out)
        if "dq" in first:  # the scores' gradient grows with v
            dq, dk, dv = first["dq"], first["dk"], first["dv"]
            expected["dq"] = dq.roll(self.shift_q, 1) * _of_heads(self.signs_qk * (self.scale_v / self.scale_q), dq)
            expected["dk"] = dk.roll(self.shift_k, 1) * (self.signs_qk * (self.scale_v * self.scale_q)).to(dk.dtype)
            expected["dv"] = dv.roll(self.shift_k, 1) * self.signs_v.to(dv.dtype)
        return expected


def of(call: AttentionCall, first: Tensors, rng: torch.Generator) -> Iterator[Symmetry]:
    """Yield symmetries without end, no two in succession with the same shifts or scales."""
    rolls_q, rolls_k = (1, 1) if call.causal else (call.seq_len_q, call.seq_len_k)
    shift_q = shift_k = scale_q = scale_v = 0  # scales as numbers of doublings
    while True:
        signs_qk, signs_v = _signs(first["k"], rng), _signs(first["v"], rng)
        shift_q, shift_k = _other(shift_q, 0, rolls_q - 1, rng), _other(shift_k, 0, rolls_k - 1, rng)
        if call.dtype != "float16":
            scale_q = _other(scale_q, -_MOST_DOUBLINGS, _MOST_DOUBLINGS, rng)
        scale_v = _other(scale_v, 0, 2 * _MOST_DOUBLINGS, rng)
        yield Symmetry(signs_qk, signs_v, shift_q, shift_k, 2.0**scale_q, 2.0**scale_v)


def _signs(like: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    import torch

    return (2 * torch.randint(2, like.shape[2:], generator=rng) - 1).to(like.device, like.dtype)


def _other(before: int, least: int, most: int, rng: torch.Generator) -> int:
    """Return a random whole number that is not the one before; the one before where there is no other."""
    import torch

    if least == most:
        return before
    steps = int(torch.randint(1, most - least + 1, (), generator=rng))
    return least + (before - least + steps) % (most - least + 1)


def _of_heads(factors: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the factors of heads of k and v for the query heads that share them: `[heads, head_dim]`."""
    return factors.repeat_interleave(like.shape[2] // factors.shape[0], dim=0).to(like.dtype)
