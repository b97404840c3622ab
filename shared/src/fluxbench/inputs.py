"""Seeded q, k and v of a workload, of two kinds.

`normal` is independent standard normal noise. `flux` is shaped like the activations of a diffusion transformer: a few
channels of k carry a constant offset many times the noise, and v has a bias, as SageAttention reports for K in image
and video models (Zhang et al., 2024, arXiv:2410.02367, section 3.2 and figure 4). What is easy on normal inputs, such
as low precision, is hard on these.
"""

from __future__ import annotations

import zlib

import torch

from fluxbench.workloads import Workload

KINDS = ("normal", "flux")
OUTLIER_CHANNELS = 4
OUTLIER_OFFSET = 8.0  # standard deviations of the noise
VALUE_BIAS = 0.5  # standard deviation of v's bias over channels; larger would hide errors behind a large mean

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make(workload: Workload, kind: str, seed: int, device: torch.device | str) -> Inputs:
    """Return q `[batch, seq_len, heads, head_dim]` and k, v `[batch, seq_len, kv_heads, head_dim]`.

    They are of the workload's dtype on `device`, and the same for the same arguments on the same kind of device.
    Raises `ValueError` where the kind is unknown.
    """
    if kind not in KINDS:
        raise ValueError(f"kind of inputs must be one of {', '.join(KINDS)}, got {kind!r}")
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
