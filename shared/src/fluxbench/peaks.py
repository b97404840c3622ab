"""Peak rates of known NVIDIA GPUs, each with its source. An unknown device has no peak: None, never zero.

TFLOPS are dense tensor-core rates with float32 accumulation. NVIDIA's datasheets of data-centre GPUs print rates
"with sparsity"; these are halved here. Each bf16 rate agrees with `SMs * clock * operations per SM and clock`, where
that last factor is 512 on GeForce and A10G, 1024 on L4 and L40S, 2048 on A100, 4096 on Hopper.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.hardware import Device

_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The rates that a device cannot exceed at the clocks its datasheet assumes."""

    bf16_tflops: float  # dense, float32 accumulation
    fp8_tflops: float | None  # the same in fp8; None where the device has none
    memory_gb_s: float  # 10**9 bytes a second
    l2_bytes: int
    source: str


def _a100(memory_gb_s: float, column: str) -> Peak:
    return Peak(
        bf16_tflops=312.0,
        fp8_tflops=None,
        memory_gb_s=memory_gb_s,
        l2_bytes=40 * _MIB,
        source=f"NVIDIA A100 Tensor Core GPU datasheet, {column}: BFLOAT16 312 TFLOPS without sparsity, "
        f"{memory_gb_s:,.0f} GB/s; L2 40 MB: NVIDIA A100 architecture whitepaper",
    )


_ADA = "NVIDIA Ada GPU Architecture whitepaper v2, appendix A"

# The name as NVML reports it, less "NVIDIA " (older drivers leave that out) -> nominal memory in GiB and the peak.
_PEAKS: dict[str, tuple[int, Peak]] = {
    "A100-SXM4-40GB": (40, _a100(1555.0, "A100 40GB SXM")),
    "A100-PCIE-40GB": (40, _a100(1555.0, "A100 40GB PCIe")),
    "A100-SXM4-80GB": (80, _a100(2039.0, "A100 80GB SXM")),
    "A100 80GB PCIe": (80, _a100(1935.0, "A100 80GB PCIe")),
    "A10G": (
        24,
        Peak(
            bf16_tflops=70.0,
            fp8_tflops=None,
            memory_gb_s=600.0,
            l2_bytes=6 * _MIB,
            source="NVIDIA A10G datasheet (for AWS): BFLOAT16 70 TFLOPS, 140 with sparsity, 600 GB/s; "
            "L2 6 MB: NVIDIA GA102 architecture whitepaper",
        ),
    ),
    "L4": (
        24,
        Peak(
            bf16_tflops=121.0,
            fp8_tflops=242.5,
            memory_gb_s=300.0,
            l2_bytes=48 * _MIB,
            source="NVIDIA L4 Tensor Core GPU datasheet: BFLOAT16 242 and FP8 485 TFLOPS with sparsity, halved; "
            f"300 GB/s; L2 48 MB: {_ADA}, L4",
        ),
    ),
    "L40S": (
        48,
        Peak(
            bf16_tflops=362.05,
            fp8_tflops=733.0,
            memory_gb_s=864.0,
            l2_bytes=96 * _MIB,
            source="NVIDIA L40S datasheet: BFLOAT16 362.05 and FP8 733 TFLOPS without sparsity, 864 GB/s; "
            f"L2 96 MB: {_ADA}, L40, which is the same AD102 with 142 SMs",
        ),
    ),
    "H100 80GB HBM3": (
        80,
        Peak(
            bf16_tflops=989.4,
            fp8_tflops=1978.9,
            memory_gb_s=3350.0,
            l2_bytes=50 * _MIB,
            source="NVIDIA H100 architecture whitepaper, H100 SXM5: BF16 989.4 and FP8 1,978.9 TFLOPS dense, "
            "L2 50 MB; NVIDIA H100 datasheet: 3.35 TB/s",
        ),
    ),
    "H100 PCIe": (
        80,
        Peak(
            bf16_tflops=756.0,
            fp8_tflops=1513.0,
            memory_gb_s=2039.0,
            l2_bytes=50 * _MIB,
            source="NVIDIA H100 datasheet, H100 PCIe: BFLOAT16 1,513 and FP8 3,026 TFLOPS with sparsity, halved; "
            "2 TB/s, which is 5120 bit at 1,593 MHz; L2 50 MB: NVIDIA H100 architecture whitepaper",
        ),
    ),
    "H200": (
        141,
        Peak(
            bf16_tflops=989.5,
            fp8_tflops=1979.0,
            memory_gb_s=4800.0,
            l2_bytes=60 * _MIB,
            source="NVIDIA H200 Tensor Core GPU datasheet, H200 SXM: BFLOAT16 1,979 and FP8 3,958 TFLOPS with "
            "sparsity, halved; 4.8 TB/s; L2 60 MB: torch.cuda.get_device_properties, read on an H200",
        ),
    ),
    "H200 NVL": (
        141,
        Peak(
            bf16_tflops=835.5,
            fp8_tflops=1670.5,
            memory_gb_s=4800.0,
            l2_bytes=60 * _MIB,
            source="NVIDIA H200 Tensor Core GPU datasheet, H200 NVL: BFLOAT16 1,671 and FP8 3,341 TFLOPS with "
            "sparsity, halved; 4.8 TB/s; L2 taken to be that of the H200 SXM, with the same six memory stacks",
        ),
    ),
    "B200": (
        180,
        Peak(
            bf16_tflops=2250.0,
            fp8_tflops=4500.0,
            memory_gb_s=7672.0,
            l2_bytes=int(126.5 * _MIB),
            source="NVIDIA Blackwell architecture technical brief, HGX B200 at 1,000 W: BF16 4.5 and FP8 9 PFLOPS "
            "with sparsity, halved; memory (7680 bit at 3,996 MHz, under the 8 TB/s that the brief prints) and "
            "L2 as the driver reports them: pytorch/ao pull request 4002",
        ),
    ),
    "GeForce RTX 4090": (
        24,
        Peak(
            bf16_tflops=165.2,
            fp8_tflops=330.3,
            memory_gb_s=1008.0,
            l2_bytes=72 * _MIB,
            source=f"{_ADA}, GeForce RTX 4090: peak BF16 and FP8 tensor TFLOPS with FP32 accumulate, without sparsity; "
            "1,008 GB/s; L2 73,728 KB",
        ),
    ),
    "GeForce RTX 5090": (
        32,
        Peak(
            bf16_tflops=209.5,
            fp8_tflops=419.0,
            memory_gb_s=1792.0,
            l2_bytes=96 * _MIB,
            source="NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A, GeForce RTX 5090: peak BF16 and "
            "FP8 tensor TFLOPS with FP32 accumulate, without sparsity; 1,792 GB/s; L2 98,304 KB",
        ),
    ),
}
# NVML reports less than the nominal size (ECC, reserved pages): 44.99 of 48 GiB on an L40S.
_MEMORY_TOLERANCE = 0.1


def peak(device: Device) -> Peak | None:
    """Return the device's peak rates; None for an unknown device, a MIG slice, or a card with another memory size.

    The name must match in full, so that a laptop part or an "RTX 4090 D" is not taken for the desktop card.
    """
    known = _PEAKS.get(device.name.removeprefix("NVIDIA "))
    if device.kind != "cuda" or device.mig or known is None:
        return None
    memory_gib, rates = known
    if device.memory_bytes is None:
        return rates
    return rates if abs(device.memory_bytes / _GIB / memory_gib - 1) <= _MEMORY_TOLERANCE else None
