"""FlexAttention without a mask or a score modification (torch.nn.attention.flex_attention).

`flex` compiles flex_attention itself and is called from eager code, as its documentation prescribes; the compiled forms
compile the whole call. `flex_eager` leaves the compilation out and so runs no fused kernel at all: what one gets by
forgetting it. Exact. Runs on compute capability 8.0 or newer and, where a C++ compiler is installed, on a CPU.
"""

from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(8, 0), cpu=True)


def load(*, compiled: bool, causal: bool = False, **options: object) -> _base.Attention:
    """Return FlexAttention on views in [batch, heads, seq_len, head_dim]; `options` are its own keywords."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    kernel = torch.compile(flex_attention, fullgraph=True, dynamic=False) if compiled else flex_attention

    def attend(q: Any, k: Any, v: Any) -> Any:
        if causal:
            options["block_mask"] = create_block_mask(
                lambda b, h, q_index, k_index: q_index >= k_index, None, None, q.shape[1], k.shape[1], q.device
            )
        return kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options).transpose(1, 2).contiguous()

    return attend


def _capabilities(*, compiled: bool) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        head_dims=_base.HEAD_DIMS,
        minimum=None,
        causal=lambda: load(compiled=compiled, causal=True),
        gqa=lambda: load(compiled=compiled, enable_gqa=True),
        backward=lambda: load(compiled=compiled),
        varlen=True,  # by a mask over documents
    )


VARIANT = _base.Variant(
    name="flex",
    load=lambda: load(compiled=True),
    supports=supports,
    capabilities=_capabilities(compiled=True),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"triton_.*flex",
    compiles=True,
)
UNFUSED = _base.Variant(
    name="flex_eager",
    load=lambda: load(compiled=False),
    supports=supports,
    capabilities=_capabilities(compiled=False),
)
