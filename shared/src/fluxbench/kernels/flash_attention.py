"""Flash attention with a gradient: the forward and the backward kernels as operators of torch.

The kernels of both passes are those in Gluon where these run, else those in Triton.

As operators they are opaque to torch.compile, which so takes a call into one graph, and autograd knows their gradient.
Their namespace is this package's name, so that a copy of it in another package has operators of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from fluxbench.kernels.flash_backward import flash_backward
from fluxbench.kernels.flash_forward import flash_forward, flash_forward_with_lse
from fluxbench.kernels.flash_tensors import check, lse_dtype

try:
    from fluxbench.kernels.flash_gluon import gluon_forward, gluon_forward_with_lse, unsupported
    from fluxbench.kernels.flash_gluon_backward import gluon_backward
except ImportError as error:  # a Triton without what it needs
    _WITHOUT_GLUON: ImportError | None = error
else:
    _WITHOUT_GLUON = None

_NAMESPACE = __name__.rpartition(".")[0].replace(".", "_")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    tf32: bool = False,
    forward: str | None = None,
    backward: str | None = None,
    deterministic: bool = False,
) -> torch.Tensor:
    """Return softmax(q @ k.T * scale) @ v, head by head, with its gradient where an input requires one.

    q:      [batch, seq_len_q, heads, head_dim], bfloat16, float16 or float32, on an NVIDIA GPU of compute capability
            8.0 or newer; head_dim 16, 32, 64 or 128, contiguous; other strides are free and copy nothing
    k, v:   [batch, seq_len_k, kv_heads, head_dim], of the same dtype; kv_heads divides heads
    causal: mask the keys after each query, aligned to the end: the last query sees all keys
    scale:  of the scores, over 0; 1 / sqrt(head_dim) by default
    tf32:   round what enters a product of float32 to TF32; torch's own setting decides nothing here
    forward: "gluon" or "triton", the kernel of the forward pass. By default Gluon's where it runs: on compute
            capability 9.0, in 16 bits, of head_dim 64 and 128, with addresses and strides of multiples of 16 bytes
    backward: "gluon" or "triton", the kernels of the backward pass; by default likewise
    deterministic: gradients have the same bits each time, as `torch.use_deterministic_algorithms` asks too if it is on
            during the backward pass. Triton's always do; without it, dq of Gluon's does not
    result: [batch, seq_len_q, heads, head_dim], contiguous, of the same dtype

    It is one operator to torch.compile. Raises `ValueError` for other inputs, empty ones among them, and `ImportError`
    for a kernel in Gluon in a Triton that does not have what it needs.
    """
    differentiable = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    out: torch.Tensor = _attention(q, k, v, causal, scale, tf32, differentiable, forward, backward, deterministic)[0]
    return out


@torch.library.custom_op(f"{_NAMESPACE}::flash_attention", mutates_args=())  # type: ignore[untyped-decorator]
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    tf32: bool,
    differentiable: bool,
    forward: str | None,
    backward: str | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, causal=causal, scale=scale)
    if differentiable and _is_gluon("backward", backward, q, k, v) and (reason := unsupported(q, k, v)):
        raise ValueError(reason)  # before anything is computed
    if _is_gluon("forward", forward, q, k, v):
        if differentiable:
            return gluon_forward_with_lse(q, k, v, causal=causal, scale=scale)
        out = gluon_forward(q, k, v, causal=causal, scale=scale)
    elif differentiable:
        return flash_forward_with_lse(q, k, v, causal=causal, scale=scale, tf32=tf32)
    else:
        out = flash_forward(q, k, v, causal=causal, scale=scale, tf32=tf32)
    return out, q.new_empty(0, dtype=lse_dtype(q.dtype))


def _is_gluon(which: str, asked: str | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Say whether the kernel of a pass is the one in Gluon; by default it may be where it takes the tensors."""
    if asked not in (None, "gluon", "triton"):
        raise ValueError(f"{which} must be 'gluon', 'triton' or None, got {asked!r}")
    if asked == "gluon" and _WITHOUT_GLUON:
        raise _WITHOUT_GLUON
    return asked == "gluon" or (asked is None and not _WITHOUT_GLUON and unsupported(q, k, v) is None)


@_attention.register_fake  # type: ignore[untyped-decorator]
def _(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    scale: float | None,
    tf32: bool,
    differentiable: bool,
    forward: str | None,
    backward: str | None,
    deterministic: bool,
) -> tuple[Any, Any]:
    of_lse = (q.shape[0], q.shape[2], q.shape[1]) if differentiable else (0,)
    return q.new_empty(q.shape), q.new_empty(of_lse, dtype=lse_dtype(q.dtype))


@torch.library.custom_op(f"{_NAMESPACE}::flash_attention_backward", mutates_args=())  # type: ignore[untyped-decorator]
def _gradients(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float | None,
    tf32: bool,
    of_q: bool,
    of_kv: bool,
    backward: str | None,
    deterministic: bool,
) -> list[torch.Tensor]:
    asked: dict[str, Any] = {"causal": causal, "scale": scale, "of_q": of_q, "of_kv": of_kv}
    if _is_gluon("backward", backward, q, k, v):
        deterministic |= torch.are_deterministic_algorithms_enabled()  # read when it runs, as torch does
        gradients = gluon_backward(dout, q, k, v, out, lse, deterministic=deterministic, **asked)
    else:
        gradients = flash_backward(dout, q, k, v, out, lse, tf32=tf32, **asked)
    return [gradient for gradient in gradients if gradient is not None]


@_gradients.register_fake  # type: ignore[untyped-decorator]
def _(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    causal: bool,
    scale: float | None,
    tf32: bool,
    of_q: bool,
    of_kv: bool,
    backward: str | None,
    deterministic: bool,
) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x, wanted in ((q, of_q), (k, of_kv), (v, of_kv)) if wanted]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.causal, ctx.scale, ctx.tf32, _, _, ctx.backward, ctx.deterministic = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, dout: torch.Tensor, _: object) -> tuple[torch.Tensor | None, ...]:
    of_q, of_k, of_v = ctx.needs_input_grad[:3]
    asked = (ctx.causal, ctx.scale, ctx.tf32, of_q, of_k or of_v, ctx.backward, ctx.deterministic)
    gradients = iter(_gradients(dout, *ctx.saved_tensors, *asked))
    dq = next(gradients) if of_q else None
    dk, dv = gradients if of_k or of_v else (None, None)
    return dq, dk if of_k else None, dv if of_v else None, *[None] * 7


_attention.register_autograd(_backward, setup_context=_keep)
