"""Check the Gluon forward kernel on this GPU (compute capability 9.0), then time candidate tilings of it.

    PYTHONPATH=shared/src python shared/benchmarks/gluon_forward.py [--only check|time]

Both run in child processes (`watched.py`). A check compares with float64, by the budget of the tests: twice the error
of unfused attention in the same dtype, plus one rounding. Its inputs lie in longer tensors of NaN.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from watched import check_all, time_groups, time_shape

from fluxbench.kernels.flash_gluon import Tiling, gluon_forward, gluon_forward_with_lse

TILINGS = {"default": Tiling(), "not split": Tiling(split=False)}
# tokens, heads, kv_heads, head_dim, causal
SHAPES = {
    "4224": (4224, 24, 24, 128, False),
    "4608": (4608, 24, 24, 128, False),
    "causal 16k": (16384, 32, 8, 128, True),
    "causal 4k": (4096, 32, 8, 128, True),
    "4544": (4544, 24, 24, 128, False),
    "4608 x 64": (4608, 24, 24, 64, False),
    "causal 8k x 64": (8192, 32, 8, 64, True),
}
LENGTHS = (1, 33, 123, 1024, 4097, 4415, 4608)
# seq_len_q, seq_len_k, batch, heads, kv_heads, memory
CASES = [
    *((n, n, 1, 4, kv_heads, "sliced") for n, kv_heads in zip(LENGTHS, (4, 2, 1, 4, 2, 1, 4), strict=True)),
    *((n, m, 3, 6, 2, memory) for n, m in ((65, 200), (1, 130), (257, 385)) for memory in ("sliced", "transposed")),
    (700, 700, 2, 40, 8, "fused"),
]
FULL_CASES = [(257, 1, 2, 3, 1, "sliced"), (385, 129, 2, 4, 4, "transposed")]
QUICK_CASES = [(n, n, 2, 4, 2, "sliced") for n in (1, 123, 256, 1024, 4415)]
# 1e-4 of a log-sum-exp to the base 2 is 7e-5 of a weight, far below a rounding of 16 bits
LSE_ERROR = 1e-4
ROUNDING = {torch.bfloat16: 2**-8 / math.sqrt(6), torch.float16: 2**-11 / math.sqrt(6)}


def inputs(case: tuple[Any, ...], dtype: torch.dtype, head_dim: int) -> list[torch.Tensor]:
    """Return q, k and v, normal; what lies beside them in memory is NaN."""
    seq_len_q, seq_len_k, batch, heads, kv_heads, memory = case

    def draw(seq_len: int, count: int) -> torch.Tensor:
        values = torch.randn((batch, seq_len, count, head_dim), device="cuda").to(dtype)
        wide = torch.full((batch, seq_len + 9, count + 1, head_dim), math.nan, dtype=dtype, device="cuda")
        if memory == "transposed":
            wide = wide.transpose(1, 2).contiguous().transpose(1, 2)
        wide[:, :seq_len, :count] = values
        return wide[:, :seq_len, :count]

    if memory == "fused":
        fused = torch.randn((batch, seq_len_q, heads + 2 * kv_heads, head_dim), device="cuda").to(dtype)
        return list(fused.split((heads, kv_heads, kv_heads), 2))
    return [draw(seq_len_q, heads), draw(seq_len_k, kv_heads), draw(seq_len_k, kv_heads)]


def math_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, Any]:
    """Return attention, step by step in the dtype of the inputs, and the log-sum-exp to the base 2."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device="cuda").triu(k.shape[2] - q.shape[2] + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1) / math.log(2)


def relative_l2(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the error of a result, relative to the norm of the exact one."""
    return float((got.double() - exact).norm() / exact.norm())


def check(dtype_name: str, head_dim: int, causal: bool, tiling_name: str) -> None:
    """Check the cases of one group, and print a line for each."""
    print("loaded", flush=True)
    dtype, tiling = getattr(torch, dtype_name), TILINGS[tiling_name]
    cases = [*CASES, *([] if causal else FULL_CASES)] if tiling_name == "default" else QUICK_CASES
    for case in cases:
        torch.manual_seed(0)
        q, k, v = inputs(case, dtype, head_dim)
        out, lse = gluon_forward_with_lse(q, k, v, causal=causal, tiling=tiling)
        torch.cuda.synchronize()
        again = gluon_forward(q, k, v, causal=causal, tiling=tiling)
        torch.cuda.synchronize()
        exact, exact_lse = math_attention(q.double(), k.double(), v.double(), causal)
        budget = 2 * relative_l2(math_attention(q, k, v, causal)[0], exact) + ROUNDING[dtype]
        error, of_lse = relative_l2(out, exact), float((lse.double() - exact_lse).abs().max())
        good = error <= budget and of_lse < LSE_ERROR and torch.equal(out, again)
        print(
            f"{'ok ' if good else 'BAD'} {case}: error {error:.2e} of {budget:.2e}, of lse {of_lse:.1e}, "
            f"{'same' if torch.equal(out, again) else 'OTHER'} bits",
            flush=True,
        )


def candidates(shape: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is timed of a shape, with its name."""
    tokens, heads, kv_heads, head_dim, causal = SHAPES[shape]
    torch.manual_seed(0)
    q, k, v = (
        torch.randn((1, tokens, count, head_dim), device="cuda").bfloat16() for count in (heads, kv_heads, kv_heads)
    )
    for name, tiling in TILINGS.items():
        if not causal or tiling.split:  # causal tiles are not split
            yield name, partial(gluon_forward, q, k, v, causal=causal, tiling=tiling)
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("torch flash", SDPBackend.FLASH_ATTENTION)):

        def sdpa(backend: SDPBackend = backend) -> torch.Tensor:
            swapped = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*swapped, is_causal=causal, enable_gqa=heads != kv_heads)

        yield name, sdpa


def time_all(skipped: list[str], candidates: Callable[[str], Iterator[tuple[str, Callable[[], object]]]]) -> None:
    """Time what is not skipped, and print a line for each: its name before, its times after."""
    print("START loading", flush=True)
    for shape, (tokens, heads, _, head_dim, causal) in SHAPES.items():
        flops = 4 * tokens**2 * head_dim * heads / (2 if causal else 1)
        time_shape(shape, flops, candidates(shape), skipped)


def groups() -> list[tuple[str, ...]]:
    """Return what is checked: dtype, head_dim, whether causal, and the tiling."""
    found = [
        *((dtype, head_dim, causal, "default") for dtype, head_dim, causal in product(ROUNDING, (64, 128), (0, 1))),
        (torch.bfloat16, 128, 0, "not split"),
    ]
    return [(str(dtype).removeprefix("torch."), *map(str, rest)) for dtype, *rest in found]


def main() -> None:
    """Run both parts, or what a child is to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=("check", "time"))
    parser.add_argument("--check", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--time", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        dtype, head_dim, causal, name = arguments.check
        check(dtype, int(head_dim), causal == "1", name)
        return
    if arguments.time is not None:
        time_all(arguments.time, candidates)
        return
    began = time.monotonic()
    for part, run in (
        ("check", partial(check_all, __file__, groups())),
        ("time", partial(time_groups, __file__)),
    ):
        if arguments.only in (None, part):
            run()
            print(f"-- {part}: {time.monotonic() - began:.0f} s since the start", flush=True)


if __name__ == "__main__":
    main()
