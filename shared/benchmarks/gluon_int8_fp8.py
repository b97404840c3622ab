"""Check the 8-bit kernel on this GPU (compute capability 9.0), then time it beside other kernels.

    PYTHONPATH=shared/src python shared/benchmarks/gluon_int8_fp8.py [--only check|time] [--launch TILING]

Both run in child processes (`watched.py`), whose kinds of times these are: a call, quantization included. A
check compares with float64, on normal and on Flux-like inputs that lie in longer tensors of NaN; the budget is that of
the variant. The other kernels are the quantized variants that are installed, and the exact kernel in Gluon.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from gluon_forward import SHAPES, math_attention, relative_l2, time_all
from watched import check_all, time_groups

from fluxbench import variants
from fluxbench.kernels.flash_gluon import Tiling
from fluxbench.kernels.gluon_int8_fp8 import BLOCK_N, quantized_forward
from fluxbench.kernels.gluon_int8_fp8_quantize import quantize
from fluxbench.operations import qkv
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import gluon_int8_fp8

TILINGS = {"default": Tiling(), "not split": Tiling(split=False)}
OTHERS = ("flash_attn_3_fp8", "cudnn_frontend_fp8", "sage_int8_fp16_triton", "sage_int8_fp8_sm90", "gluon_flash")
# tokens of q and of k, batch, heads, kv_heads
CASES = [
    *((n, n, 1, 4, 2) for n in (1, 33, 123, 1024, 4415, 4608)),
    *((n, m, 3, 6, 2) for n, m in ((65, 200), (1, 130), (257, 385), (700, 701))),
]
DTYPES = ("bfloat16", "float16")
BUDGET = gluon_int8_fp8.VARIANT.quantized_budget_rel_l2 or 0.0


def of(case: tuple[int, ...], dtype: str, head_dim: int, causal: bool = False) -> AttentionCall:
    """Return a case as the call of a variant."""
    seq_len_q, seq_len_k, batch, heads, kv_heads = case
    return AttentionCall(
        batch=batch,
        seq_len_q=seq_len_q,
        seq_len_k=seq_len_k,
        heads=heads,
        kv_heads=kv_heads,
        head_dim_qk=head_dim,
        head_dim_v=head_dim,
        dtype=dtype,
        causal=causal,
    )


def inputs(case: tuple[int, ...], kind: str, dtype: str, head_dim: int) -> list[torch.Tensor]:
    """Return q, k and v of a kind; what lies beside them in memory is NaN."""
    made = qkv.make(of(case, dtype, head_dim), kind, torch.Generator("cuda").manual_seed(0))

    def spread(x: Any) -> torch.Tensor:
        wide: torch.Tensor = x.new_full((len(x), x.shape[1] + 9, x.shape[2] + 1, head_dim), torch.nan)
        wide[:, : x.shape[1], : x.shape[2]] = x
        return wide[:, : x.shape[1], : x.shape[2]]

    return [spread(made[name]) for name in "qkv"]


def check(dtype: str, head_dim: int, causal: bool, tiling_name: str) -> None:
    """Check the cases of one group, and print a line for each."""
    print("loaded", flush=True)
    tiling = TILINGS[tiling_name]
    of_long = {"normal": 0.0, "flux": 0.0}
    for case, kind in product(CASES, of_long):
        q, k, v = inputs(case, kind, dtype, head_dim)
        out = quantized_forward(q, k, v, causal=causal, tiling=tiling)
        torch.cuda.synchronize()
        again = quantized_forward(q, k, v, causal=causal, tiling=tiling)
        torch.cuda.synchronize()
        error = relative_l2(out, math_attention(q.double(), k.double(), v.double(), causal)[0])
        same = torch.equal(out, again)
        if case[1] == 4608:
            of_long[kind] = error
        good = error <= BUDGET and same
        print(f"{'ok ' if good else 'BAD'} {case} {kind}: {error:.4f} {'same' if same else 'OTHER'} bits", flush=True)
    print(f"at 4608 tokens: {of_long}", flush=True)


def candidates(shape: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is timed of a shape, with its name."""
    tokens, heads, kv_heads, head_dim, causal = SHAPES[shape]
    call = of((tokens, tokens, 1, heads, kv_heads), "bfloat16", head_dim, causal)
    made = qkv.make(call, "normal", torch.Generator("cuda").manual_seed(0))
    for name, tiling in TILINGS.items():
        yield name, partial(quantized_forward, **made, causal=causal, tiling=tiling)
    yield "quantization", partial(quantize, **made, scale=1.0, block_n=BLOCK_N)
    for name in OTHERS:
        try:
            yield name, partial(variants.find(name).variant.load(call), **made)
        except ImportError as error:
            print(f"{shape:<14} {name:<27} not here: {str(error).splitlines()[0][:100]}", flush=True)


def groups() -> list[tuple[str, ...]]:
    """Return what is checked: dtype, head_dim, whether causal, and the tiling."""
    found = [
        *(("bfloat16", 128, causal, name) for causal, name in product((0, 1), TILINGS)),
        *((dtype, head_dim, causal, "default") for dtype, head_dim, causal in product(DTYPES, (64, 128), (0, 1))),
    ]
    return [tuple(map(str, group)) for group in dict.fromkeys(found)]


def main() -> None:
    """Run both parts, or what a child is to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", choices=("check", "time"))
    parser.add_argument("--check", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--launch", choices=TILINGS, help="only run one tiling a few times, for a profiler")
    parser.add_argument("--time", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        dtype, head_dim, causal, name = arguments.check
        check(dtype, int(head_dim), causal == "1", name)
        return
    if arguments.launch:
        call = next(call for name, call in candidates(next(iter(SHAPES))) if name == arguments.launch)
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        return
    if arguments.time is not None:
        time_all(arguments.time, candidates)
        return
    began = time.monotonic()
    for part, run in (("check", partial(check_all, __file__, groups())), ("time", partial(time_groups, __file__))):
        if arguments.only in (None, part):
            run()
            print(f"-- {part}: {time.monotonic() - began:.0f} s since the start", flush=True)


if __name__ == "__main__":
    main()
