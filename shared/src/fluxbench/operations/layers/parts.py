"""What several layers are made of: rotation by position, and unfused attention that autograd knows."""

from typing import Any

import torch

from fluxbench.operations import math_attention
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall

NORM_EPSILON = 1e-6  # of Qwen3 and DeepSeek-V3, by their config.json
_ROTARY_BASE = 10_000.0


def rotary_table(seq_len: int, dim: int, device: torch.device | str) -> torch.Tensor:
    """Return cosines and sines of the angles by position, `[seq_len, dim / 2, 2]`, float32 (Su et al., RoFormer)."""
    frequencies = _ROTARY_BASE ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)
    angles = torch.arange(seq_len, dtype=torch.float64, device=device)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()), dim=-1).float()


def rotate(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return x `[batch, seq_len, heads, dim]`, each pair of neighbouring channels turned by its angle, in float32."""
    even, odd = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table.to(even.dtype).unsqueeze(1).unbind(-1)  # [seq_len, 1, dim / 2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


def unfused(call: AttentionCall, precision: str) -> Attention:
    """Return unfused attention in the dtype of its inputs, with its gradient, as `math_attention` has both."""

    class Unfused(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(q, k, v)
            return math_attention.forward(call, {"q": q, "k": k, "v": v}, q.dtype, precision)

        @staticmethod
        def backward(ctx: Any, *of_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
            q, k, v = ctx.saved_tensors
            inputs = {"q": q, "k": k, "v": v, "dout": of_out[0]}
            found = math_attention.training(call, inputs, q.dtype, precision)
            return found["dq"], found["dk"], found["dv"]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = Unfused.apply(q, k, v)
        return out

    return attend
