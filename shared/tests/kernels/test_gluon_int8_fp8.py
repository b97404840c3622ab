"""The 8-bit kernel: emulated on the CPU, compiled for compute capability 9.0, and refused inputs.

The emulation (`emulated.py`) runs the sources of the kernel on what `quantized` makes of q, k and v in torch, as does
the launch of `test_gluon_int8_fp8_quantize.py`. Copies of the sources that are wrong must be found.
"""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from calls import wrong  # noqa: E402
from compiled import SHARED_MEMORY_KIB, compiled_float8  # noqa: E402
from emulated import Launched, load  # noqa: E402
from partitions import Stuck  # noqa: E402
from quantized import dequantized, quantized  # noqa: E402

from fluxbench import variants  # noqa: E402
from fluxbench.kernels import gluon_int8_fp8  # noqa: E402

MODULES = (
    *("flash_gluon_tiles", "flash_gluon_parts", "flash_gluon_consumer", "flash_gluon_kernel"),
    *("gluon_int8_fp8_softmax", "gluon_int8_fp8_consumer", "gluon_int8_fp8_kernel"),
)
SOURCES = Path(gluon_int8_fp8.__file__).parent
ROUNDED_WEIGHTS = 0.03  # a float8 weight errs by 2.6% of itself in the root of the mean square
LINEAR_WEIGHTS = 0.04  # a linear one by 3.2%, after all are scaled alike


FAST = {"HOLD": True, "ONES": True, "LINEAR": True, "OFFSET": False}
PRODUCT_IS_DONE = "        sums, weights = warpgroup_mma_wait(0, deps=(sums, weights))"
GIVE_V_BACK = "    mbarrier.arrive(v_empty.index(stage_v), count=1)"


class Case(NamedTuple):
    """One call, and how many programs share it."""

    seq_len_q: int
    seq_len_k: int
    causal: bool = False
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    dtype: Any = torch.bfloat16
    programs: int = 3
    block_n: int = 64
    stages: int = 2
    promote: bool = True
    hold: bool = False
    ones: bool = False
    linear: bool = False
    offset: bool = True
    scores: str = "int8"


FULL, CAUSAL = Case(130, 200, batch=2, heads=4, kv_heads=2), Case(300, 330, causal=True, programs=4)
SPLIT = Case(257, 700, programs=4)  # 6 tiles: 1 a program, and 2 that are split
LINEAR = FULL._replace(ones=True, linear=True)
CASES = [
    *(Case(n, n, dtype=torch.float16) for n in (1, 33, 123)),
    *(Case(n, n, causal=True) for n in (1, 33, 123)),
    *(FULL, CAUSAL, SPLIT, FULL._replace(block_n=128, head_dim=128, heads=2)),
    *(each._replace(scores="float8") for each in (FULL, CAUSAL._replace(dtype=torch.float16))),
    *(each._replace(promote=False) for each in (FULL, CAUSAL, SPLIT)),
    *(SPLIT._replace(stages=stages) for stages in (3, 4)),
    *(each._replace(ones=True) for each in (FULL, CAUSAL._replace(promote=False))),
    *(each._replace(ones=True, linear=True, hold=True) for each in (FULL, CAUSAL, SPLIT)),
    *(each._replace(ones=True, linear=True, offset=False, block_n=128) for each in (FULL, CAUSAL)),
    *(FULL._replace(ones=True, linear=True, scores="float8"), FULL._replace(offset=False, hold=True)),
    CAUSAL._replace(seq_len_q=1, heads=6, kv_heads=3, programs=5),
    CAUSAL._replace(block_n=128, batch=2, dtype=torch.float16),
    SPLIT._replace(seq_len_q=385, seq_len_k=1000, heads=1, programs=3, dtype=torch.float16),
]  # fmt: skip


def emulate(monkeypatch: pytest.MonkeyPatch, *change: str) -> None:
    """Let the kernel run on the CPU. What is allocated is NaN."""
    kernel = load(SOURCES, "fluxbench.kernels", MODULES, *change)["gluon_int8_fp8_kernel"].quantized_forward_kernel
    monkeypatch.setattr(gluon_int8_fp8, "quantized_forward_kernel", Launched(kernel))
    monkeypatch.setattr(gluon_int8_fp8, "unsupported", lambda q: None)
    monkeypatch.setattr(torch, "empty", lambda *shape, **form: torch.full(*shape, math.nan, **form))
    monkeypatch.setattr(gluon_int8_fp8, "quantize", quantized)


def error(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str) -> float:
    """Return the error of the emulated kernel against attention of what q, k and v are after they are quantized.

    Blocks of v have scales that differ a thousandfold. Memory beside q, k and v is NaN.
    """
    emulate(monkeypatch, *change)
    generator = torch.Generator().manual_seed(0)

    def draw(seq_len: int, heads: int) -> Any:
        whole = torch.full((case.batch, seq_len + 3, heads + 1, case.head_dim), math.nan, dtype=case.dtype)
        values = torch.randn((case.batch, seq_len, heads, case.head_dim), generator=generator)
        whole[:, :seq_len, 1:] = values.to(case.dtype)
        return whole[:, :seq_len, 1:]

    q, k, v = draw(case.seq_len_q, case.heads), *(draw(case.seq_len_k, case.kv_heads) for _ in "kv")
    v *= 10.0 ** (torch.arange(case.seq_len_k) // case.block_n % 4)[:, None, None]
    names = ("block_n", "stages", "programs", "promote", "hold", "ones", "linear", "offset", "scores")
    tiling = gluon_int8_fp8.Tiling(**{name: getattr(case, name) for name in names})
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=case.causal, tiling=tiling)
    assert (out.dtype, out.shape) == (q.dtype, q.shape)
    exact = plain(*dequantized(q, k, v, block_n=case.block_n, dtype=gluon_int8_fp8.SCORES[case.scores]), case.causal)
    return float((out.double() - exact).norm() / exact.norm())


def plain(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Return attention, step by step in float64."""
    q, k, v = (x.double().repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    if causal:
        hidden = torch.ones(scores.shape[2:], device=q.device).triu(k.shape[1] - q.shape[1] + 1).bool()
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_emulated_kernel_errs_by_the_rounding_of_weights(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert error(case, monkeypatch) < (LINEAR_WEIGHTS if case.linear else ROUNDED_WEIGHTS)


@pytest.mark.parametrize(
    ("case", "written", "instead"),
    [
        (FULL, "pair // group, gl.int64", "pair, gl.int64"),
        (FULL, "first + blocks - 1) * 3", "blocks_n - first - blocks) * 3"),
        (FULL, "            scales -= 3\n            weights, out", "            weights, out"),
        (FULL, "(0, 1, 3, 2, 4)", "(0, 1, 3, 4, 2)"),
        (FULL, "low, $2, $1;", "low, $1, $2;"),
        (FULL, "+ log2_value_scale)", ")"),
        (FULL, "* inverse", ""),
        (FULL, "largest -= _OFFSET", "pass"),
        (FULL, "shift += _OFFSET * scale", "pass"),
        (FULL, f"{PRODUCT_IS_DONE}\n{GIVE_V_BACK}", f"    {GIVE_V_BACK}\n{PRODUCT_IS_DONE}"),
        (FULL, "(rescale, O_ROWS)[:, None] + sums\n    else", "(next_rescale, O_ROWS)[:, None] + sums\n    else"),
        (FULL, "mbarrier.arrive(q_empty.index(CONSUMER), count=1)", "pass"),
        (FULL, "head, 0, column]", "head, 0, 0]"),
        (FULL, "CAUSAL or RAGGED", "CAUSAL"),
        (FULL, "bar.arrive 10", "bar.arrive 11"),
        (CAUSAL, "seq_len_q + 1) // BLOCK_N", "seq_len_q + BLOCK_N) // BLOCK_N"),
        (CAUSAL, "if GUARD:", "if False:"),
        (SPLIT, "arrived == count - 1", "arrived == 0"),
        (SPLIT._replace(promote=False), "next_rescale, O_ROWS", "rescale, O_ROWS"),
        (FULL._replace(ones=True), "+ row_sums * inverse", "+ row_sums"),
        (FULL._replace(ones=True), "next_rescale, block_scales[2]\n", "next_rescale, inverse\n"),
        (LINEAR, "-_LOG2_LEAST - shift", "_LOG2_LEAST - shift"),
        (LINEAR, "low, high = gl.split(codes)", "high, low = gl.split(codes)"),
        (LINEAR, "even * _LARGEST_CODE + odd", "odd * _LARGEST_CODE + even"),
        (LINEAR, "- 255 * _OFFSET", ""),
    ],
)
def test_a_wrong_copy_of_it_is_found(case: Case, written: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(Stuck, RuntimeError, IndexError):
        assert not error(case, monkeypatch, written, instead) < ROUNDED_WEIGHTS


@pytest.mark.parametrize("causal", [False, True])
def test_zeros_are_numbers_too(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    q, k, v = (torch.zeros(1, 300, 1, 64).half() for _ in "qkv")
    v[:, 64:128] = 1  # in one block of five; all scores are 0
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=causal, tiling=gluon_int8_fp8.Tiling(block_n=64, programs=3))
    seen = torch.arange(1, 301) if causal else torch.full((300,), 300)
    ones = (seen - 64).clamp(0, 64)
    assert torch.allclose(out[0, :, 0], (ones / seen)[:, None].half().expand(-1, 64), rtol=1e-3)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "scores", "constants"),
    [
        (64, "bf16", "i8", {"CAUSAL": False, "RAGGED": True}),
        (128, "bf16", "fp8e4nv", {"CAUSAL": False, "RAGGED": False}),
        (128, "bf16", "i8", {"CAUSAL": False, "RAGGED": False, "HOLD": True}),
        (128, "bf16", "i8", {"CAUSAL": False, "RAGGED": True, **FAST}),
        (128, "fp16", "i8", {"CAUSAL": True, "RAGGED": False, "parts_pointer": None, "arrivals_pointer": None}),
    ],
)
def test_it_compiles_for_hopper_without_spills_and_with_products_in_flight(
    head_dim: int, dtype: str, scores: str, constants: dict[str, Any], tmp_path: Path
) -> None:
    tiling = gluon_int8_fp8.Tiling()
    names = ("block_n", "stages", "promote", "hold", "ones", "linear")
    of_tiling = {"CONSUMERS": 2, "OFFSET": scores == "i8", **{name.upper(): getattr(tiling, name) for name in names}}
    done = compiled_float8(head_dim, dtype, scores, {**of_tiling, **constants})
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    ptx = done.asm["ptx"]
    kinds = set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.(\w+\.\w+\.\w+)", ptx))
    assert kinds == {"f32.e4m3.e4m3", "s32.s8.s8" if scores == "i8" else "f32.e4m3.e4m3"}
    (tmp_path / "kernel.ptx").write_text(ptx)
    assembler = triton.knobs.nvidia.ptxas.path
    command = [assembler, "-v", "--gpu-name=sm_90a", tmp_path / "kernel.ptx", "-o", tmp_path / "kernel.cubin"]
    says = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", says)
    assert "serialized" not in says  # as it says where products cannot be in flight


def tensors(**changes: Any) -> dict[str, Any]:
    return {**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 64).bfloat16()), **changes}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensors(), "q must be on a GPU of compute capability 9.0, got cpu; use an exact kernel"),
        (tensors(**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 64))), "q must be bfloat16 or float16, got torch.float32"),
        (tensors(**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 32).half())), "head_dim must be 64 or 128, got 32"),
        (tensors(k=torch.zeros(1, 0, 2, 64).bfloat16()), "k must be .* no empty dimension"),
        (tensors(v=torch.zeros(1, 8, 64, 2).bfloat16().mT), "v must be contiguous in head_dim"),
        (tensors(q=torch.zeros(1, 9, 2, 64).bfloat16(), causal=True), "no more tokens than k, got 9 and 8"),
    ],
)
def test_input_that_it_cannot_take_is_refused_with_the_rule_and_the_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gluon_int8_fp8.quantized_forward(**given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_n": 32}, "block_n must be 64 or 128, got 32"),
        ({"scores": "int4"}, "scores must be one of .* 'int4'"),
        ({"linear": True}, "linear must come with ones"),
    ],
)
def test_a_tiling_that_there_is_not_is_refused(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gluon_int8_fp8, "unsupported", lambda q: None)
    with pytest.raises(ValueError, match=message):
        gluon_int8_fp8.quantized_forward(**tensors(), tiling=gluon_int8_fp8.Tiling(**changes))


def on_hopper(test: Any) -> Any:
    reason = "needs a GPU of compute capability 9.0"
    absent = not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0)
    return pytest.mark.gpu(pytest.mark.skipif(absent, reason=reason)(test))


@on_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 33, 123, 1024, 4097, 4415, 4608])
@pytest.mark.parametrize(("dim", "dtype"), [(64, "float16"), (64, "bfloat16"), (128, "float16"), (128, "bfloat16")])
def test_it_is_within_its_budget_on_the_gpu(dim: int, dtype: str, tokens: int, causal: bool) -> None:
    asked: dict[str, Any] = {"dim": dim, "dtype": dtype, "tokens": tokens, "causal": causal, "heads": 4, "kv_heads": 2}
    assert wrong(variants.find("gluon_int8_fp8").variant, device="cuda", **asked) is None


@on_hopper
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"causal": True}, {"scores": "float8"}, {"promote": False}),
        *({"ones": True}, {"offset": False, "hold": True}, {"block_n": 64, "hold": True}),
        *({"ones": True, "linear": True, "hold": True, "offset": offset} for offset in (False, True)),
        {"ones": True, "linear": True, "hold": True, "causal": True},
    ],
)
def test_it_errs_by_the_rounding_of_weights_on_the_gpu(changes: dict[str, Any]) -> None:
    causal = bool(changes.pop("causal", False))
    tiling = gluon_int8_fp8.Tiling(**changes)
    wide = (torch.randn(2, 1100, 10, 128, device="cuda").bfloat16() for _ in "qkv")
    q, k, v = (x[:, :1000, 1 : count + 1] for x, count in zip(wide, (8, 2, 2), strict=True))
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=causal, tiling=tiling)
    exact = plain(*dequantized(q, k, v, block_n=tiling.block_n, dtype=gluon_int8_fp8.SCORES[tiling.scores]), causal)
    limit = LINEAR_WEIGHTS if tiling.linear else ROUNDED_WEIGHTS
    assert float((out.double() - exact).norm() / exact.norm()) < limit


@on_hopper
@pytest.mark.parametrize("causal", [False, True])
def test_it_has_the_same_bits_each_time(causal: bool) -> None:
    q, k, v = (torch.randn(1, 4415, 8, 128, device="cuda").bfloat16() for _ in "qkv")
    first, repetitions = gluon_int8_fp8.quantized_forward(q, k, v, causal=causal), range(1000)
    assert all(torch.equal(gluon_int8_fp8.quantized_forward(q, k, v, causal=causal), first) for _ in repetitions)


@on_hopper
def test_more_than_two_to_the_31_elements_reach_the_last_head() -> None:
    q = torch.zeros(1, 460_000, 40, 128, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(1, 64, 40, 128, dtype=torch.bfloat16, device="cuda")
    q[:, -5:] = torch.randn(1, 5, 40, 128, dtype=torch.bfloat16, device="cuda")
    exact = plain(q[:, -5:], k, k, causal=False)
    out = gluon_int8_fp8.quantized_forward(q, k, k)[:, -5:]
    assert float((out.double() - exact).norm() / exact.norm()) < 0.06
