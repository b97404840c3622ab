"""Flash attention with a gradient: the forward and the backward kernels as operators of torch.

As operators they are opaque to torch.compile, which so takes a call into one graph, and autograd knows their gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from fluxbench.kernels.flash_backward import flash_backward
from fluxbench.kernels.flash_forward import flash_forward, flash_forward_with_lse
from fluxbench.kernels.flash_tensors import lse_dtype


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, tf32: bool = False
) -> torch.Tensor:
    """Return `flash_forward(q, k, v, causal=causal, tf32=tf32)`, whose gradient autograd takes by `flash_backward`.

    Where no input requires a gradient, nothing is kept for it. Raises `ValueError` as `flash_forward` does.
    """
    differentiable = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    out: torch.Tensor = _attention(q, k, v, causal, tf32, differentiable)[0]
    return out


@torch.library.custom_op("fluxbench::flash_attention", mutates_args=())  # type: ignore[untyped-decorator]
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, tf32: bool, differentiable: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    if differentiable:
        return flash_forward_with_lse(q, k, v, causal=causal, tf32=tf32)
    return flash_forward(q, k, v, causal=causal, tf32=tf32), q.new_empty(0, dtype=lse_dtype(q.dtype))


@_attention.register_fake  # type: ignore[untyped-decorator]
def _(q: Any, k: Any, v: Any, causal: bool, tf32: bool, differentiable: bool) -> tuple[Any, Any]:
    of_lse = (q.shape[0], q.shape[2], q.shape[1]) if differentiable else (0,)
    return q.new_empty(q.shape), q.new_empty(of_lse, dtype=lse_dtype(q.dtype))


@torch.library.custom_op("fluxbench::flash_attention_backward", mutates_args=())  # type: ignore[untyped-decorator]
def _gradients(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    tf32: bool,
    of_q: bool,
    of_kv: bool,
) -> list[torch.Tensor]:
    gradients = flash_backward(dout, q, k, v, out, lse, causal=causal, tf32=tf32, of_q=of_q, of_kv=of_kv)
    return [gradient for gradient in gradients if gradient is not None]


@_gradients.register_fake  # type: ignore[untyped-decorator]
def _(
    dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, causal: bool, tf32: bool, of_q: bool, of_kv: bool
) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x, wanted in ((q, of_q), (k, of_kv), (v, of_kv)) if wanted]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.causal, ctx.tf32, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, dout: torch.Tensor, _: object) -> tuple[torch.Tensor | None, ...]:
    of_q, of_k, of_v = ctx.needs_input_grad[:3]
    gradients = iter(_gradients(dout, *ctx.saved_tensors, ctx.causal, ctx.tf32, of_q, of_k or of_v))
    dq = next(gradients) if of_q else None
    dk, dv = gradients if of_k or of_v else (None, None)
    return dq, dk if of_k else None, dv if of_v else None, None, None, None


_attention.register_autograd(_backward, setup_context=_keep)
