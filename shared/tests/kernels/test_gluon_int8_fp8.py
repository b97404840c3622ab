"""The 8-bit kernel: emulated on the CPU, compiled for compute capability 9.0, and refused inputs.

The emulation (`emulated.py`) runs the sources of the kernel on what `quantized` makes of q, k and v in torch, as does
the launch of `test_gluon_int8_fp8_quantize.py`. Copies of the sources that are wrong must be found.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from calls import wrong  # noqa: E402
from compiled import SHARED_MEMORY_KIB, assembled, compiled_quantized  # noqa: E402
from emulated import Launched, load  # noqa: E402
from partitions import Stuck  # noqa: E402
from quantized import dequantized, quantized  # noqa: E402

from fluxbench import variants  # noqa: E402
from fluxbench.kernels import flash_gluon, gluon_int8_fp8  # noqa: E402

MODULES = (
    *("flash_gluon_tiles", "flash_gluon_parts", "flash_gluon_softmax", "flash_gluon_barriers"),
    *("flash_gluon_consumer", "flash_gluon_kernel"),
    *("gluon_int8_fp8_softmax", "gluon_int8_fp8_consumer", "gluon_int8_fp8_kernel"),
)
SOURCES = Path(gluon_int8_fp8.__file__).parent
ROUNDED_WEIGHTS = 0.04  # a weight linear in its logarithm errs by 3.2% in the root of the mean square


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


FULL, CAUSAL = Case(130, 450, batch=2, heads=4, kv_heads=2), Case(300, 330, causal=True, programs=4)
SPLIT = Case(257, 1400, programs=4)  # 6 tiles: 1 a program, and 2 that are split
CASES = [
    *(Case(n, n, dtype=torch.float16) for n in (1, 33, 123, 256)),
    *(Case(n, n, causal=True) for n in (1, 33, 123, 256)),
    *(FULL, CAUSAL, SPLIT, FULL._replace(head_dim=128, heads=2)),
    *(each._replace(head_dim=128, dtype=torch.float16) for each in (CAUSAL, SPLIT)),
    CAUSAL._replace(seq_len_q=1, heads=6, kv_heads=3, programs=5),
    CAUSAL._replace(seq_len_q=513, seq_len_k=900, batch=2, dtype=torch.float16),
    SPLIT._replace(seq_len_q=385, seq_len_k=1920, heads=1, programs=3, dtype=torch.float16),
]


def emulate(monkeypatch: pytest.MonkeyPatch, *change: str) -> None:
    """Let the kernel run on the CPU. What is allocated is NaN."""
    kernel = load(SOURCES, "fluxbench.kernels", MODULES, *change)["gluon_int8_fp8_kernel"].quantized_forward_kernel
    monkeypatch.setattr(gluon_int8_fp8, "quantized_forward_kernel", Launched(kernel))
    monkeypatch.setattr(gluon_int8_fp8, "unsupported", lambda q: None)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, shape, **form: x.new_full(shape, math.nan, **form))
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
    v *= 10.0 ** (torch.arange(case.seq_len_k) // gluon_int8_fp8.BLOCK_N % 4)[:, None, None]
    tiling = flash_gluon.Tiling(programs=case.programs)
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=case.causal, tiling=tiling)
    assert (out.dtype, out.shape) == (q.dtype, q.shape)
    exact = plain(*dequantized(q, k, v, block_n=gluon_int8_fp8.BLOCK_N), case.causal)
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
    assert error(case, monkeypatch) < ROUNDED_WEIGHTS


@pytest.mark.parametrize(
    ("case", "written", "instead"),
    [
        (FULL, "pair // group, gl.int64", "pair, gl.int64"),
        (FULL, "first + blocks - 1) * 3", "blocks_n - first - blocks) * 3"),
        (FULL, "            scales -= 3\n            weights, out", "            weights, out"),
        (FULL, "(0, 1, 3, 2, 4)", "(0, 1, 3, 4, 2)"),
        (FULL, "low, high = gl.split(codes)", "high, low = gl.split(codes)"),
        (FULL, "gl.join(first, last)", "gl.join(last, first)"),
        (FULL, "packed(first, codes_of(last", "packed(first, codes_of(first"),
        (FULL, "even * _LARGEST_CODE + odd", "odd * _LARGEST_CODE + even"),
        (FULL, "-_LOG2_LEAST - shift", "_LOG2_LEAST - shift"),
        (FULL, "- 255 * _INTEGERS", ""),
        (FULL, "value_scale * block_scales[2], block", "ratio, block"),
        (FULL, "block_scales[2], block_scales[1]\n", "block_scales[2], value_scale\n"),
        (FULL, "out *= value_scale", "pass"),
        (FULL, "rescale * ratio, sums", "rescale, sums"),
        (FULL, "_added(total, rescale,", "_added(total, rescale * ratio,"),
        (FULL, "total, next_rescale, value", "total, rescale, value"),
        (FULL, "mbarrier.arrive(empty, count=1)", "pass"),
        (FULL, "0x20", "0x28"),
        (FULL, "mbarrier.arrive(q_empty.index(CONSUMER), count=1)", "pass"),
        (FULL, "head, 0, column]", "head, 0, 0]"),
        (FULL, "elif RAGGED:", "elif False:"),
        (FULL, "bar.arrive 10", "bar.arrive 11"),
        (CAUSAL, "(diagonal + 1) // BLOCK_N", "(diagonal + BLOCK_N) // BLOCK_N"),
        (CAUSAL, "diagonal - block * BLOCK_N", "diagonal"),
        (CAUSAL, "late(diagonal - last)", "late(diagonal - last + 1)"),
        (CAUSAL, "if GUARD:", "if False:"),
        (SPLIT, "arrived == count - 1", "arrived == 0"),
    ],
)
def test_a_wrong_copy_of_it_is_found(case: Case, written: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(Stuck, RuntimeError, IndexError):
        assert not error(case, monkeypatch, written, instead) < ROUNDED_WEIGHTS


@pytest.mark.parametrize("causal", [False, True])
def test_zeros_are_numbers_too(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    q, k, v = (torch.zeros(1, 300, 1, 64).half() for _ in "qkv")
    v[:, 128:192] = 1  # in one block of three; all scores are 0
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=causal, tiling=flash_gluon.Tiling(programs=3))
    seen = torch.arange(1, 301) if causal else torch.full((300,), 300)
    ones = (seen - 128).clamp(0, 64)
    assert torch.allclose(out[0, :, 0], (ones / seen)[:, None].half().expand(-1, 64), rtol=1e-3)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "constants"),
    [
        *(
            (dim, "bf16", {"CAUSAL": False, "RAGGED": ragged})
            for dim, ragged in ((64, True), (128, False), (128, True))
        ),
        *(
            (dim, "fp16", {"CAUSAL": True, "RAGGED": False, "parts_pointer": None, "arrivals_pointer": None})
            for dim in (64, 128)
        ),
    ],
)
def test_it_compiles_for_hopper_without_spills_and_with_products_in_flight(
    head_dim: int, dtype: str, constants: dict[str, Any], tmp_path: Path
) -> None:
    done = compiled_quantized(head_dim, dtype, constants)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    says, loops = assembled(done, tmp_path)
    assert constants["CAUSAL"] or "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in says
    assert "serialized" not in says  # as it says where products cannot be in flight
    of_blocks = ["\n".join(each) for each in loops if any("QGMMA" in line for line in each)]
    open_blocks = [each for each in of_blocks if "FSEL" not in each]  # nothing is hidden
    assert len(open_blocks) == 2  # of two warpgroups
    for each in open_blocks:
        assert "LDL" not in each
        assert "STL" not in each
        assert each.index("BAR.ARV 0xf, 0x100") < each.index("WARPGROUP.DEPBAR.LE gsb0, 0x0")


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
@pytest.mark.parametrize("causal", [False, True])
def test_it_errs_by_the_rounding_of_weights_on_the_gpu(causal: bool) -> None:
    wide = (torch.randn(2, 1100, 10, 128, device="cuda").bfloat16() for _ in "qkv")
    q, k, v = (x[:, :1000, 1 : count + 1] for x, count in zip(wide, (8, 2, 2), strict=True))
    out = gluon_int8_fp8.quantized_forward(q, k, v, causal=causal)
    exact = plain(*dequantized(q, k, v, block_n=gluon_int8_fp8.BLOCK_N), causal)
    assert float((out.double() - exact).norm() / exact.norm()) < ROUNDED_WEIGHTS


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
