"""xFormers' memory_efficient_attention, with the operator that it chooses.

Exact. xFormers dispatches: 0.0.35 has no attention kernel of its own for NVIDIA GPUs before Blackwell, and calls those
of flash-attn, or torch's own (an operator whose name ends in "-pt"). Its record says which operator it took.
Runs on compute capability 8.0 or newer, where its C++ extension was built for the torch that is here.
"""

import re
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base

_called: dict[str, Any] = {}  # shape, dtype and device of the latest queries


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    if workload.causal:
        return "xFormers is measured without a causal mask"
    if workload.kv_heads != workload.heads:
        return f"xFormers is measured with kv_heads equal to heads, got {workload.kv_heads} and {workload.heads}"
    return _base.needs(device, workload, minimum=(8, 0), dtypes=("bfloat16", "float16"))


def load(*, causal: bool = False, lengths: tuple[int, ...] = ()) -> _base.Attention:
    """Return the attention. Raises `ImportError` where the C++ extension does not load, which xFormers only logs."""
    from xformers import _cpp_lib, ops
    from xformers.ops.fmha import attn_bias

    failure = _cpp_lib._cpp_library_load_exception
    if failure is not None:
        words = re.split(r" Python | Please ", " ".join(str(failure).split()))[0]
        raise ImportError(f"{words}; install the xformers that was built for this torch")
    bias = ops.LowerTriangularMask() if causal else None
    if lengths:
        bias = attn_bias.BlockDiagonalMask.from_seqlens(list(lengths))

    def attend(q: Any, k: Any, v: Any) -> Any:
        _called.update(size=tuple(q.shape), dtype=q.dtype, device=q.device)
        try:
            return ops.memory_efficient_attention(q, k, v, attn_bias=bias)
        except NotImplementedError as error:
            raise NotImplementedError(_sentence(str(error))) from error

    return attend


def load_gqa() -> _base.Attention:
    """Return the attention for grouped heads, which are a dimension of their own: [batch, seq_len, groups, ...]."""
    attention = load()

    def attend(q: Any, k: Any, v: Any) -> Any:
        groups = (k.shape[2], q.shape[2] // k.shape[2])
        k, v = (x.unsqueeze(3).expand(*x.shape[:2], *groups, x.shape[3]) for x in (k, v))
        return attention(q.unflatten(2, groups), k, v).flatten(2, 3)

    return attend


def operator() -> str | None:
    """Return the operator that xFormers takes for the latest queries, such as "fa2F@2.8.3"."""
    import torch
    from xformers.ops.fmha import dispatch
    from xformers.ops.fmha.common import Inputs

    if not _called:
        return None
    q = torch.empty(**_called)
    return str(dispatch._dispatch_fw(Inputs(query=q, key=q, value=q), False).NAME)


def _sentence(refusal: str) -> str:
    """Return xFormers' list of operators and why each is not for these inputs as one sentence."""
    reasons = re.findall(r"`(\S+)` is not supported because:\n\s*(.+)", refusal)
    return "xFormers has no operator for these inputs: " + ", ".join(f"{name}: {reason}" for name, reason in reasons)


VARIANT = _base.Variant(
    name="xformers",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: load(causal=True),
        gqa=load_gqa,
        backward=load,
        varlen=lambda lengths: load(lengths=lengths),
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"flash|fmha_cutlassF",
    detail=operator,
    note="a dispatcher: it calls the kernels of flash-attn or of torch",
    packages=("torch", "xformers"),
)
