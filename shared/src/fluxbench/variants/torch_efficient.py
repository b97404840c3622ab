"""torch's memory-efficient backend of scaled_dot_product_attention.

Wraps the CUTLASS kernel that torch took from xFormers. Exact. Runs on NVIDIA GPUs of compute capability 5.0 or newer
(bfloat16 from 8.0).
"""

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    minimum = (8, 0) if workload.dtype == "bfloat16" else (5, 0)
    return _base.needs(device, workload, minimum=minimum)


VARIANT = _base.Variant(
    name="torch_efficient",
    load=lambda: _base.sdpa("EFFICIENT_ATTENTION"),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        head_dims=_base.HEAD_DIMS,
        minimum=(5, 0),
        causal=lambda: _base.sdpa("EFFICIENT_ATTENTION", is_causal=True),
        backward=lambda: _base.sdpa("EFFICIENT_ATTENTION"),
    ),
    forms=_base.EVERY_FORM,
    kernel_pattern=r"fmha_cutlassF",
)
