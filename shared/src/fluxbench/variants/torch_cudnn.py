"""cuDNN's fused attention, through torch's scaled_dot_product_attention.

Exact: probabilities are rounded to the inputs' dtype before the second product, sums are float32. Runs on NVIDIA GPUs
of compute capability 8.0 or newer, with the cuDNN that torch was installed with.
"""

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(8, 0), dtypes=("bfloat16", "float16"))


VARIANT = _base.Variant(
    name="torch_cudnn",
    load=lambda: _base.sdpa("CUDNN_ATTENTION"),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: _base.sdpa("CUDNN_ATTENTION", is_causal=True),
        gqa=lambda: _base.sdpa("CUDNN_ATTENTION", enable_gqa=True),
        backward=lambda: _base.sdpa("CUDNN_ATTENTION"),
    ),
    forms=_base.EVERY_FORM,
    kernel_pattern=r"cudnn",
)
