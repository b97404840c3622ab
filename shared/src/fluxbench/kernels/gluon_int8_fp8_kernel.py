"""The 8-bit kernel of the forward pass on compute capability 9.0; `gluon_int8_fp8.py` says what it computes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from fluxbench.kernels.flash_gluon_kernel import fetch, load
from fluxbench.kernels.flash_gluon_tiles import ROWS, job, turns
from fluxbench.kernels.gluon_int8_fp8_consumer import CONSUMERS, STAGES, consume
from fluxbench.kernels.gluon_int8_fp8_softmax import BLOCK_N, COPIES


@gluon.jit  # type: ignore[untyped-decorator]
def _fetch_values(
    source: gl.tensor,
    batch: gl.tensor,
    head: gl.tensor,
    column: gl.tensor,
    buffer: gl.tensor,
    full: gl.tensor,
    empty: gl.tensor,
    phase: gl.tensor,
) -> None:
    """Once the buffer is empty, start to copy columns of a head's V, which is transposed, into it."""
    mbarrier.wait(empty, phase)
    mbarrier.expect(full, source.block_type.nbytes)
    load(source, [batch, head, 0, column], full, buffer)


@gluon.jit  # type: ignore[untyped-decorator]
def _produce(
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    q_buffers: gl.tensor,
    k_buffers: gl.tensor,
    v_buffers: gl.tensor,
    q_full: gl.tensor,
    q_empty: gl.tensor,
    k_full: gl.tensor,
    k_empty: gl.tensor,
    v_full: gl.tensor,
    v_empty: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    heads: gl.tensor,
    group: gl.tensor,
    share: gl.tensor,
    CAUSAL: gl.constexpr,
    SPLIT: gl.constexpr,
) -> None:
    """Load what the consumers need, in the order in which they need it: the keys from the last block to the first."""
    step = 0
    for turn in range(turns(blocks_m, pairs, gl.cdiv(seq_len_k, BLOCK_N), share, SPLIT)):
        start_m, pair, first, blocks = job(
            turn, blocks_m, pairs, seq_len_q, seq_len_k, share, ROWS * CONSUMERS, BLOCK_N, CAUSAL, SPLIT
        )
        batch = pair // heads
        head = pair % heads
        kv_head = head // group
        for done in range(blocks):
            stage = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1  # a wait for the phase before the first passes
            start_n = (first + blocks - 1 - done) * BLOCK_N
            fetch(
                k_source, batch, kv_head, start_n,
                k_buffers.index(stage), k_full.index(stage), k_empty.index(stage), phase,
            )  # fmt: skip
            if done == 0:  # the buffer of these keys is empty before that of the queries is
                for consumer in gl.static_range(CONSUMERS):
                    fetch(
                        q_source, batch, head, start_m + consumer * ROWS,
                        q_buffers.index(consumer), q_full.index(consumer), q_empty.index(consumer), (turn & 1) ^ 1,
                    )  # fmt: skip
            _fetch_values(
                v_source, batch, kv_head, start_n,
                v_buffers.index(stage), v_full.index(stage), v_empty.index(stage), phase,
            )  # fmt: skip
            step += 1


@gluon.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["seq_len_q", "seq_len_k", "blocks_m", "pairs", "heads", "group", "share"]
)
def quantized_forward_kernel(
    # Descriptors of [batch, heads, seq_len, head_dim], in blocks of ROWS or BLOCK_N rows of one head; q and k are
    # int8. v is float8_e4m3fn, [batch, kv_heads, head_dim, seq_len], in blocks of BLOCK_N columns, and has the keys in
    # the order that `codes_of` asks for.
    q_source: gl.tensor,
    k_source: gl.tensor,
    v_source: gl.tensor,
    out_source: gl.tensor,  # of bfloat16 or float16
    q_scales_pointer: gl.tensor,  # [batch, heads, seq_len_q], float32: of a row, times log2(e) and that of the scores
    scales_pointer: gl.tensor,  # [batch, kv_heads, blocks of keys, 3], float32: of k, of v, and the inverse of v's
    parts_pointer: gl.tensor,  # [programs, 2, CONSUMERS, (HEAD_DIM + 2) * ROWS], float32; None: no tile is split
    arrivals_pointer: gl.tensor,  # [split tiles, CONSUMERS], int32, zero; None: no tile is split
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    blocks_m: gl.tensor,  # blocks of ROWS * CONSUMERS query rows of one head
    pairs: gl.tensor,  # batch * heads
    heads: gl.tensor,
    group: gl.tensor,  # query heads to a head of k and v
    share: gl.tensor,  # blocks of keys of the split tiles to a program
    HEAD_DIM: gl.constexpr,
    RAGGED: gl.constexpr,  # seq_len_k is no multiple of BLOCK_N
    CAUSAL: gl.constexpr,  # aligned to the end: the last query sees all keys; seq_len_q <= seq_len_k
) -> None:
    """Write softmax(q @ k.T) @ v, tile by tile, as many as this program has. Scales make q, k and v what they were."""
    K_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, HEAD_DIM], q_source.dtype)
    V_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BLOCK_N], v_source.dtype)
    OUT_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, HEAD_DIM], out_source.dtype)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_buffers = gl.allocate_shared_memory(q_source.dtype, [CONSUMERS, ROWS, HEAD_DIM], K_LAYOUT)
    k_buffers = gl.allocate_shared_memory(k_source.dtype, [STAGES, BLOCK_N, HEAD_DIM], K_LAYOUT)
    v_buffers = gl.allocate_shared_memory(v_source.dtype, [STAGES, HEAD_DIM, BLOCK_N], V_LAYOUT)
    out_buffers = gl.allocate_shared_memory(out_source.dtype, [CONSUMERS, ROWS, HEAD_DIM], OUT_LAYOUT)
    ones = gl.allocate_shared_memory(v_source.dtype, [COPIES, BLOCK_N], V_LAYOUT)
    # 1 / COPIES, since the copies of a sum are added. As bytes: of two constants that are converted to float8 Triton
    # 3.6.0 makes one.
    eighths = gl.full([COPIES, BLOCK_N], 0x20, gl.int8, gl.BlockedLayout([1, 16], [8, 4], [1, 4], [1, 0]))
    ones.store(gl.cast(eighths, v_source.dtype, bitcast=True))
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BARRIER)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(consumer), count=1)
        mbarrier.init(q_empty.index(consumer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=CONSUMERS)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=CONSUMERS)
    fence_async_shared()
    # The tuples are written out: constants lose their type in a variable.
    gl.warp_specialize(
        [
            (consume, (
                out_source, q_scales_pointer, scales_pointer, parts_pointer, arrivals_pointer,
                q_buffers, k_buffers, v_buffers, out_buffers, ones, q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, group, share,
                HEAD_DIM, RAGGED, CAUSAL, 0,
            )),
            (consume, (
                out_source, q_scales_pointer, scales_pointer, parts_pointer, arrivals_pointer,
                q_buffers, k_buffers, v_buffers, out_buffers, ones, q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, group, share,
                HEAD_DIM, RAGGED, CAUSAL, 1,
            )),
            (_produce, (
                q_source, k_source, v_source, q_buffers, k_buffers, v_buffers,
                q_full, q_empty, k_full, k_empty, v_full, v_empty,
                seq_len_q, seq_len_k, blocks_m, pairs, heads, group, share,
                CAUSAL, parts_pointer is not None,
            )),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # their registers a thread; the first consumer has what is left, 240
    )  # fmt: skip
