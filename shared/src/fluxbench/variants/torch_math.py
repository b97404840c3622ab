"""torch's unfused math backend of scaled_dot_product_attention: two matrix products and a softmax.

Exact: bfloat16 and float16 inputs are computed in float32 (torch's default), so it is slow and precise, and it holds
all scores in memory. Runs everywhere. Its `_copy` form is left out: the copies vanish beside the rest.
"""

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(5, 0), cpu=True)


VARIANT = _base.Variant(
    name="torch_math",
    load=lambda: _base.sdpa("MATH"),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32", "float64"),
        head_dims=_base.HEAD_DIMS,
        minimum=None,
        causal=lambda: _base.sdpa("MATH", is_causal=True),
        gqa=lambda: _base.sdpa("MATH", enable_gqa=True),
        backward=lambda: _base.sdpa("MATH"),
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
)
