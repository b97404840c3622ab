"""What a call of attention, its gradient or decoding costs, and the shapes that there are not."""

from __future__ import annotations

from typing import Any

import pytest
from calls import shape

from fluxbench import operations

FLUX = shape(tokens=4608, heads=24, dim=128)
MATRIX = 24 * 4608**2 * 128  # multiplications of one matrix product of FLUX
LLAMA = shape(tokens=4096, heads=32, kv_heads=8, dim=128, causal=True)
LLAMA_PAIRS = 4096 * 4097 // 2  # of a query and a key that it sees
DECODING = shape(seq_len_q=1, seq_len_k=512, heads=32, kv_heads=8, dim=128)
BACK = shape(tokens=10, heads=2, kv_heads=1, dim=16)


@pytest.mark.parametrize(
    ("name", "of", "flops", "min_flops", "min_bytes"),
    [
        ("attention", FLUX, 260_919_263_232, 4 * MATRIX, 113_246_208),
        ("attention", {**FLUX, "batch": 3}, 12 * MATRIX, 12 * MATRIX, 3 * 113_246_208),
        ("attention", {**FLUX, "dtype": "float32"}, 4 * MATRIX, 4 * MATRIX, 2 * 113_246_208),
        ("attention", LLAMA, 2 * 32 * 4096**2 * 128, 4 * 32 * LLAMA_PAIRS * 128, 2 * 4096 * (32 + 8) * 128 * 2),
        # Each of 3 queries of a head sees 6, 7 or 8 keys.
        ("attention", shape(seq_len_q=3, seq_len_k=8, causal=True, dim=16), 256 * 19.5, 256 * 21, 4 * 22 * 16 * 2),
        # A query and a key of 48 channels, a value of 32: 160 operations a pair.
        ("attention", shape(tokens=10, heads=1, head_dim_qk=48, head_dim_v=32), 16_000, 16_000, 10 * 160 * 2),
        ("attention_backward", FLUX, 10 * MATRIX, 8 * MATRIX, 8 * 4608 * 24 * 128 * 2),
        # q, its gradient, the output and its own have 320 elements each; k, v and their gradients have 160.
        ("attention_backward", BACK, 32_000, 25_600, (4 * 320 + 4 * 160) * 2),
        ("attention_training", FLUX, 14 * MATRIX, 12 * MATRIX, 8 * 4608 * 24 * 128 * 2),
        ("attention_training", BACK, 44_800, 38_400, (4 * 320 + 4 * 160) * 2),
        ("decode", DECODING, 4 * 32 * 512 * 128, 4 * 32 * 512 * 128, (2 * 32 + 2 * 8 * 512) * 128 * 2),
    ],
)
def test_a_call_costs_what_is_computed_by_hand(
    name: str, of: dict[str, Any], flops: int, min_flops: int, min_bytes: int
) -> None:
    cost = operations.find(name).cost(of)
    assert (cost.flops, cost.min_flops, cost.min_bytes) == (flops, min_flops, min_bytes)


@pytest.mark.parametrize(
    ("of", "message"),
    [
        *((shape(**{size: value}), f"{size} of an attention must be a positive integer, got {value!r}")
          for size in ("batch", "seq_len_q", "seq_len_k", "heads", "kv_heads", "head_dim_qk", "head_dim_v")
          for value in (0, 1.5, True)),
        (shape(kv_heads=3), "heads of an attention must be a multiple of kv_heads, got 4 and 3"),
        (shape(dtype="fp8"), "dtype of an attention must be one of bfloat16, float16, float32, got 'fp8'"),
        (shape(causal=1), "causal of an attention must be true or false, got 1"),
        (shape(seq_len_q=9, seq_len_k=8, causal=True), "must have no more queries than keys, got 9 and 8"),
        (shape(window=4), "an attention has no window"),
        ({"seq_len_q": 4}, "the shape of an attention is incomplete"),
    ],
)  # fmt: skip
def test_a_shape_that_there_is_not_is_refused(of: dict[str, Any], message: str) -> None:
    for name in ("attention", "attention_backward"):
        with pytest.raises(ValueError, match=message):
            operations.find(name).cost(of)


def test_decoding_has_one_query_which_need_not_be_said_and_no_mask() -> None:
    decode = operations.find("decode")
    of = shape(seq_len_k=33)
    del of["seq_len_q"]
    assert decode.attention(of).seq_len_q == 1
    for changes, message in (({"seq_len_q": 2}, "2 and causal False"), ({"causal": True}, "1 and causal True")):
        with pytest.raises(ValueError, match=f"got seq_len_q {message}"):
            decode.cost({**of, **changes})
