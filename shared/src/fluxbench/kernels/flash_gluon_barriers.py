"""Barriers with numbers of the Gluon kernel: the turns of its warpgroups, and how they give buffers of K and V back.

All threads arrive at such a barrier without waiting for each other. An mbarrier takes one arrival of a warpgroup, and
its warps wait for each other before it.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

STAGES = gl.constexpr(2)  # buffers of K, and of V; more would share a barrier
# Numbers of the barriers of the first buffers; 9 and 10 are the turns of the warpgroups, Triton has those below.
OF_K = gl.constexpr(11)
OF_V = gl.constexpr(13)


@gluon.jit  # type: ignore[untyped-decorator]
def named_barrier(ASM: gl.constexpr) -> None:
    """Run a barrier instruction once a thread of a warpgroup."""
    thread = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.inline_asm_elementwise(ASM, "=r,r", [thread], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit  # type: ignore[untyped-decorator]
def take_turn(CONSUMER: gl.constexpr) -> None:
    """Wait until this warpgroup may start its products."""
    if CONSUMER == 0:
        named_barrier("bar.sync 9, 256; mov.b32 $0, $1;")
    else:
        named_barrier("bar.sync 10, 256; mov.b32 $0, $1;")


@gluon.jit  # type: ignore[untyped-decorator]
def give_turn(CONSUMER: gl.constexpr) -> None:
    """Let the other warpgroup start its products."""
    if CONSUMER == 0:
        named_barrier("bar.arrive 10, 256; mov.b32 $0, $1;")
    else:
        named_barrier("bar.arrive 9, 256; mov.b32 $0, $1;")


@gluon.jit  # type: ignore[untyped-decorator]
def give_back(stage: gl.tensor, FIRST: gl.constexpr) -> None:
    """Say that this warpgroup is done with a buffer."""
    number = gl.full([128], FIRST + stage, gl.int32, gl.BlockedLayout([1], [32], [4], [0]))
    gl.inline_asm_elementwise(
        "bar.arrive $1, 288; mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit  # type: ignore[untyped-decorator]
def give_back_after(sums: gl.tensor, stage: gl.tensor, FIRST: gl.constexpr, LAYOUT: gl.constexpr) -> None:
    """Say the same once sums, two values a thread, are there. Products are not waited for before.

    The assembler moves a wait for a product up as far as it can, which leaves nothing to do meanwhile. It does not move
    it over an arrival, and this one seems to depend on the sums: it happens whatever they are.
    """
    number = gl.full(sums.shape, FIRST + stage, gl.int32, LAYOUT)
    gl.inline_asm_elementwise(
        """{
        .reg .pred always;
        setp.neu.f32 always, $2, 0f7F7FFFFF;
        setp.neu.or.f32 always, $3, 0f7F7FFFFF, always;
        @always bar.arrive $4, 288;
        mov.b32 $0, $4;
        mov.b32 $1, $5;
        }""",
        "=r,=r,f,f,r,r",
        [sums, number],
        dtype=gl.int32,
        is_pure=False,
        pack=2,
    )


@gluon.jit  # type: ignore[untyped-decorator]
def _wait_for_all(stage: gl.tensor, FIRST: gl.constexpr) -> None:
    """Wait, as one warp, until both warpgroups have given a buffer back."""
    number = gl.full([32], FIRST + stage, gl.int32, gl.BlockedLayout([1], [32], [1], [0]))
    gl.inline_asm_elementwise(
        "bar.sync $1, 288; mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit  # type: ignore[untyped-decorator]
def wait_until_empty(step: gl.tensor, FIRST: gl.constexpr) -> None:
    """Wait until the buffer of a step may be filled. The first ones are empty."""
    if step >= STAGES:
        _wait_for_all(step % STAGES, FIRST)


@gluon.jit  # type: ignore[untyped-decorator]
def wait_for_the_last(steps: gl.tensor) -> None:
    """Wait for the last buffers of all steps: no barrier is left half full."""
    for step in range(gl.maximum(steps - STAGES, 0), steps):
        _wait_for_all(step % STAGES, OF_K)
        _wait_for_all(step % STAGES, OF_V)
