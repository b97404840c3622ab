"""torch's scaled_dot_product_attention with the backend that it picks by itself.

Exact. Runs everywhere. Which kernel it ran is in its record: that depends on the versions of torch and cuDNN.
"""

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(5, 0), cpu=True)


VARIANT = _base.Variant(
    name="torch_native",
    load=lambda: _base.sdpa(None),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32", "float64"),
        head_dims=_base.HEAD_DIMS,
        minimum=None,
        causal=lambda: _base.sdpa(None, is_causal=True),
        gqa=lambda: _base.sdpa(None, enable_gqa=True),
        backward=lambda: _base.sdpa(None),
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
)
