"""The Triton kernel against a float64 oracle: in Triton's interpreter on the CPU, and on a GPU where there is one.

The interpreter is chosen by the environment when triton is imported, so it runs in a process of its own: this file
as a script, which measures every case and prints one JSON object.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from compiled import SHARED_MEMORY_KIB, compiled  # noqa: E402

from fluxbench.kernels import flash_forward as kernel  # noqa: E402
from fluxbench.kernels import flash_tensors  # noqa: E402
from fluxbench.kernels.flash_forward_kernel import flash_forward_kernel  # noqa: E402

# Half a unit in the last place of bfloat16 and of float16, as the standard deviation of a uniform error.
ROUNDING = {"bfloat16": 2**-8 / math.sqrt(6), "float16": 2**-11 / math.sqrt(6)}


class Case(NamedTuple):
    """One call: its shape, how its inputs lie in memory, and the tiling's two paths."""

    seq_len_q: int
    seq_len_k: int
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "bfloat16"
    memory: str = "contiguous"  # "transposed": a view of [batch, heads, seq_len, head_dim]; "unaligned": of odd strides
    descriptors: bool = True
    overlap: bool = True
    causal: bool = False


PATHS = [(True, True), (True, False), (False, True), (False, False)]
CASES = [
    *(
        Case(seq_len_q=n, seq_len_k=n, dtype=dtype, head_dim=head_dim, descriptors=head_dim == 64)
        for n in (1, 33, 123, 129)
        for dtype, head_dim in (("bfloat16", 128), ("float16", 64))
    ),
    *(
        Case(seq_len_q=65, seq_len_k=n, batch=2, heads=4, descriptors=descriptors, overlap=overlap)
        for n in (128, 200)
        for descriptors, overlap in PATHS
    ),
    *(
        Case(seq_len_q=33, seq_len_k=97, heads=4, kv_heads=2, batch=2, memory=memory, descriptors=descriptors)
        for memory in ("transposed", "unaligned")
        for descriptors in (True, False)
    ),
    Case(seq_len_q=257, seq_len_k=1, heads=3, kv_heads=1, head_dim=128, dtype="float16"),
    Case(seq_len_q=1, seq_len_k=257, heads=3, kv_heads=1, head_dim=128),
    *(
        Case(seq_len_q=n, seq_len_k=m, heads=4, kv_heads=2, causal=True, descriptors=descriptors)
        for n, m in ((1, 1), (65, 65), (257, 257), (70, 200), (1, 130))
        for descriptors in (True, False)
    ),
]


def make_inputs(case: Case, device: str) -> list[Any]:
    """Return q, k and v, [batch, seq_len, heads, head_dim], normal, with the memory layout of the case."""
    generator = torch.Generator().manual_seed(0)

    def draw(seq_len: int, heads: int) -> Any:
        shape = (case.batch, seq_len, heads, case.head_dim)
        values = torch.randn(shape, generator=generator).to(getattr(torch, case.dtype)).to(device)
        if case.memory == "transposed":
            return values.transpose(1, 2).contiguous().transpose(1, 2)
        if case.memory == "unaligned":
            return torch.nn.functional.pad(values, (1, 2))[..., 1:-2]
        return values

    return [draw(case.seq_len_q, case.heads), *(draw(case.seq_len_k, case.kv_heads) for _ in range(2))]


def attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    """Return torch's math attention in the inputs' dtype; the last query sees all keys."""
    every = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
    visible = every.tril(k.shape[1] - q.shape[1]) if causal else None
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        swapped = (x.transpose(1, 2) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*swapped, attn_mask=visible, enable_gqa=True)
        return out.transpose(1, 2)


def log_sum_exp(q: Any, k: Any, *, causal: bool) -> Any:
    """Return the logarithms to the base 2 of the sums of the exponentials of the scores, [batch, heads, seq_len_q]."""
    keys = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) / math.sqrt(q.shape[3])
    hidden = torch.ones(scores.shape[2:], device=q.device).triu(k.shape[1] - q.shape[1] + 1).bool()
    if causal:
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.logsumexp(-1) / math.log(2)


def relative_l2(got: Any, exact: Any) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def measure(case: Case, device: str, tiling: kernel.Tiling | None) -> dict[str, Any]:
    """Run one case; return its error, its budget, and what else the output must be."""
    q, k, v = make_inputs(case, device)
    exact = attention(q.double(), k.double(), v.double(), causal=case.causal)
    out = kernel.flash_forward(q, k, v, causal=case.causal, tiling=tiling)
    same, lse = kernel.flash_forward_with_lse(q, k, v, causal=case.causal, tiling=tiling)
    off = lse.double() - log_sum_exp(q.double(), k.double(), causal=case.causal)
    return {
        "error": relative_l2(out, exact),
        "budget": 2 * relative_l2(attention(q, k, v, causal=case.causal), exact) + ROUNDING[case.dtype],
        "of lse": float(off.abs().max()),
        "same with lse": bool((out == same).all()),
        "form": [list(out.shape), str(out.dtype), out.is_contiguous()],
    }


def check(case: Case, result: dict[str, Any]) -> None:
    """Fail where a result is not of the form and within the budget of its case."""
    shape = [case.batch, case.seq_len_q, case.heads, case.head_dim]
    assert result["form"] == [shape, f"torch.{case.dtype}", True]
    assert result["error"] <= result["budget"]
    assert result["of lse"] < 2e-5
    assert result["same with lse"]


def small_tiling(case: Case) -> kernel.Tiling:
    return kernel.Tiling(block_m=64, block_n=64, warps=4, stages=2, descriptors=case.descriptors, overlap=case.overlap)


def interpret() -> None:
    """Measure every case in Triton's interpreter, and print the results by case."""
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    print(json.dumps({str(case): measure(case, "cpu", small_tiling(case)) for case in CASES}))


@pytest.fixture(scope="module")
def interpreted() -> dict[str, dict[str, Any]]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted_output_is_within_twice_the_error_of_math_attention(
    case: Case, interpreted: dict[str, dict[str, Any]]
) -> None:
    check(case, interpreted[str(case)])


GPU_CASES = [
    *CASES,
    *(
        Case(seq_len_q=n, seq_len_k=n, heads=4, head_dim=head_dim, dtype=dtype)
        for n in (4097, 4224, 4415, 4608)
        for head_dim in (64, 128)
        for dtype in ("bfloat16", "float16")
    ),
]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", GPU_CASES, ids=str)
def test_output_on_the_gpu_is_within_twice_the_error_of_math_attention(case: Case) -> None:
    own = flash_tensors.of_device(kernel.TILINGS, torch.cuda.get_device_capability(), case.head_dim)
    path = {"descriptors": own.descriptors and case.descriptors, "overlap": case.overlap}
    for tiling in (None, replace(small_tiling(case), **path)):
        check(case, measure(case, "cuda", tiling))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_offsets_past_two_to_the_31_reach_the_last_head() -> None:
    # 40 heads x 128 x 460,000 tokens is past 2**31 elements; one query block of the last rows is enough.
    q = torch.zeros(1, 460_000, 40, 128, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(1, 64, 40, 128, dtype=torch.bfloat16, device="cuda")
    q[:, -5:] = torch.randn(1, 5, 40, 128, dtype=torch.bfloat16, device="cuda")
    own = flash_tensors.of_device(kernel.TILINGS, torch.cuda.get_device_capability(), 128)
    exact = attention(q[:, -5:].double(), k.double(), k.double())
    for tiling in (own, replace(own, block_n=64, descriptors=False, overlap=False)):
        assert relative_l2(kernel.flash_forward(q, k, k, tiling=tiling)[:, -5:], exact) < 0.01


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("capability", list(kernel.TILINGS))
@pytest.mark.parametrize("head_dim", [64, 128])  # smaller ones have the blocks of 64
def test_tiling_compiles_into_the_shared_memory_of_its_device(
    capability: tuple[int, int], head_dim: int, causal: bool
) -> None:
    tiling = kernel.TILINGS[capability][head_dim]
    constants = {
        **{"HEADS": 24, "GROUP": 1, "HEAD_DIM": head_dim, "BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n},
        **{"RAGGED": not causal, "DESCRIPTORS": tiling.descriptors, "OVERLAP": tiling.overlap and not causal},
        **{"CAUSAL": causal, "INPUT_PRECISION": "ieee", **({} if causal else {"lse_pointer": None})},
    }
    rows = {"q": tiling.block_m, "k": tiling.block_n, "v": tiling.block_n, "out": tiling.block_m}
    done = compiled(flash_forward_kernel, capability, constants, rows, tiling.warps, tiling.stages)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[capability] * 1024


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "q must be on an NVIDIA GPU, got cpu; move"),
        ({"q": torch.zeros(8, 2, 64)}, r"q must be \[batch, seq_len, heads, head_dim\].*got \[8, 2, 64\]; reshape"),
        ({"k": torch.zeros(1, 0, 2, 64)}, r"k must be .* no empty dimension, got \[1, 0, 2, 64\]; reshape"),
        ({"q": torch.zeros(1, 8, 2, 64).double()}, "q must be bfloat16, float16 or float32, .* got torch.float64"),
        ({"k": torch.zeros(1, 8, 2, 64)}, "k must be .*, got torch.float32 and q torch.bfloat16; cast"),
        ({"v": torch.zeros(1, 8, 2, 64).half()}, "v must be .*, got torch.float16 and q torch.bfloat16; cast"),
        ({"k": torch.zeros(1, 8, 64, 2).bfloat16().mT}, "k must be contiguous in head_dim, got a stride of 2; call"),
        ({"v": torch.zeros(1, 9, 2, 64).bfloat16()}, "k and v must have one shape, got .*; pass"),
        (dict.fromkeys("kv", torch.zeros(2, 8, 2, 64).bfloat16()), "k must have the batch and head_dim of q, 1 and 64"),
        (dict.fromkeys("kv", torch.zeros(1, 8, 3, 64).bfloat16()), "kv_heads must divide the heads of q, 2, got 3"),
        (dict.fromkeys("qkv", torch.zeros(1, 8, 2, 96).bfloat16()), "must be 16, 32, 64 or 128, got 96; use"),
        ({"q": torch.zeros(1, 9, 2, 64).bfloat16(), "causal": True}, "no more tokens than k, got 9 and 8"),
        ({"scale": 0.0}, "scale must be over 0 and finite, got 0.0; negate"),
        ({"scale": -0.1}, "scale must be over 0 and finite, got -0.1; negate"),
        ({"scale": math.nan}, "scale must be over 0 and finite, got nan; negate"),
    ],
)
def test_wrong_input_is_refused_with_the_rule_and_the_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel.flash_forward(**{**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 64).bfloat16()), **changes})


def test_device_older_than_the_table_is_refused_and_one_between_two_of_it_takes_the_older() -> None:
    with pytest.raises(ValueError, match=r"must have compute capability 8.0 or newer, got \(7, 5\)"):
        flash_tensors.of_device(kernel.TILINGS, (7, 5), 128)
    assert flash_tensors.of_device(kernel.TILINGS, (8, 9), 128) is kernel.TILINGS[8, 6][128]


if __name__ == "__main__":
    interpret()
