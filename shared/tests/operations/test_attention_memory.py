"""The model of what attention must hold: in closed form, beside tensors, and beside a published table."""

from __future__ import annotations

import torch

from fluxbench.operations.attention_memory import held
from fluxbench.operations.shapes import AttentionCall

PLAIN = AttentionCall(
    batch=8, seq_len_q=8192, seq_len_k=8192, heads=1, kv_heads=1, head_dim_qk=64, head_dim_v=64, dtype="float32"
)
FLUX = AttentionCall(seq_len_q=4608, seq_len_k=4608, heads=24, kv_heads=8, head_dim_qk=128, head_dim_v=128)


def test_fused_attention_holds_inputs_outputs_and_a_number_a_row() -> None:
    q, kv = 4608 * 24 * 128 * 2, 4608 * 8 * 128 * 2
    forward = held(FLUX, fused=True, backward=False)
    assert (forward.inputs, forward.kept, forward.peak) == (q + 2 * kv, 0, q)
    both = held(FLUX, fused=True, backward=True)
    assert (both.inputs, both.kept) == (2 * q + 2 * kv, q + 4608 * 24 * 4)
    assert both.peak == both.kept + q + 2 * kv
    assert both.total == both.inputs + both.peak


def test_unfused_attention_holds_matrices_of_scores() -> None:
    matrix, tensor = 8 * 8192**2 * 4, 8 * 8192 * 64 * 4
    assert held(PLAIN, fused=False, backward=False).peak == 2 * matrix + tensor
    both = held(PLAIN, fused=False, backward=True)
    assert (both.inputs, both.kept, both.peak) == (4 * tensor, matrix + tensor, 3 * matrix + 4 * tensor)


def test_the_model_is_what_autograd_keeps_of_attention_written_by_hand() -> None:
    call = AttentionCall(
        batch=2, seq_len_q=96, seq_len_k=96, heads=3, kv_heads=3, head_dim_qk=16, head_dim_v=16, dtype="float32"
    )
    q, k, v = (torch.randn(2, 3, 96, 16, requires_grad=True) for _ in range(3))
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = torch.softmax(q @ (k * 0.25).mT, -1) @ v
    inputs = {x.untyped_storage().data_ptr() for x in (q, k, v)}
    beside = sum(size for pointer, size in kept.items() if pointer not in inputs)
    scaled = k.nbytes  # which this code keeps beside k
    assert beside - scaled + out.nbytes == held(call, fused=False, backward=True).kept
