"""Seeded q, k and v of a workload, of two kinds.

`normal` is independent standard normal noise. `flux` is shaped like the activations of a diffusion transformer: a few
channels of k carry a constant offset many times the noise, and v has a bias, as SageAttention reports for K in image
and video models (Zhang et al., 2024, arXiv:2410.02367, section 3.2 and figure 4). What is easy on normal inputs, such
as low precision, is hard on these.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch

from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import INPUTS

OUTLIER_CHANNELS = 4
OUTLIER_OFFSET = 8.0  # standard deviations of the noise
VALUE_BIAS = 0.5  # standard deviation of v's bias over channels; larger would hide errors behind a large mean

_MOST_DOUBLINGS = 2  # by which contents change either way

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make(workload: Workload, kind: str, seed: int, device: torch.device | str) -> Inputs:
    """Return q `[batch, seq_len, heads, head_dim]` and k, v `[batch, seq_len, kv_heads, head_dim]`.

    They are of the workload's dtype on `device`, and the same for the same arguments on the same kind of device.
    Raises `ValueError` where the kind is unknown.
    """
    if kind not in INPUTS:
        raise ValueError(f"kind of inputs must be one of {', '.join(INPUTS)}, got {kind!r}")
    generator = torch.Generator(device=device)
    generator.manual_seed(zlib.crc32(f"{workload.name}/{kind}".encode()) + seed)
    dtype = getattr(torch, workload.dtype)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    assert workload.kv_heads is not None
    q = noise(workload.batch, workload.seq_len, workload.heads, workload.head_dim)
    k = noise(workload.batch, workload.seq_len, workload.kv_heads, workload.head_dim)
    v = noise(workload.batch, workload.seq_len, workload.kv_heads, workload.head_dim)
    if kind == "flux":
        channels = torch.randperm(workload.head_dim, generator=generator, device=device)[:OUTLIER_CHANNELS]
        k[..., channels] += OUTLIER_OFFSET * noise(workload.kv_heads, OUTLIER_CHANNELS).sign()
        v += VALUE_BIAS * noise(workload.kv_heads, workload.head_dim)
    return q.to(dtype), k.to(dtype), v.to(dtype)


@dataclass(frozen=True)
class Change:
    """How the contents of inputs differ from the first ones, as far as an output shows it."""

    factors: torch.Tensor  # of the output's channels, signed powers of two, [heads, head_dim]
    shift: int  # by how many tokens q is rolled

    def of(self, first: torch.Tensor) -> torch.Tensor:
        """Return the answer to the changed inputs from that to the first ones, `[batch, seq_len, heads, head_dim]`."""
        return first.roll(self.shift, 1) * self.factors.to(first.dtype)


class Fresh:
    """Inputs whose contents change in place, at the same addresses, in a way that attention follows exactly.

    - A random sign for each channel goes to q and k, which leaves their products as they are, and another one to v,
      which goes to the output too.
    - Where no mask tells the tokens apart, q is rolled along them by a random number, and the output with it; k and v
      are rolled together by another one, which changes nothing.
    - q is multiplied by a power of two and k divided by it, v is multiplied by another one and the output with it. In
      float16, whose small numbers would lose bits, v alone is, and never made smaller.

    None of these rounds anything. So a kernel that keeps what it computed from these addresses, be it the output, the
    maxima of its rows or the scales of a quantization, gives a wrong answer, and one that compares contents finds none
    that it knows.
    """

    def __init__(self, inputs: Inputs, seed: int, *, causal: bool = False) -> None:
        self.inputs = inputs
        self._group = inputs[0].shape[2] // inputs[1].shape[2]  # query heads that share a key head
        self._rolls = 1 if causal else inputs[0].shape[1]
        self._generator = torch.Generator().manual_seed(seed)
        self._first = tuple(x.clone() for x in inputs)
        self._shifts = [0, 0]  # of q, and of k and v
        self._scale = 1.0  # of q; k is divided by it
        self._doubled = 1.0  # of v
        self._turned = self._ones()  # of q and k
        self._factors = self._ones()  # of v

    def change(self) -> None:
        """Change the contents."""
        self._turned, self._factors = self._random(), self._random()
        self._shifts = [self._shift(before) for before in self._shifts]
        if self.inputs[0].dtype != torch.float16:
            self._scale = 2.0 ** self._other(-_MOST_DOUBLINGS, _MOST_DOUBLINGS, math.log2(self._scale))
        doublings = self._other(0, 2 * _MOST_DOUBLINGS, math.log2(self._doubled))
        self._doubled = 2.0**doublings
        for x, present in zip(self.inputs, self._present(), strict=True):
            x.copy_(present)

    @property
    def changed(self) -> Change:
        """How the present contents differ from the first ones."""
        return Change(self._of_heads(self._factors * self._doubled), self._shifts[0])

    def restore(self) -> str | None:
        """Put the first contents back; return why a kernel is wrong that was given the present ones, or None."""
        present = self._present()
        changed = [name for name, x, want in zip("qkv", self.inputs, present, strict=True) if not x.equal(want)]
        for x, first in zip(self.inputs, self._first, strict=True):
            x.copy_(first)
        self._shifts, self._scale, self._doubled = [0, 0], 1.0, 1.0
        self._turned, self._factors = self._ones(), self._ones()
        return f"the kernel changes its inputs: {', '.join(changed)}" if changed else None

    def _present(self) -> Inputs:
        """Return what the contents are, from the first ones."""
        q, k, v = self._first
        of_q, of_keys = self._shifts
        return (
            (q * (self._of_heads(self._turned) * self._scale)).roll(of_q, 1),
            (k * (self._turned / self._scale)).roll(of_keys, 1),
            (v * (self._factors * self._doubled)).roll(of_keys, 1),
        )

    def _of_heads(self, factors: torch.Tensor) -> torch.Tensor:
        """Return the factors of keys' or values' heads for those of the queries and the output: `[heads, head_dim]`."""
        return factors.repeat_interleave(self._group, dim=0)

    def _ones(self) -> torch.Tensor:
        v = self.inputs[2]
        return torch.ones(v.shape[2:], dtype=v.dtype, device=v.device)

    def _random(self) -> torch.Tensor:
        v = self.inputs[2]
        return (2 * torch.randint(2, v.shape[2:], generator=self._generator) - 1).to(v.device, v.dtype)

    def _shift(self, before: int) -> int:
        if self._rolls == 1:
            return 0
        return (before + int(torch.randint(1, self._rolls, (), generator=self._generator))) % self._rolls

    def _other(self, least: int, most: int, before: float) -> int:
        """Return a random whole number that is not the one before."""
        steps = int(torch.randint(1, most - least + 1, (), generator=self._generator))
        return least + (int(before) - least + steps) % (most - least + 1)
