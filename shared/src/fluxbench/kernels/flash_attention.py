"""Flash attention with a gradient: the forward and the backward kernels as operators of torch.

The kernels of both passes are those in Gluon where these run, else those in Triton.

As operators they are opaque to torch.compile, which so takes a call into one graph, and autograd knows their gradient.
Their namespace is this package's name, so that a copy of it in another package has operators of its own. They are
registered with the dispatcher itself: `torch.library.custom_op` takes the host some 80 us more for a forward and a
backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from fluxbench.kernels.flash_backward import check_gradient, flash_backward
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
_LIBRARY = torch.library.Library(_NAMESPACE, "FRAGMENT")


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
    out: torch.Tensor = _FORWARD(q, k, v, causal, scale, tf32, differentiable, forward, backward, deterministic)[0]
    return out


def _forward(
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
    reason = _why_not_gluon(q, k, v)
    if differentiable:
        _is_gluon("backward", backward, reason)  # refused before anything is computed
    asked: dict[str, Any] = {"causal": causal, "scale": scale, "checked": True}
    if _is_gluon("forward", forward, reason):
        if differentiable:
            return gluon_forward_with_lse(q, k, v, **asked)
        out = gluon_forward(q, k, v, **asked)
    elif differentiable:
        return flash_forward_with_lse(q, k, v, tf32=tf32, **asked)
    else:
        out = flash_forward(q, k, v, tf32=tf32, **asked)
    return out, q.new_empty(0, dtype=lse_dtype(q.dtype))


def _why_not_gluon(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> ImportError | ValueError | None:
    """Return why the kernels in Gluon do not take tensors that `check` accepts, or None."""
    if _WITHOUT_GLUON:
        return _WITHOUT_GLUON
    reason = unsupported(q, k, v)
    return ValueError(reason) if reason else None


def _is_gluon(which: str, asked: str | None, reason: ImportError | ValueError | None) -> bool:
    """Say whether the kernel of a pass is the one in Gluon; by default it is where no reason is against it."""
    if asked not in (None, "gluon", "triton"):
        raise ValueError(f"{which} must be 'gluon', 'triton' or None, got {asked!r}")
    if asked == "gluon" and reason:
        raise reason
    return asked != "triton" and not reason


def _fake_forward(
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


def _backward(
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
    check(q, k, v, causal=causal, scale=scale)
    check_gradient(dout, q, out, lse)
    asked: dict[str, Any] = {"causal": causal, "scale": scale, "of_q": of_q, "of_kv": of_kv, "checked": True}
    if _is_gluon("backward", backward, _why_not_gluon(q, k, v)):
        deterministic |= torch.are_deterministic_algorithms_enabled()  # read when it runs, as torch does
        gradients = gluon_backward(dout, q, k, v, out, lse, deterministic=deterministic, **asked)
    else:
        gradients = flash_backward(dout, q, k, v, out, lse, tf32=tf32, **asked)
    return [gradient for gradient in gradients if gradient is not None]


def _fake_backward(
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


def _operator(name: str, kernel: Any, fake: Any) -> Any:
    """Return a new operator of torch."""
    schema = name + torch.library.infer_schema(kernel, mutates_args=())
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, _NAMESPACE), name).default


_FORWARD = _operator("flash_attention", _forward, _fake_forward)
_BACKWARD = _operator("flash_attention_backward", _backward, _fake_backward)


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """The gradient of the forward operator; its log-sum-exp has none."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        *tensors, ctx.causal, ctx.scale, ctx.tf32, _, _, ctx.backward, ctx.deterministic = inputs
        out, lse = _without_gradient(*inputs)
        ctx.save_for_backward(*tensors, out, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # zeros in place of a gradient of lse
        return out, lse

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dout: torch.Tensor | None, _: object) -> tuple[torch.Tensor | None, ...]:
        if dout is None:  # zero
            return (None,) * 10
        of_q, of_k, of_v = ctx.needs_input_grad[:3]
        asked = (ctx.causal, ctx.scale, ctx.tf32, of_q, of_k or of_v, ctx.backward, ctx.deterministic)
        gradients = iter(_BACKWARD(dout, *ctx.saved_tensors, *asked))
        dq = next(gradients) if of_q else None
        dk, dv = gradients if of_k or of_v else (None, None)
        return dq, dk if of_k else None, dv if of_v else None, *[None] * 7


def _with_gradient(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs[:3]):
        result: tuple[torch.Tensor, torch.Tensor] = _Attention.apply(*inputs)
        return result
    return _without_gradient(*inputs)


def _without_gradient(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        result: tuple[torch.Tensor, torch.Tensor] = _FORWARD(*inputs)
    return result


_LIBRARY.impl("flash_attention", _with_gradient, "Autograd")
