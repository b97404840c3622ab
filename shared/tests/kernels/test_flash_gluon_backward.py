"""The backward kernel in Gluon: emulated on the CPU against float64, compiled for Hopper, and refused inputs.

The emulation (`emulated.py`) runs the sources of the kernel. Copies of them that are wrong must be found.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from compiled import SHARED_MEMORY_KIB, assembled, compiled_gluon  # noqa: E402
from emulated import Launched, load  # noqa: E402
from gluon_gradients import (  # noqa: E402
    CASES,
    CAUSAL,
    FULL,
    GREEDY,
    LOW,
    ROUNDING,
    SPLIT,
    WIDE,
    Case,
    of_autograd,
    relative_l2,
    strided,
)
from partitions import Stuck  # noqa: E402
from ptx import Product, products  # noqa: E402

from fluxbench.kernels import flash_gluon_backward  # noqa: E402
from fluxbench.kernels.flash_gluon_backward import Tiling, gluon_backward  # noqa: E402
from fluxbench.kernels.flash_gluon_backward_kernel import gluon_backward_kernel  # noqa: E402
from fluxbench.kernels.flash_gluon_backward_sums import (  # noqa: E402
    gluon_backward_dq_kernel,
    gluon_backward_parts_kernel,
    gluon_backward_rows_kernel,
)

MODULES = tuple(f"flash_gluon_{name}" for name in ("tiles", "backward_sums", "backward_consumer", "backward_kernel"))
SOURCES = Path(flash_gluon_backward.__file__).parent


def run(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str, of_q: bool = True) -> tuple[Any, Any, Any]:
    """Return the gradients of the emulated kernels, exact ones, and those of unfused attention in the same dtype."""
    order = {"backwards": case.backwards, "greedy": case.greedy}
    for module in load(SOURCES, "fluxbench.kernels", MODULES, *change).values():
        for name, kernel in vars(module).items():
            if re.fullmatch(r"gluon_backward_\w*kernel", name):
                monkeypatch.setattr(flash_gluon_backward, name, Launched(kernel, **order))
    monkeypatch.setattr(flash_gluon_backward, "unsupported", lambda q, k, v: None)
    monkeypatch.setattr(torch, "empty", lambda shape, **form: torch.full(tuple(shape), math.nan, **form))
    generator = torch.Generator().manual_seed(0)
    of = (case.head_dim, generator, case.dtype)
    q, dout = (strided(case.batch, case.seq_len_q, case.heads, *of) for _ in "qd")
    k, v = (strided(case.batch, case.seq_len_k, case.kv_heads, *of) for _ in "kv")
    if case.low:
        q[..., 0], k[..., 0] = 64, -64
    *exact, out, lse = of_autograd(case, q.double(), k.double(), v.double(), dout.double())
    got = gluon_backward(
        dout, q, k, v, out.to(case.dtype).contiguous(), lse.float().contiguous(),
        causal=case.causal, scale=case.scale, tiling=replace(case.tiling, programs=case.programs), of_q=of_q,
    )  # fmt: skip
    return got, exact, of_autograd(case, q, k, v, dout)[:3]


def is_right(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str) -> bool:
    """Say whether gradients are within their budgets. Those of a single key are zero but for rounding."""
    assert not change or any(change[0] in (SOURCES / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    try:
        found = zip(*run(case, monkeypatch, *change), strict=True)
        if case.seq_len_k == 1:
            dq, dk, dv = found
            return max(float(x[0].abs().max()) for x in (dq, dk)) < 0.05 and relative_l2(*dv[:2]) < 1e-3
        return all(
            relative_l2(got, exact) <= 2 * relative_l2(unfused, exact) + ROUNDING[case.dtype]
            for got, exact, unfused in found
        )
    except (Stuck, AssertionError, IndexError):
        return False


@pytest.mark.parametrize("case", CASES, ids=str)
def test_emulated_gradients_are_within_twice_the_error_of_math_attention(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_right(case, monkeypatch)


@pytest.mark.parametrize(
    ("case", "written", "instead"),
    [
        (FULL, "((step // STAGES) & 1) ^ 1", "(step // STAGES) & 1"),
        (FULL, "phase = (step // STAGES) & 1\n", "phase = 0\n"),
        (FULL, "head = kv_head * group + member", "head = kv_head * group"),
        (FULL, "pair = kv_pair * group + member\n", "pair = kv_pair * group\n"),
        (LOW, "(key < seq_len_k)", "(key <= seq_len_k)"),
        (LOW, "gl.where(start_n + 2 * ROWS > seq_len_k, end, first)", "first"),
        (FULL, "row + 1, 0]", "row, 0]"),
        (FULL, "-lse / scale_log2", "-lse"),
        (FULL, 'other=float("inf")', "other=-1000.0"),
        (FULL, "dk * scale", "dk"),
        (FULL, "values * scale", "values"),
        (GREEDY, "ds_buffers.index(step % 2)", "ds_buffers.index(0)"),
        (FULL, "        fence_async_shared()\n        if DK_FIRST", "        if DK_FIRST"),
        (FULL, "        _meet()  # all", "        pass  # all"),
        (GREEDY, "    _meet()  # nobody", "    pass  # nobody"),
        (FULL, "tma.store_wait(0)  # the chunk", "pass  # the chunk"),
        (FULL, "chunk + CONSUMER", "chunk"),
        (FULL, "is not None:\n        CLEARED", "is None:\n        CLEARED"),
        (FULL, "init(q_empty.index(stage), count=2)", "init(q_empty.index(stage), count=1)"),
        (FULL, "dv, dq, p = warpgroup_mma_wait(1", "dv, dq, p = warpgroup_mma_wait(2"),
        (WIDE, "row += part * ROWS", "row += 0"),
        (WIDE, "slice(CONSUMER * ROWS, ROWS, 1)", "slice(0, ROWS, 1)"),
        (CAUSAL, "<= query[None, :]", "< query[None, :]"),
        (CAUSAL, "gl.cdiv(last_key, BLOCK_M)", "(last_key // BLOCK_M)"),
        (CAUSAL, "0) // BLOCK_M\n", "0) // BLOCK_M + 1\n"),
        (CAUSAL, "kv_pairs - section * at_once", "at_once"),
        (SPLIT, "kept % parts * blocks_m // parts", "0"),
        (SPLIT, "(kept % parts + 1) * blocks_m // parts", "blocks_m"),
        (SPLIT, "whole + (tile - whole) // parts", "whole"),
        (SPLIT, "        part += 4 * ROWS * HEAD_DIM", "        pass"),
        (CAUSAL._replace(tiling=Tiling(tma_adds=False)), "gl.cast(chunk, gl.int64)", "gl.cast(chunk // 2, gl.int64)"),
    ],
)
def test_a_wrong_copy_of_it_is_found(case: Case, written: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_right(case, monkeypatch, written, instead)


@pytest.mark.parametrize("case", [FULL, CAUSAL, SPLIT], ids=str)
def test_the_others_have_the_same_bits_without_dq(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *both = run(case, monkeypatch)[0]
    dq, *alone = run(case._replace(greedy=True), monkeypatch, of_q=False)[0]
    assert dq is None
    assert all(torch.equal(x, y) for x, y in zip(both, alone, strict=True))


def blocks_of(head_dim: int, block_m: int) -> dict[str, tuple[int, ...]]:
    """Return the block of each descriptor."""
    return {
        **dict.fromkeys(("q", "dout"), (block_m,)), **dict.fromkeys("kv", (128,)), **dict.fromkeys(("dk", "dv"), (64,)),
        "rows": (1, block_m), "sums": (block_m * head_dim // 64, 32),
    }  # fmt: skip


DESCRIBED, POINTED = ("sums_source", "parts_pointer"), ("sums_pointer",)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "tiling", "constants", "without"),
    [
        (128, "bf16", Tiling(), {"CAUSAL": False, "RAGGED": False}, (*POINTED, "parts_pointer")),
        (128, "fp16", Tiling(tma_adds=False, stages=3), {"CAUSAL": True, "RAGGED": False}, DESCRIBED),
        (128, "bf16", Tiling(dv_first=True), {"CAUSAL": False, "RAGGED": True}, DESCRIBED + POINTED),
        (64, "bf16", Tiling(block_m=128), {"CAUSAL": False, "RAGGED": True}, POINTED),
        (64, "bf16", Tiling(dk_first=True, stages=4), {"CAUSAL": True, "RAGGED": False}, POINTED),
    ],
)
def test_it_compiles_for_hopper_without_spills_in_its_loops_and_with_products_in_flight(
    head_dim: int, dtype: str, tiling: Tiling, constants: dict[str, Any], without: tuple[str, ...], tmp_path: Path
) -> None:
    block_m = tiling.block_m
    blocks = blocks_of(head_dim, block_m)
    of_tiling = {"BLOCK_M": block_m, "STAGES": tiling.stages, "DV_FIRST": tiling.dv_first, "DK_FIRST": tiling.dk_first}
    constants = {**of_tiling, **constants, **dict.fromkeys(without)}
    done = compiled_gluon(gluon_backward_kernel, head_dim, dtype, constants, blocks)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    ptx = done.asm["ptx"]
    products = 4 if {"sums_source", "sums_pointer"} <= set(without) else 5
    loops_each = 2 if constants["CAUSAL"] or constants["RAGGED"] else 1
    assert ptx.count("wgmma.commit_group") == 2 * loops_each * products
    assert ("cp.reduce.async.bulk.tensor" in ptx) == ("sums_source" not in without)
    says, loops = assembled(done, tmp_path)
    assert "serialized" not in says  # as it says where products cannot be in flight
    of_products = [loop for loop in loops if any("HGMMA" in each for each in loop)]
    assert len(of_products) == 2 * loops_each
    spilled = [sum(each.startswith(("LDL", "STL")) for each in loop) for loop in of_products]
    assert sorted(spilled)[:2] == [0, 0]  # of the loops without a mask
    assert max(spilled) <= (12 if block_m == 128 else 0)
    assert ("F32x4" in str(loops)) == (without == DESCRIBED)  # four atomic additions in one
    # The first warpgroup gives back what it does not need, so that both have 240 registers a thread.
    assert {("inc", "240"), ("dec", "240"), ("dec", "24")} <= set(
        re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32 \t(\d+)", ptx)
    )


@pytest.mark.parametrize(("head_dim", "block_m"), [(128, 64), (64, 64), (64, 128)])
def test_each_product_reads_the_buffers_that_it_should(head_dim: int, block_m: int) -> None:
    blocks = blocks_of(head_dim, block_m)
    constants = {
        **{"BLOCK_M": block_m, "STAGES": 2, "DV_FIRST": False, "DK_FIRST": False, "CAUSAL": False, "RAGGED": False},
        **dict.fromkeys((*POINTED, "parts_pointer")),
    }
    done = compiled_gluon(gluon_backward_kernel, head_dim, "bf16", constants, blocks)
    found = products(done.asm["ptx"])
    line = 128  # bytes of 64 columns, in which a buffer's rows lie
    row, halves = 16 * line, head_dim // 64
    # Sixteen columns of an operand are 32 bytes; after four times sixteen the next 64 columns follow all rows.
    of_keys, of_queries = (
        [32 * (step % 4) + rows * line * (step // 4) for step in range(4 * halves)] for rows in (128, block_m)
    )
    of_consumer: list[list[Product]] = [found[:5], found[5:]]
    scores, dp, *_ = of_consumer[0]
    k, q, v, dout, ds = scores.a[0], scores.b[0], dp.a[0], dp.b[0], of_consumer[0][3].a[0]
    assert None not in (k, q, v, dout, ds)

    def places(start: Any, offsets: list[int]) -> list[int]:
        return [start + offset for offset in offsets]

    for consumer, of_this in enumerate(of_consumer):
        mine = 64 * line * consumer  # the keys of a warpgroup
        half = (0 if block_m == 128 else 128 * line * consumer) if head_dim == 128 else 64 * (block_m == 64) * consumer
        registers = [None] * (block_m // 16)
        queries, keys = ([row * step for step in range(count // 16)] for count in (block_m, 128))
        assert of_this == [
            Product(places(k, [mine + each for each in of_keys]), places(q, of_queries)),
            Product(places(v, [mine + each for each in of_keys]), places(dout, of_queries)),
            Product(registers, places(dout, queries)),
            Product(
                places(ds, [(128 * line * consumer if block_m == 128 else 0) + each for each in keys]),
                places(k, [half + each for each in keys]),
            ),
            Product(registers, places(q, queries)),
        ]


@pytest.mark.parametrize(("head_dim", "block_m"), [(128, 64), (64, 64), (64, 128)])
def test_what_is_before_and_after_compiles_without_spills(head_dim: int, block_m: int, tmp_path: Path) -> None:
    of_blocks = {"BLOCK_M": block_m}
    for kernel, constants in (
        (gluon_backward_rows_kernel, of_blocks),
        (gluon_backward_dq_kernel, of_blocks),
        (gluon_backward_parts_kernel, {}),
    ):
        done = compiled_gluon(kernel, head_dim, "bf16", constants, {})
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", assembled(done, tmp_path)[0])


ZEROS = torch.zeros(1, 8, 2, 64).bfloat16()
RIGHT = {**dict.fromkeys(("dout", "q", "k", "v", "out"), ZEROS), "lse": torch.zeros(1, 2, 8)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "q must be on a GPU of compute capability 9.0, got cpu; use the Triton kernel"),
        ({"k": ZEROS[:, :0]}, "k must be .* no empty dimension"),
        ({"lse": torch.zeros(1, 8, 2)}, r"lse must be \[1, 2, 8\], torch.float32, on cpu, got \[1, 8, 2\]"),
        ({"q": ZEROS.expand(2, 8, 2, 64)[:1, :, :, :32]}, "k must have the batch and head_dim of q"),
    ],
)
def test_input_that_it_cannot_take_is_refused_with_the_rule_and_the_value(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gluon_backward(**{**RIGHT, **changes})


def test_a_tiling_that_registers_do_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_gluon_backward, "unsupported", lambda q, k, v: None)
    wide = {name: x.repeat(1, 1, 1, 2) if x.ndim == 4 else x for name, x in RIGHT.items()}
    with pytest.raises(ValueError, match="block_m must be 64, or 128 at head_dim 64, got 128 at 128"):
        gluon_backward(**wide, tiling=Tiling(block_m=128))
