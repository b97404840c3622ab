"""Check the Gluon backward kernel on this GPU (compute capability 9.0), then time candidate tilings of it.

    PYTHONPATH=shared/src python shared/benchmarks/gluon_backward.py [--only check|profile|time]

A check compares with float64, by the budget of the tests, in child processes, eight at a time; they also fill Triton's
cache. A profile prints the mean time of each kernel of a call. Times are of the whole backward pass, beside Triton's,
FlashAttention-4's, cuDNN's and torch's flash attention; TFLOP/s count 2.5 times the forward pass. How they are taken,
and what happens when a barrier hangs, is in `watched.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from gluon_forward import ROUNDING, inputs, math_attention, relative_l2
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from watched import check_all, time_groups, time_shape

from fluxbench.kernels.flash_backward import flash_backward
from fluxbench.kernels.flash_gluon import gluon_forward_with_lse
from fluxbench.kernels.flash_gluon_backward import Tiling, gluon_backward

TILINGS = {"default": Tiling(), "not split": Tiling(split=False)}
# tokens, heads, kv_heads, head_dim, causal
SHAPES = {
    "4608": (4608, 24, 24, 128, False),
    "causal 4k": (4096, 32, 8, 128, True),
    "causal 16k": (16384, 32, 8, 128, True),
    "4608 x 64": (4608, 24, 24, 64, False),
    "causal 8k x 64": (8192, 32, 8, 64, True),
}
# seq_len_q, seq_len_k, batch, heads, kv_heads, memory
CASES = [
    *((n, n, 2, 4, 2, "sliced") for n in (2, 33, 123, 128, 1024)),
    *((n, m, 3, 6, 2, memory) for n, m in ((65, 200), (1, 130), (257, 385)) for memory in ("sliced", "transposed")),
    (4415, 4415, 1, 4, 1, "fused"),
]


def gradients_of(attend: Callable[..., Any], dout: torch.Tensor, *leaves: torch.Tensor) -> Any:
    """Return the gradients of a function, by autograd."""
    leaves = tuple(x.detach().requires_grad_() for x in leaves)
    return torch.autograd.grad(attend(*leaves), leaves, dout)


def check(dtype_name: str, head_dim: int, causal: bool, tiling_name: str) -> None:
    """Check the cases of one group, and print a line for each."""
    print("loaded", flush=True)
    dtype, tiling = getattr(torch, dtype_name), TILINGS[tiling_name]
    for case in CASES:
        torch.manual_seed(0)
        q, k, v = inputs(case, dtype, head_dim)
        dout = torch.randn(q.shape, device="cuda").to(dtype)
        out, lse = gluon_forward_with_lse(q, k, v, causal=causal)
        asked: dict[str, Any] = {"causal": causal, "tiling": tiling}

        def plain(*leaves: torch.Tensor) -> torch.Tensor:
            return math_attention(*leaves, causal)[0]

        exact = gradients_of(plain, dout.double(), q.double(), k.double(), v.double())
        unfused = gradients_of(plain, dout, q, k, v)
        for fixed in (False, True):  # dq's bits
            got, again = (gluon_backward(dout, q, k, v, out, lse, deterministic=fixed, **asked) for _ in range(2))
            torch.cuda.synchronize()
            shares = [
                relative_l2(x, expected) / (2 * relative_l2(other, expected) + ROUNDING[dtype])
                for x, expected, other in zip(got, exact, unfused, strict=True)
            ]
            same = all(torch.equal(x, y) for x, y in zip(got[not fixed :], again[not fixed :], strict=True))
            good = same and all(share <= 1 for share in shares)
            text = ", ".join(f"{name} {share:.2f}" for name, share in zip(("dq", "dk", "dv"), shares, strict=True))
            print(
                f"{'ok ' if good else 'BAD'} {case}{', deterministic' if fixed else ''}: of the budget {text}, "
                f"{'same' if same else 'OTHER'} bits",
                flush=True,
            )


def groups() -> list[tuple[str, ...]]:
    """Return what is checked: dtype, head_dim, whether causal, and the tiling; defaults first."""
    of_defaults = product(ROUNDING, (128, 64), (0, 1), ("default",))
    others = ((torch.bfloat16, head_dim, causal, "not split") for head_dim, causal in product((64, 128), (0, 1)))
    found = [*of_defaults, *others]
    return [(str(dtype).removeprefix("torch."), *map(str, rest)) for dtype, *rest in found]


def candidates(shape: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is timed of a shape, with its name."""
    tokens, heads, kv_heads, head_dim, causal = SHAPES[shape]
    torch.manual_seed(0)
    q, k, v, dout = (
        torch.randn((1, tokens, count, head_dim), device="cuda").bfloat16()
        for count in (heads, kv_heads, kv_heads, heads)
    )
    out, lse = gluon_forward_with_lse(q, k, v, causal=causal)
    given = (dout, q, k, v, out, lse)
    for name, tiling in TILINGS.items():
        if tiling.split or not causal:  # under a mask none is
            yield name, partial(gluon_backward, *given, causal=causal, tiling=tiling)
    yield "without dq", partial(gluon_backward, *given, causal=causal, of_q=False)
    yield "dq alone", partial(gluon_backward, *given, causal=causal, of_kv=False)
    yield "deterministic", partial(gluon_backward, *given, causal=causal, deterministic=True)
    yield "Triton", partial(flash_backward, *given, causal=causal)
    leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))

    def backward_of(attended: torch.Tensor) -> Callable[[], object]:
        return partial(torch.autograd.grad, attended, leaves, dout, retain_graph=True)

    try:
        from flash_attn.cute import flash_attn_func

        attended = flash_attn_func(*leaves, causal=causal)
        yield "FlashAttention-4", backward_of(attended[0] if isinstance(attended, tuple) else attended)
    except (ImportError, RuntimeError, AssertionError, TypeError) as error:
        print(f"{shape:<14} FlashAttention-4: {error}", flush=True)
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("torch flash", SDPBackend.FLASH_ATTENTION)):
        of_q, of_k, of_v = (x.transpose(1, 2) for x in leaves)
        with sdpa_kernel(backend):
            attended = scaled_dot_product_attention(of_q, of_k, of_v, is_causal=causal, enable_gqa=heads != kv_heads)
        yield name, backward_of(attended.transpose(1, 2))


def time_all(skipped: list[str]) -> None:
    """Time what is not skipped."""
    print("START loading", flush=True)
    for shape, (tokens, heads, _, head_dim, causal) in SHAPES.items():
        flops = 2.5 * 4 * tokens**2 * head_dim * heads / (2 if causal else 1)
        time_shape(shape, flops, candidates(shape), skipped)


def profile_all() -> None:
    """Print the mean time of each kernel of a call."""
    for shape in SHAPES:
        for name, call in candidates(shape):
            if name not in ("default", "deterministic", "Triton"):
                continue
            call()
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                for _ in range(10):
                    call()
                torch.cuda.synchronize()
            for event in sorted(profiled.key_averages(), key=lambda event: -event.device_time_total):
                if event.device_time_total:
                    print(
                        f"{shape:<14} {name:<18} {event.device_time_total / 10:9.1f} us  {event.key[:80]}", flush=True
                    )


def main() -> None:
    """Run all parts, or what a child is to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=("check", "profile", "time"))
    parser.add_argument("--check", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--time", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        dtype, head_dim, causal, name = arguments.check
        check(dtype, int(head_dim), causal == "1", name)
        return
    if arguments.time is not None:
        time_all(arguments.time)
        return
    began = time.monotonic()
    for part, run in (
        ("check", partial(check_all, __file__, groups())),
        ("profile", profile_all),
        ("time", partial(time_groups, __file__)),
    ):
        if arguments.only in (None, part):
            run()
            print(f"-- {part}: {time.monotonic() - began:.0f} s since the start", flush=True)


if __name__ == "__main__":
    main()
