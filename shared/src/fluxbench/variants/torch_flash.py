"""torch's flash-attention backend of scaled_dot_product_attention: the reference of every ratio.

Wraps the FlashAttention-2 that torch carries (on a CPU, torch's own blocked kernel). Exact: probabilities are rounded
to the inputs' dtype before the second product, sums are float32. Runs on a CPU, and on compute capability 8.0 or newer.
"""

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(8, 0), dtypes=("bfloat16", "float16"), cpu=True)


VARIANT = _base.Variant(
    name="torch_flash",
    load=lambda: _base.sdpa("FLASH_ATTENTION"),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=None,
        causal=lambda: _base.sdpa("FLASH_ATTENTION", is_causal=True),
        gqa=lambda: _base.sdpa("FLASH_ATTENTION", enable_gqa=True),
        backward=lambda: _base.sdpa("FLASH_ATTENTION"),
    ),
    forms=_base.EVERY_FORM,
    kernel_pattern=r"flash_fwd",
)
