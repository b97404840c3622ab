"""Our own forward flash attention in Triton (`fluxbench.kernels.flash_forward`), of fluxbench's own version.

Numerics: exact; matrix products of 16-bit operands into float32, softmax in float32, in base 2; the weights are
rounded to the inputs' dtype before they meet V.
Runs on NVIDIA GPUs of compute capability 8.0 and newer, bfloat16 and float16, head_dim 64 and 128, not causal.
"""

from __future__ import annotations

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants._base import Attention, Capabilities, Variant


def supports(device: Device, workload: Workload) -> str | None:
    """Return why triton_flash cannot run the workload on the device, or None."""
    if device.kind != "cuda" or device.compute_capability is None or device.compute_capability < (8, 0):
        return f"triton_flash needs an NVIDIA GPU of compute capability 8.0 or newer, got {device.name}"
    if workload.dtype not in ("bfloat16", "float16"):
        return f"triton_flash takes bfloat16 and float16, got {workload.dtype}"
    if workload.head_dim not in (64, 128):
        return f"triton_flash takes head_dim 64 and 128, got {workload.head_dim}"
    if workload.causal:
        return "triton_flash has no causal mask"
    if workload.direction != "forward":
        return f"triton_flash has a forward pass only, got {workload.direction}"
    return None


def load() -> Attention:
    """Import the kernel and return `attention(q, k, v)`."""
    from fluxbench.kernels.flash_forward import flash_forward

    return flash_forward


VARIANT = Variant(
    name="triton_flash",
    load=load,
    supports=supports,
    capabilities=Capabilities(dtypes=("bfloat16", "float16"), head_dims=(64, 128), minimum=(8, 0), gqa=load),
    jit=True,
    kernel_pattern=r"^flash_forward_kernel$",
    packages=("torch", "triton"),
)
