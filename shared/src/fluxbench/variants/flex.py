"""FlexAttention without a mask or a score modification (torch.nn.attention.flex_attention).

`flex` compiles flex_attention itself and is called from eager code, as its documentation prescribes; the compiled forms
compile the whole call. `flex_eager` leaves the compilation out and so runs no fused kernel at all: what one gets by
forgetting it. Exact. Runs on compute capability 8.0 or newer and, where a C++ compiler is installed, on a CPU.
"""

from typing import Any

from fluxbench.hardware import Device
from fluxbench.variants import _base
from fluxbench.workloads import Workload


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(8, 0), cpu=True)


def load(*, compiled: bool) -> _base.Attention:
    """Return FlexAttention on views in [batch, heads, seq_len, head_dim]."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    kernel = torch.compile(flex_attention, fullgraph=True, dynamic=False) if compiled else flex_attention

    def attend(q: Any, k: Any, v: Any) -> Any:
        return kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).contiguous()

    return attend


VARIANT = _base.Variant(
    name="flex",
    load=lambda: load(compiled=True),
    supports=supports,
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"triton_.*flex",
    compiles=True,
)
UNFUSED = _base.Variant(name="flex_eager", load=lambda: load(compiled=False), supports=supports)
