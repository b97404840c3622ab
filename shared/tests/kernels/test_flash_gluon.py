"""The Gluon kernel: emulated on the CPU against float64, compiled for compute capability 9.0, and refused inputs.

The emulation (`emulated.py`) runs the sources of the kernel. Copies of them that are wrong must be found.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from calls import wrong  # noqa: E402
from compiled import SHARED_MEMORY_KIB, assembled, compiled_gluon  # noqa: E402
from emulated import Launched, load  # noqa: E402
from partitions import Stuck  # noqa: E402

from fluxbench import variants  # noqa: E402
from fluxbench.kernels import flash_gluon  # noqa: E402
from fluxbench.kernels.flash_gluon_kernel import gluon_forward_kernel  # noqa: E402

MODULES = tuple(f"flash_gluon_{name}" for name in ("tiles", "parts", "softmax", "barriers", "consumer", "kernel"))
SOURCES = Path(flash_gluon.__file__).parent
ROUNDING = {torch.bfloat16: 2**-8 / math.sqrt(6), torch.float16: 2**-11 / math.sqrt(6)}


PRODUCT_IS_DONE = "    out, operand = warpgroup_mma_wait(0, deps=(sums, operand))\n"
GIVE_V_BACK = "    give_back(stage_v, OF_V)\n"


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
    times: float = 1.0  # what q is multiplied by: by 16, sums are rescaled


FULL, CAUSAL = Case(130, 400, batch=2, heads=4, kv_heads=2), Case(300, 530, causal=True, programs=4)
SPLIT = Case(257, 1400, programs=4)  # 6 tiles: 1 a program, and 2 that are split
PEAKED = SPLIT._replace(times=16.0)
# A program has the last block of a tile, and then a part of another one.
ONE_BLOCK = Case(800, 1400, heads=1, programs=5)
CASES = [
    *(Case(n, n, dtype=torch.float16) for n in (1, 33, 123)),
    *(Case(n, n, causal=True) for n in (1, 33, 123)),
    *(FULL, CAUSAL, SPLIT, ONE_BLOCK, PEAKED, CAUSAL._replace(times=16.0)),
    FULL._replace(head_dim=128, heads=2, times=16.0),
    FULL._replace(seq_len_k=33),
    CAUSAL._replace(seq_len_q=1, heads=6, kv_heads=3, programs=5),
    CAUSAL._replace(batch=2, dtype=torch.float16),
    SPLIT._replace(seq_len_q=64, programs=7),  # fewer tiles than programs
    SPLIT._replace(seq_len_q=385, seq_len_k=2000, heads=1, programs=3, dtype=torch.float16),
]


def run(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str, backwards: bool = False) -> tuple[Any, Any, Any]:
    """Return q, k and v, what the emulated kernel makes of them, and what is exact; memory beside q, k, v is NaN."""
    kernel = load(SOURCES, "fluxbench.kernels", MODULES, *change)["flash_gluon_kernel"].gluon_forward_kernel
    monkeypatch.setattr(flash_gluon, "gluon_forward_kernel", Launched(kernel, backwards=backwards))
    monkeypatch.setattr(flash_gluon, "unsupported", lambda q, k, v: None)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, shape, **form: x.new_full(shape, math.nan, **form))
    generator = torch.Generator().manual_seed(0)

    def draw(seq_len: int, heads: int) -> Any:
        whole = torch.full((case.batch, seq_len + 3, heads + 1, case.head_dim), math.nan, dtype=case.dtype)
        values = torch.randn((case.batch, seq_len, heads, case.head_dim), generator=generator)
        whole[:, :seq_len, 1:] = values.to(case.dtype)
        return whole[:, :seq_len, 1:]

    q, k, v = draw(case.seq_len_q, case.heads), *(draw(case.seq_len_k, case.kv_heads) for _ in "kv")
    q *= case.times
    tiling = flash_gluon.Tiling(programs=case.programs)
    got = flash_gluon.gluon_forward_with_lse(q, k, v, causal=case.causal, tiling=tiling)
    return got, plain(q.double(), k.double(), v.double(), case.causal), plain(q, k, v, case.causal)


def plain(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """Return attention, step by step, and the log-sum-exp to the base 2."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    if causal:
        hidden = torch.ones(scores.shape[2:]).triu(k.shape[1] - q.shape[1] + 1).bool()
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v), scores.logsumexp(-1) / math.log(2)


def relative_l2(got: Any, exact: Any) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def is_right(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str) -> bool:
    """Say whether output and log-sum-exp are within their budgets."""
    try:
        (out, lse), (exact, exact_lse), (unfused, _) = run(case, monkeypatch, *change)
    except (Stuck, AssertionError):
        return False
    budget = 2 * relative_l2(unfused, exact) + ROUNDING[case.dtype]
    return relative_l2(out, exact) <= budget and float((lse - exact_lse).abs().max()) < 2e-5 * case.times


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_emulated_kernel_is_within_twice_the_error_of_math_attention(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_right(case, monkeypatch)


@pytest.mark.parametrize(
    ("case", "written", "instead"),
    [
        (FULL, "(turn & 1) ^ 1,", "0,"),
        (FULL, "kv_head = head // group", "kv_head = 0 * group"),
        (FULL, "(key < seq_len_k)", "(key <= seq_len_k)"),
        (FULL, "last + BLOCK_N > seq_len_k", "last + BLOCK_N > seq_len_k + BLOCK_N"),
        (FULL, "scores * scale_log2 - shift", "scores - shift"),
        (FULL, "tma.store_wait(0)  #", "#"),
        (FULL, "    tma.store_wait(0)\n", "    pass\n"),
        (FULL, f"{PRODUCT_IS_DONE}{GIVE_V_BACK}", f"{GIVE_V_BACK}{PRODUCT_IS_DONE}"),
        (FULL, "    fence_async_shared()\n    _store", "    _store"),
        (FULL, "gl.log2(sums_of_rows)", "sums_of_rows"),
        (FULL, "mbarrier.arrive(q_empty.index(CONSUMER), count=1)", "pass"),
        (FULL, "bar.arrive 10", "bar.arrive 15"),
        (FULL, "warpgroup_mma_wait(1, ", "warpgroup_mma_wait(2, "),
        (FULL, "beside(first, second)", "beside(second, first)"),
        (FULL, "    total += sums_of(fourth, PARTS)\n", ""),
        (FULL, "if step >= STAGES:", "if step > STAGES:"),
        (FULL, GIVE_V_BACK, "    pass\n"),
        (FULL, "    give_back_after(total, stage_k, OF_K, PARTS)\n", ""),
        (FULL, "OF_V = gl.constexpr(13)", "OF_V = gl.constexpr(12)"),
        (PEAKED, "gl.exp2(maximum * scale_log2 - shift), 1.0)", "1.0, 1.0)"),
        (CAUSAL, "<= (query + ", "< (query + "),
        (CAUSAL, "(diagonal + 1) // BLOCK_N", "(diagonal + BLOCK_N) // BLOCK_N"),
        (CAUSAL, "if GUARD:", "if False:"),
        (CAUSAL, "slot = gl.where(rounds % 2 == 0, program, programs - 1 - program)", "slot = program"),
        (SPLIT, "(first + blocks - 1 - done)", "(blocks - 1 - done)"),
        (SPLIT, "gl.exp2(maximum_more - maximum_new)", "gl.exp2(maximum - maximum_new)"),
        (SPLIT, "arrived == count - 1", "arrived == 0"),
        (SPLIT, "return 2 * program +", "return program +"),
    ],
)
def test_a_wrong_copy_of_it_is_found(case: Case, written: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_right(case, monkeypatch, written, instead)


def test_a_copy_that_gives_the_queries_back_before_they_are_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (SOURCES / "flash_gluon_consumer.py").read_text(encoding="utf-8")
    loads = "        q = q_buffers.index(CONSUMER).load(gl.DotOperandLayout(0, S_LAYOUT, 2))\n"
    gives_back = "        mbarrier.arrive(q_empty.index(CONSUMER), count=1)\n"
    between = source.partition(loads)[2].partition(gives_back)[0]
    assert not is_right(ONE_BLOCK, monkeypatch, loads + between + gives_back, loads + gives_back + between)


def test_parts_of_a_tile_are_added_in_one_order_whichever_ends_last(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (run(SPLIT, monkeypatch, backwards=backwards)[0] for backwards in (False, True))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


POINTERS = ("lse_pointer", "parts_pointer", "arrivals_pointer")
OF_TILING = {"BLOCK_N": 128, "CONSUMERS": 2}


@pytest.mark.parametrize(
    ("head_dim", "dtype", "constants"),
    [
        (64, "bf16", {"CAUSAL": False}),
        (128, "fp16", {"CAUSAL": True, **dict.fromkeys(POINTERS[1:])}),
        (128, "bf16", {"CAUSAL": False, **dict.fromkeys(POINTERS)}),
    ],
)
def test_it_compiles_for_hopper_without_spills_and_with_products_in_flight(
    head_dim: int, dtype: str, constants: dict[str, Any], tmp_path: Path
) -> None:
    blocks = {"q": (64,), "k": (128,), "v": (128,), "out": (64,)}
    done = compiled_gluon(gluon_forward_kernel, head_dim, dtype, {**OF_TILING, **constants}, blocks)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    ptx = done.asm["ptx"]
    loops_each = 2 if constants["CAUSAL"] else 1
    assert ptx.count("wgmma.commit_group") == 2 * (2 + 2 * loops_each)  # of two consumers, one before, one after
    says, loops = assembled(done, tmp_path)
    blocks_of_keys = [" ".join(loop) for loop in loops if any("HGMMA" in each for each in loop)]
    assert len(blocks_of_keys) == 2 * loops_each
    for each in blocks_of_keys:
        assert "PRMT" not in each  # weights stay packed
        before_the_wait, _, _ = each.partition("WARPGROUP.DEPBAR.LE gsb0, 0x0")
        assert before_the_wait.count("MUFU.EX2") >= 3 / 8 * 64  # a thread has 64 weights of a block
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", says)
    assert "serialized" not in says  # as it says where products cannot be in flight
    steps = re.findall(r"ldmatrix|wgmma\.wait_group\.sync\.aligned 0|mbarrier\.arrive\.shared", ptx)
    in_order = re.sub(r"(ldmatrix ?)+", "ldmatrix ", " ".join(steps))
    # The loaded queries are used before their buffer is given back.
    assert in_order.count("ldmatrix wgmma.wait_group.sync.aligned 0 mbarrier.arrive.shared") == 2
    assert {"setmaxnreg.inc.sync.aligned.u32 \t240", "setmaxnreg.dec.sync.aligned.u32 \t24"} <= set(
        re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32 \t\d+", ptx)
    )


def tensors(**changes: Any) -> dict[str, Any]:
    return {**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 64).bfloat16()), **changes}


WIDE = torch.zeros(1, 8, 2, 72).bfloat16()
NO_DEVICE = "q must be on a GPU of compute capability 9.0, got cpu; use the Triton kernel"
NOT_ALIGNED = "must have an address and strides that are multiples of 16 bytes and no stride of zero, got strides of"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensors(), NO_DEVICE),
        (tensors(**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 64))), "q must be bfloat16 or float16, got torch.float32"),
        (tensors(**dict.fromkeys("qkv", torch.zeros(1, 8, 2, 32).half())), "head_dim must be 64 or 128, got 32"),
        (tensors(q=WIDE[..., 1:65]), f"q {NOT_ALIGNED}"),
        (tensors(k=torch.zeros(1, 8, 2, 68).bfloat16()[..., :64]), f"k {NOT_ALIGNED}"),
        (tensors(v=torch.zeros(1, 8, 1, 64).bfloat16().expand(1, 8, 2, 64)), f"v {NOT_ALIGNED}"),
        (tensors(k=torch.zeros(1, 0, 2, 64).bfloat16()), "k must be .* no empty dimension"),
        (tensors(q=torch.zeros(1, 9, 2, 64).bfloat16(), causal=True), "no more tokens than k, got 9 and 8"),
    ],
)
def test_input_that_it_cannot_take_is_refused_with_the_rule_and_the_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flash_gluon.gluon_forward(**given)


ON_HOPPER = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a GPU of compute capability 9.0",
    ),
]


def on_hopper(test: Any) -> Any:
    for mark in ON_HOPPER:
        test = mark(test)
    return test


@on_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [2, 33, 123, 1024, 4097, 4415, 4608])  # of one, dq and dk are what is left of zero
@pytest.mark.parametrize(("dim", "dtype"), [(64, "float16"), (64, "bfloat16"), (128, "float16"), (128, "bfloat16")])
def test_it_is_within_its_budget_on_the_gpu_as_are_its_gradients(
    dim: int, dtype: str, tokens: int, causal: bool
) -> None:
    asked: dict[str, Any] = {"dim": dim, "dtype": dtype, "tokens": tokens, "causal": causal, "heads": 4, "kv_heads": 2}
    # Of two tokens and peaked inputs dk hangs on how out is rounded in one row a head, four numbers here, and so does
    # its budget: emulated on a CPU, 7 of 120 seeds of the right algorithm err by more than that, by up to 2.25 times;
    # of 33 tokens none of 20 by more than half of it.
    asked["kinds"] = 2 if tokens == 2 else None
    assert wrong(variants.find("gluon_flash").variant, "attention_training", device="cuda", **asked) is None


@on_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "heads"), [(4415, 8), (4608, 4)])  # of the latter programs have parts of one block
def test_it_has_the_same_bits_each_time(tokens: int, heads: int, causal: bool) -> None:
    q, k, v = (torch.randn(1, tokens, heads, 128, device="cuda").bfloat16() for _ in "qkv")
    first, repetitions = flash_gluon.gluon_forward(q, k, v, causal=causal), range(1000)
    assert all(torch.equal(flash_gluon.gluon_forward(q, k, v, causal=causal), first) for _ in repetitions)


@on_hopper
def test_more_than_two_to_the_31_elements_reach_the_last_head() -> None:
    q = torch.zeros(1, 460_000, 40, 128, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(1, 64, 40, 128, dtype=torch.bfloat16, device="cuda")
    q[:, -5:] = torch.randn(1, 5, 40, 128, dtype=torch.bfloat16, device="cuda")
    exact, _ = plain(q[:, -5:].double(), k.double(), k.double(), causal=False)
    assert relative_l2(flash_gluon.gluon_forward(q, k, k)[:, -5:], exact) < 0.01
