"""xFormers' memory_efficient_attention, with the operator that it chooses.

Exact. xFormers dispatches: 0.0.35 has no attention kernel of its own for NVIDIA GPUs before Blackwell, and calls those
of flash-attn, or torch's own (an operator whose name ends in "-pt"). Its record says which operator it took.
Runs on compute capability 8.0 or newer, where its C++ extension was built for the torch that is here.
"""

import re
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms

_latest: dict[str, Any] = {}  # the call that was loaded, and the device that it ran on


def refuses(device: Device, call: AttentionCall) -> str | None:
    """Return why it cannot run although its capabilities do not exclude it, or None."""
    return "xFormers has grouped heads in its forward pass alone" if call.grouped and call.backward else None


def load(call: AttentionCall) -> Attention:
    """Return the attention. Raises `ImportError` where the C++ extension does not load, which xFormers only logs.

    Grouped heads are a dimension of their own: [batch, seq_len, groups, heads of a group, head_dim].
    """
    from xformers import _cpp_lib, ops

    failure = _cpp_lib._cpp_library_load_exception
    if failure is not None:
        words = re.split(r" Python | Please ", " ".join(str(failure).split()))[0]
        raise ImportError(f"{words}; install the xformers that was built for this torch")
    bias = _bias(call)
    _latest.clear()
    _latest["call"] = call

    def attend(q: Any, k: Any, v: Any) -> Any:
        _latest["device"] = q.device
        try:
            return ops.memory_efficient_attention(*_in_groups(call, q, k, v), attn_bias=bias).reshape(q.shape)
        except NotImplementedError as error:
            raise NotImplementedError(_sentence(str(error))) from error

    return attend


def _bias(call: AttentionCall) -> Any:
    from xformers import ops
    from xformers.ops.fmha import attn_bias

    if call.lengths:
        bias = attn_bias.BlockDiagonalMask.from_seqlens(list(call.lengths))
        return bias.make_causal() if call.causal else bias
    return ops.LowerTriangularMask() if call.causal else None


def _in_groups(call: AttentionCall, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    if not call.grouped:
        return q, k, v
    groups = (call.kv_heads, call.heads // call.kv_heads)
    k, v = (x.unsqueeze(3).expand(*x.shape[:2], *groups, x.shape[3]) for x in (k, v))
    return q.unflatten(2, groups), k, v


def operator() -> str | None:
    """Return the operator that xFormers takes for the latest call, such as "fa2F@2.8.3"."""
    import torch
    from xformers.ops.fmha import dispatch
    from xformers.ops.fmha.common import Inputs

    if "device" not in _latest:
        return None
    call, options = _latest["call"], {"device": _latest["device"]}
    options["dtype"] = getattr(torch, call.dtype)
    q = torch.empty(call.batch, call.seq_len_q, call.heads, call.head_dim_qk, **options)
    k = torch.empty(call.batch, call.seq_len_k, call.kv_heads, call.head_dim_qk, **options)
    query, key, value = _in_groups(call, q, k, k)
    inputs = Inputs(query=query, key=key, value=value, attn_bias=_bias(call))
    return str(dispatch._dispatch_fw(inputs, call.backward).NAME)


def _sentence(refusal: str) -> str:
    """Return xFormers' list of operators and why each is not for these inputs as one sentence."""
    reasons = re.findall(r"`(\S+)` is not supported because:\n\s*(.+)", refusal)
    return "xFormers has no operator for these inputs: " + ", ".join(f"{name}: {reason}" for name, reason in reasons)


VARIANT = _base.Variant(
    name="xformers",
    diffusers="xformers",
    label="xFormers",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(8, 0),
        causal=_base.YES,
        gqa=_base.YES,
        backward=_base.YES,
        varlen=_base.YES,
    ),
    refuses=refuses,
    forms=forms.COMPILED,
    kernel_pattern=r"flash|fmha_cutlassF",
    backward_kernel_pattern=r"(?i)flash.*(bwd|bprop)|fmha_cutlassB",
    detail=operator,
    note="a dispatcher: it calls the kernels of flash-attn or of torch",
    packages=("torch", "xformers"),
)
