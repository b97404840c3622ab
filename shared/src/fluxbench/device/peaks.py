"""Peak rates of known NVIDIA GPUs, each with its source. An unknown device has no peak: None, never zero.

TFLOPS are dense tensor-core rates with float32 accumulation. NVIDIA's datasheets of data-centre GPUs print rates
"with sparsity"; these are halved here. Each bf16 rate agrees with `SMs * clock * operations per SM and clock`, where
that last factor is 512 on GeForce and A10G, 1024 on L4 and L40S, 2048 on A100, 4096 on Hopper, 8192 on B200.

Datasheets assume a boost clock that a card may exceed: an H200's 989.5 TFLOPS are 132 SMs at 1,830 MHz, and it runs at
up to 1,980 MHz. What a card cannot exceed is `Limits`: the widths of the chip at the highest clocks that it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fluxbench.device.model import Device

_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the chip does in a clock cycle at most, and its highest clocks: no kernel exceeds their product.

    Operations are of all tensor cores of an SM, dense, with whatever accumulator is fastest. The 16-bit ones are twice
    the bf16 factor above where float32 accumulation runs at half rate (GeForce, A10G). The narrow ones are of the
    fastest format of 8 or 4 bits that the chip has. NVIDIA's architecture whitepapers (GA100, GA102, Ada, Hopper,
    Blackwell, RTX Blackwell) print rates of whole cards; the factors are these over SMs and boost clock. The clocks are
    the highest that NVML reports, and count where a device does not say its own. The memory's data rate is twice its
    clock, for every kind of memory here.
    """

    sms: int
    ops_16bit: int  # per SM and clock
    ops_narrow: int  # per SM and clock
    memory_bits: int  # width of the memory's bus
    sm_clock_mhz: int
    memory_clock_mhz: int

    def tflops(self, *, narrow: bool = False, sm_clock_mhz: int | None = None) -> float:
        """Return the most operations in 10**12 a second, of 16-bit or of narrower formats."""
        ops = self.ops_narrow if narrow else self.ops_16bit
        return self.sms * ops * (sm_clock_mhz or self.sm_clock_mhz) / 1e6

    def gb_s(self, memory_clock_mhz: int | None = None) -> float:
        """Return the most that the memory moves, in 10**9 bytes a second."""
        return self.memory_bits / 8 * 2 * (memory_clock_mhz or self.memory_clock_mhz) / 1e3


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The rates that a device cannot exceed at the clocks its datasheet assumes, and its limits at any clock."""

    bf16_tflops: float  # dense, float32 accumulation
    fp8_tflops: float | None  # the same in fp8; None where the device has none
    memory_gb_s: float  # 10**9 bytes a second
    l2_bytes: int
    source: str
    limits: Limits


def _limits(sms: int, ops_16bit: int, ops_narrow: int, memory_bits: int, clocks_mhz: tuple[int, int]) -> Limits:
    return Limits(
        sms=sms,
        ops_16bit=ops_16bit,
        ops_narrow=ops_narrow,
        memory_bits=memory_bits,
        sm_clock_mhz=clocks_mhz[0],
        memory_clock_mhz=clocks_mhz[1],
    )


def _a100(memory_gb_s: float, memory_clock_mhz: int, column: str) -> Peak:
    return Peak(
        bf16_tflops=312.0,
        fp8_tflops=None,
        memory_gb_s=memory_gb_s,
        l2_bytes=40 * _MIB,
        source=f"NVIDIA A100 Tensor Core GPU datasheet, {column}: BFLOAT16 312 TFLOPS without sparsity, "
        f"{memory_gb_s:,.0f} GB/s; L2 40 MB: NVIDIA A100 architecture whitepaper",
        limits=_limits(108, 2048, 8192, 5120, (1410, memory_clock_mhz)),
    )


_ADA = "NVIDIA Ada GPU Architecture whitepaper v2, appendix A"

# Highest clocks: Amazon EC2's user guide, "Optimize GPU settings", sets them on A10G, L4, L40S, A100, H100 SXM, H200
# and B200; those of H100 PCIe, H200 NVL, RTX 4090 and RTX 5090 are as users report them from nvidia-smi. Memory clocks
# agree with the bandwidth of the datasheet, but on the H200: 4,917 for 4,800 GB/s.
# The name as NVML reports it, less "NVIDIA " (older drivers leave that out) -> nominal memory in GiB and the peak.
_PEAKS: dict[str, tuple[int, Peak]] = {
    "A100-SXM4-40GB": (40, _a100(1555.0, 1215, "A100 40GB SXM")),
    "A100-PCIE-40GB": (40, _a100(1555.0, 1215, "A100 40GB PCIe")),
    "A100-SXM4-80GB": (80, _a100(2039.0, 1593, "A100 80GB SXM")),
    "A100 80GB PCIe": (80, _a100(1935.0, 1512, "A100 80GB PCIe")),
    "A10G": (
        24,
        Peak(
            bf16_tflops=70.0,
            fp8_tflops=None,
            memory_gb_s=600.0,
            l2_bytes=6 * _MIB,
            source="NVIDIA A10G datasheet (for AWS): BFLOAT16 70 TFLOPS, 140 with sparsity, 600 GB/s; "
            "L2 6 MB: NVIDIA GA102 architecture whitepaper",
            limits=_limits(80, 1024, 4096, 384, (1710, 6251)),
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
            limits=_limits(58, 1024, 4096, 192, (2040, 6251)),
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
            limits=_limits(142, 1024, 4096, 384, (2520, 9001)),
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
            limits=_limits(132, 4096, 8192, 5120, (1980, 2619)),
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
            limits=_limits(114, 4096, 8192, 5120, (1755, 1593)),
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
            limits=_limits(132, 4096, 8192, 6144, (1980, 3201)),
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
            limits=_limits(132, 4096, 8192, 6144, (1785, 3201)),
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
            limits=_limits(148, 8192, 32768, 7680, (1965, 3996)),
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
            limits=_limits(128, 1024, 4096, 384, (3165, 10501)),
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
            limits=_limits(170, 1024, 4096, 512, (3090, 14001)),
        ),
    ),
}
# What a card is also called, beside the words of its name and its memory.
_ALSO = {
    "A100-SXM4-40GB": "sxm",
    "A100-SXM4-80GB": "sxm",
    "H100 80GB HBM3": "sxm sxm5",
    "H200": "sxm sxm5",
    "B200": "sxm sxm6 hgx 192gb",
}
_NO_MODEL = {"nvidia", "geforce", "tesla", "tensor", "core", "gpu"}
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


def by_name(name: str) -> Peak | None:
    """Return the peak of the card that a table calls so: "A100-80GB", "H200"; None where it is none that is known.

    Every word must be one of the card's: of its NVML name, its memory ("80GB") or its form ("SXM"). Of several cards
    that fit, it is the one that computes fastest, here the one with the fastest memory too: none is held to too little.
    """
    words = set(re.findall(r"[a-z0-9]+", name.lower())) - _NO_MODEL
    found = []
    for known, (memory_gib, rates) in _PEAKS.items():
        parts = re.findall(r"[a-z0-9]+", known.lower())
        model = next(part for part in parts if re.search(r"\d", part))
        if model in words and words <= {*parts, f"{memory_gib}gb", *_ALSO.get(known, "").split()}:
            found.append(rates)
    return max(found, key=lambda rates: (rates.limits.tflops(), rates.limits.gb_s()), default=None)
