"""How the warpgroups of the Gluon kernel give buffers of K and V back to the warp that fills them.

By mbarriers, on which one thread arrives after a barrier of its warpgroup; or NAMED, by barriers with numbers, on which
all threads arrive without waiting for each other.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

# Numbers of the barriers of the first buffers; 9 and 10 are the turns of the warpgroups, Triton has those below.
OF_K = gl.constexpr(11)
OF_V = gl.constexpr(13)


@gluon.jit  # type: ignore[untyped-decorator]
def give_back(empty: gl.tensor, stage: gl.tensor, FIRST: gl.constexpr, NAMED: gl.constexpr) -> None:
    """Say that this warpgroup is done with a buffer."""
    if NAMED:
        number = gl.full([128], FIRST + stage, gl.int32, gl.BlockedLayout([1], [32], [4], [0]))
        gl.inline_asm_elementwise(
            "bar.arrive $1, 288; mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1
        )
    else:
        mbarrier.arrive(empty.index(stage), count=1)


@gluon.jit  # type: ignore[untyped-decorator]
def wait_for_all(stage: gl.tensor, FIRST: gl.constexpr) -> None:
    """Wait, as one warp, until both warpgroups have given a buffer back, if NAMED."""
    number = gl.full([32], FIRST + stage, gl.int32, gl.BlockedLayout([1], [32], [1], [0]))
    gl.inline_asm_elementwise(
        "bar.sync $1, 288; mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit  # type: ignore[untyped-decorator]
def wait_until_empty(
    empty: gl.tensor, step: gl.tensor, FIRST: gl.constexpr, STAGES: gl.constexpr, NAMED: gl.constexpr
) -> None:
    """Wait until the buffer of a step may be filled. The first ones are empty."""
    if NAMED:
        if step >= STAGES:
            wait_for_all(step % STAGES, FIRST)
    else:
        mbarrier.wait(empty.index(step % STAGES), ((step // STAGES) & 1) ^ 1)


@gluon.jit  # type: ignore[untyped-decorator]
def wait_for_the_last(steps: gl.tensor, STAGES: gl.constexpr) -> None:
    """Wait for the last buffers of all steps, if NAMED: no barrier is left half full."""
    for step in range(gl.maximum(steps - STAGES, 0), steps):
        wait_for_all(step % STAGES, OF_K)
        wait_for_all(step % STAGES, OF_V)
