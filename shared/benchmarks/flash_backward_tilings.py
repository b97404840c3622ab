"""Time candidate tilings of our Triton backward pass on this GPU, beside FlexAttention's and torch's flash backward.

    python shared/benchmarks/flash_backward_tilings.py --tokens 4608 --heads 24 --kv-heads 24 --head-dim 128 [--causal]

With `--jobs N`, N processes compile the candidates first. Each kernel is varied by itself, with the other one as
`TILINGS` has it. A time is the median of single calls of the whole backward pass in milliseconds, after warm-up, with
the cache cleared before each. The result of a candidate must be within one rounding of 16 bits of the default tiling's.
Triton's errors of too much shared memory are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from fluxbench.kernels import flash_backward as kernel
from fluxbench.kernels.flash_forward import flash_forward_with_lse
from fluxbench.kernels.flash_tensors import of_device
from fluxbench.operations.shapes import AttentionCall
from fluxbench.timing.stopwatch import Stopwatch

WARM_UPS, CALLS = 3, 15
# block_m, block_n, warps, stages
KEYS = [(64, 128, 8, 2), (64, 128, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3), (32, 64, 4, 3), (128, 64, 8, 2)]
QUERIES = [(128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3), (128, 32, 8, 3)]


def time_ms(call: Callable[[], object], stopwatch: Stopwatch) -> float:
    """Return the median time of a call."""
    for _ in range(WARM_UPS):
        call()
    times = []
    for _ in range(CALLS):
        stopwatch.clear_cache()
        stopwatch.spin(0.0, 2)
        stopwatch.record()
        call()
        stopwatch.record()
        times += stopwatch.between_ms()
    return median(times)


def candidates(default: kernel.Tiling) -> Iterator[tuple[str, kernel.Tiling]]:
    """Yield each candidate with its name; the default first."""
    yield "default", default
    tma = (True, False) if default.keys.descriptors else (False,)
    for name, table in (("keys", KEYS), ("queries", QUERIES)):
        for (block_m, block_n, warps, stages), descriptors in itertools.product(table, tma):
            part = kernel.Part(block_m=block_m, block_n=block_n, warps=warps, stages=stages, descriptors=descriptors)
            load = "descriptors" if descriptors else "pointers"
            label = f"{name} {block_m} x {block_n}, {warps} warps, {stages} stages, {load}"
            changed = {name: part}
            yield label, replace(default, **changed)


def libraries(inputs: tuple[torch.Tensor, ...], causal: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the backward passes of FlexAttention, compiled, and of torch's flash attention."""
    q, k, v, dout = (x.transpose(1, 2) for x in inputs)
    leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    mask = None
    if causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], q.device)
    flex = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    of_flex = flex(*leaves, block_mask=mask, enable_gqa=grouped)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        of_flash = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=grouped)
    for name, out in (("flex, compiled", of_flex), ("torch flash", of_flash)):
        yield name, partial(torch.autograd.grad, out, leaves, dout, retain_graph=True)


def compile_all(jobs: int) -> None:
    """Let processes fill Triton's cache: each calls its share of the candidates once."""
    command = [sys.executable, *sys.argv, "--jobs", "0"]
    running = [subprocess.Popen([*command, "--share", str(share), str(jobs)]) for share in range(jobs)]
    for process in running:
        process.wait()


def main() -> None:
    """Print a line for each candidate: its time, its rate by 2.5 times the forward pass, or why it has none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tokens", "heads", "kv-heads", "head-dim"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--jobs", type=int, default=0, help="processes that compile before anything is timed")
    parser.add_argument("--share", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.jobs:
        compile_all(asked.jobs)
    call = AttentionCall(
        seq_len_q=asked.tokens, seq_len_k=asked.tokens, heads=asked.heads, kv_heads=asked.kv_heads,
        head_dim_qk=asked.head_dim, head_dim_v=asked.head_dim, causal=asked.causal,
    )  # fmt: skip
    flops = 2.5 * call.forward_cost.flops
    shapes = [(1, asked.tokens, heads, asked.head_dim) for heads in (asked.heads, asked.kv_heads, asked.kv_heads)]
    q, k, v, dout = (torch.randn(shape, device="cuda").bfloat16() for shape in (*shapes, shapes[0]))
    out, lse = flash_forward_with_lse(q, k, v, causal=asked.causal)
    stopwatch = Stopwatch(q.device)

    def show(name: str, run: Callable[[], object]) -> None:
        took = time_ms(run, stopwatch)
        print(f"{took:8.3f} ms  {flops / took / 1e9:6.0f} TFLOP/s  {name}", flush=True)

    def backward(tiling: kernel.Tiling) -> tuple[Any, ...]:
        return kernel.flash_backward(dout, q, k, v, out, lse, causal=asked.causal, tiling=tiling)

    default = of_device(kernel.TILINGS, torch.cuda.get_device_capability(), asked.head_dim)
    if asked.share:
        for _, tiling in itertools.islice(candidates(default), asked.share[0], None, asked.share[1]):
            with contextlib.suppress(Exception):  # told when it is timed
                backward(tiling)
        return
    expected = backward(default)
    for name, tiling in candidates(default):
        try:
            found = backward(tiling)
        except Exception as error:  # noqa: BLE001  (such as too much shared memory; the next one may run)
            print(f"{'':31} {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        errors = [
            float((x.double() - y.double()).norm() / y.double().norm()) for x, y in zip(found, expected, strict=True)
        ]
        if max(errors) > 2**-8:
            print(f"{'':31} {name}: wrong by {max(errors):.1e}", flush=True)
            continue
        show(name, partial(backward, tiling))
    for name, run in libraries((q, k, v, dout), asked.causal):
        show(name, run)


if __name__ == "__main__":
    main()
