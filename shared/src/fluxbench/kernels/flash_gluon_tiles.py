"""Which tiles the programs of the Gluon kernel compute, and in which order."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS = gl.constexpr(64)  # query rows of a consumer: those of one matrix instruction of a warpgroup


@gluon.jit  # type: ignore[untyped-decorator]
def turns(
    blocks_m: gl.tensor, pairs: gl.tensor, blocks_n: gl.tensor, share: gl.tensor, SPLIT: gl.constexpr
) -> gl.tensor:
    """Return how many turns this program has: tiles, and with SPLIT parts of tiles after the last full round."""
    programs = gl.num_programs(0)
    program = gl.program_id(0)
    tiles = blocks_m * pairs
    rounds = tiles // programs
    if SPLIT:
        begin = program * share
        end = gl.minimum(begin + share, tiles % programs * blocks_n)
        parts = gl.where(begin >= end, 0, (end - 1) // blocks_n - begin // blocks_n + 1)
    else:
        slot = gl.where(rounds % 2 == 0, program, programs - 1 - program)
        parts = gl.where(slot < tiles % programs, 1, 0)
    return rounds + parts


@gluon.jit  # type: ignore[untyped-decorator]
def job(
    turn: gl.tensor,
    blocks_m: gl.tensor,
    pairs: gl.tensor,
    seq_len_q: gl.tensor,
    seq_len_k: gl.tensor,
    share: gl.tensor,
    TILE_ROWS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
    SPLIT: gl.constexpr,
) -> gl.tuple:
    """Return what to compute in a turn: the first row, the (batch, head) pair, the first block of keys, how many.

    Neighbours share a head, so that its k and v are read from L2. Of a causal mask the tiles go by length, the longest
    first, and each round goes through the programs in the other direction: none has the longest tile twice.

    With SPLIT the blocks of the tiles after the last full round are shared out evenly, `share` to a program. These are
    of one tile or of two, since a program has no more of them than a tile has.
    """
    programs = gl.num_programs(0)
    program = gl.program_id(0)
    index = turn * programs + gl.where(turn % 2 == 0, program, programs - 1 - program)
    first = 0
    if CAUSAL:
        start_m = (blocks_m - 1 - index // pairs) * TILE_ROWS
        pair = index % pairs
        count = gl.cdiv(gl.minimum(start_m + TILE_ROWS + seq_len_k - seq_len_q, seq_len_k), BLOCK_N)
    else:
        count = gl.cdiv(seq_len_k, BLOCK_N)
        if SPLIT:
            rounds = blocks_m * pairs // programs
            begin = program * share
            tile = begin // count + gl.where(turn > rounds, 1, 0)
            begin = gl.maximum(begin, tile * count)
            end = gl.minimum(program * share + share, (tile + 1) * count)
            first = gl.where(turn >= rounds, begin - tile * count, 0)
            end = gl.minimum(end, blocks_m * pairs % programs * count)
            index = gl.where(turn >= rounds, rounds * programs + tile, index)
            count = gl.where(turn >= rounds, end - begin, count)
        start_m = index % blocks_m * TILE_ROWS
        pair = index // blocks_m
    return start_m, pair, first, count


@gluon.jit  # type: ignore[untyped-decorator]
def parts(turn: gl.tensor, blocks_m: gl.tensor, pairs: gl.tensor, blocks_n: gl.tensor, share: gl.tensor) -> gl.tuple:
    """Return of the tile of a turn with SPLIT: its number among those that are split, its first program, its parts."""
    programs = gl.num_programs(0)
    rounds = blocks_m * pairs // programs
    tile = gl.program_id(0) * share // blocks_n + gl.where(turn > rounds, 1, 0)
    lowest = tile * blocks_n // share
    highest = ((tile + 1) * blocks_n - 1) // share
    return tile, lowest, gl.where(turn >= rounds, highest - lowest + 1, 1)


@gluon.jit  # type: ignore[untyped-decorator]
def slot(program: gl.tensor, tile: gl.tensor, blocks_n: gl.tensor, share: gl.tensor) -> gl.tensor:
    """Return where a program keeps its part of a split tile: it has two slots, for two tiles."""
    return 2 * program + gl.where(program * share < tile * blocks_n, 1, 0)
