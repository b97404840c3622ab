"""The kernels of the backward pass in Gluon, compiled for compute capability 9.0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from compiled import SHARED_MEMORY_KIB, assembled, compiled_gluon
from ptx import Product, products

from fluxbench.kernels.flash_gluon_backward_kernel import gluon_backward_kernel
from fluxbench.kernels.flash_gluon_backward_queries import gluon_backward_queries_kernel
from fluxbench.kernels.flash_gluon_backward_sums import gluon_backward_end_kernel, gluon_backward_rows_kernel

OF_HEAD_DIM = [(128, 64), (64, 128)]  # with the queries of a block
BLOCK_M = dict(OF_HEAD_DIM)


def blocks_of(block_m: int) -> dict[str, tuple[int, ...]]:
    """Return the block of each descriptor."""
    return {
        **dict.fromkeys(("q", "dout"), (block_m,)), **dict.fromkeys("kv", (128,)), **dict.fromkeys(("dk", "dv"), (64,)),
        "rows": (1, block_m), "sums": (128, 32),
    }  # fmt: skip


PARTS = ("parts_pointer",)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "constants", "without"),
    [
        (128, "bf16", {"CAUSAL": False, "RAGGED": False}, PARTS),
        (128, "fp16", {"CAUSAL": True, "RAGGED": False}, PARTS),
        (128, "bf16", {"CAUSAL": False, "RAGGED": True}, ("sums_source", *PARTS)),
        (128, "bf16", {"CAUSAL": False, "RAGGED": True}, ()),
        (64, "bf16", {"CAUSAL": False, "RAGGED": True}, ()),
        (64, "bf16", {"CAUSAL": True, "RAGGED": False}, PARTS),
    ],
)
def test_it_compiles_for_hopper_without_spills_in_its_loops_and_with_products_in_flight(
    head_dim: int, dtype: str, constants: dict[str, Any], without: tuple[str, ...], tmp_path: Path
) -> None:
    block_m = BLOCK_M[head_dim]
    of_tiling = {
        "BLOCK_M": block_m,
        "STAGES": 2,
    }
    constants = {**of_tiling, **constants, **dict.fromkeys(without)}
    blocks = blocks_of(block_m)
    done = compiled_gluon(gluon_backward_kernel, head_dim, dtype, constants, blocks)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    ptx = done.asm["ptx"]
    products = 4 if "sums_source" in without else 5
    loops_each = 2 if constants["CAUSAL"] or constants["RAGGED"] else 1
    assert ptx.count("wgmma.commit_group") == 2 * loops_each * products
    assert ("cp.reduce.async.bulk.tensor" in ptx) == ("sums_source" not in without)
    says, loops = assembled(done, tmp_path)
    assert "serialized" not in says  # as it says where products cannot be in flight
    of_products = [loop for loop in loops if any("HGMMA" in each for each in loop)]
    assert len(of_products) == 2 * loops_each
    spilled = [sum(each.startswith(("LDL", "STL")) for each in loop) for loop in of_products]
    assert sorted(spilled)[1] <= (2 if head_dim == 64 else 1)  # of the loops without a mask
    assert max(spilled) <= (12 if block_m == 128 else 2)
    # The first warpgroup gives back what it does not need, so that both have 240 registers a thread.
    assert {("inc", "240"), ("dec", "240"), ("dec", "24")} <= set(
        re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32 \t(\d+)", ptx)
    )


@pytest.mark.parametrize("mask", ["CAUSAL", "RAGGED"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_kernel_for_dq_alone_compiles_for_hopper_without_spills_and_with_products_in_flight(
    head_dim: int, mask: str, tmp_path: Path
) -> None:
    block_n = 128 if mask == "CAUSAL" and head_dim == 64 else 64
    of_tiling = {"ROWS_BLOCK": BLOCK_M[head_dim], "BLOCK_N": block_n, "STAGES": 4}
    constants = {**of_tiling, "CAUSAL": False, "RAGGED": False, mask: True}
    blocks = {**dict.fromkeys(("q", "dout", "dq"), (64,)), **dict.fromkeys("kv", (block_n,))}
    done = compiled_gluon(gluon_backward_queries_kernel, head_dim, "bf16", constants, blocks)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[9, 0] * 1024
    assert done.asm["ptx"].count("wgmma.commit_group") == 2 * (9 if mask == "CAUSAL" else 6)
    says, _ = assembled(done, tmp_path)
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", says)
    assert "serialized" not in says


@pytest.mark.parametrize(("head_dim", "block_m"), OF_HEAD_DIM)
def test_each_product_reads_the_buffers_that_it_should(head_dim: int, block_m: int) -> None:
    constants = {
        **{"BLOCK_M": block_m, "STAGES": 2, "CAUSAL": False, "RAGGED": False},
        **dict.fromkeys(PARTS),
    }
    done = compiled_gluon(gluon_backward_kernel, head_dim, "bf16", constants, blocks_of(block_m))
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
        half = 128 * line * consumer if block_m == 64 else 0
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


@pytest.mark.parametrize(("head_dim", "block_m"), OF_HEAD_DIM)
def test_what_is_before_and_after_compiles_without_spills(head_dim: int, block_m: int, tmp_path: Path) -> None:
    for kernel, constants in ((gluon_backward_rows_kernel, {}), (gluon_backward_end_kernel, {"SHARES": 8})):
        done = compiled_gluon(kernel, head_dim, "bf16", {"BLOCK_M": block_m, **constants}, {})
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", assembled(done, tmp_path)[0])
