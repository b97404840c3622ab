"""How long the host takes for a call of our attention, forward and backward, beside torch's own flash attention.

    PYTHONPATH=shared/src python shared/benchmarks/launch_times.py

The inputs are so small that the device waits for the host. Prints the best and the median of nine rounds of 300 calls,
in microseconds a call. It then checks that every call gave what the first of its kind gave, bit by bit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fluxbench.kernels import attention

_ROUNDS, _CALLS = 9, 300


def flash_of_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return torch's flash attention of tensors of [batch, seq_len, heads, head_dim]."""
    turned = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*turned).transpose(1, 2)


def both(kernel: Callable[..., torch.Tensor], leaves: tuple[torch.Tensor, ...], dout: torch.Tensor) -> Any:
    """Return the gradients, after a forward pass of its own."""
    return torch.autograd.grad(kernel(*leaves), leaves, dout)


def microseconds(call: Callable[[], Any]) -> str:
    """Return the best and the median time of the host for a call."""
    times = []
    for _ in range(_ROUNDS + 1):  # the first compiles and fills caches
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(_CALLS):
            call()
        times.append((time.perf_counter() - started) / _CALLS * 1e6)
    return f"{min(times[1:]):8.1f} best{statistics.median(times[1:]):8.1f} median"


def main() -> None:
    """Time and print."""
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (1, 256, 4, 128)
    q, k, v, dout = (torch.randn(shape, generator=generator, device="cuda").bfloat16() for _ in range(4))
    leaves = tuple(x.clone().requires_grad_() for x in (q, k, v))
    kernels: dict[str, Callable[..., torch.Tensor]] = {
        "default": partial(attention, deterministic=True),
        "triton": partial(attention, forward="triton", backward="triton"),
        "torch flash": flash_of_torch,
    }
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for name, kernel in kernels.items():
            out = kernel(*leaves)
            backward = partial(torch.autograd.grad, out, leaves, dout, retain_graph=True)
            first = (out, *backward())
            calls: dict[str, Callable[[], Any]] = {
                "forward": partial(kernel, q, k, v),
                "forward, differentiable": partial(kernel, *leaves),
                "backward": backward,
                "both": partial(both, kernel, leaves, dout),
            }
            for part, call in calls.items():
                print(f"{name:<14}{part:<26}{microseconds(call)}")
            if name != "torch flash":
                last = (kernel(*leaves), *backward())
                assert all(torch.equal(x, y) for x, y in zip(first, last, strict=True)), name
                assert torch.equal(kernel(q, k, v), out), name


if __name__ == "__main__":
    main()
