"""Which device of a machine is used, and what is known of AMD's, Intel's and Apple's and of the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import gpu, write

from fluxbench.device.detect import detect
from fluxbench.device.model import Device

NODES = "sys/class/kfd/kfd/topology/nodes"
GIB = 2**30


def add_pci(root: Path, vendor: str, slot: str = "0000:41:00.0", driver: str | None = None) -> None:
    card = root / "sys/bus/pci/devices" / slot
    write(card / "vendor", f"{vendor}\n")
    write(card / "class", "0x030200\n")
    write(card / "device", "0xe20b\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (card / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def add_kfd(root: Path, node: int, gib: float, simds: int = 1216, vendor: int = 4098, version: int = 90402) -> None:
    facts = f"cpu_cores_count 0\nsimd_count {simds}\nvendor_id {vendor}\ngfx_target_version {version}\n"
    write(root / NODES / str(node) / "properties", facts)
    for bank in range(2):
        heap = f"heap_type 1\nsize_in_bytes {int(gib * GIB) // 2}\n"
        write(root / NODES / f"{node}/mem_banks/{bank}/properties", heap)


def test_a_machine_without_a_gpu_is_its_cpu(linux: Path) -> None:
    write(linux / "proc/cpuinfo", "model name : AMD EPYC 9654\nflags : fpu avx2 avx512f avx512_bf16 amx_bf16 sse2\n")
    write(linux / "proc/meminfo", "MemTotal:       24684100 kB\n")
    assert detect() == Device(
        kind="cpu",
        name="AMD EPYC 9654",
        memory_bytes=24684100 * 1024,
        cores=len(os.sched_getaffinity(0)),
        instruction_sets=("avx2", "avx512f", "avx512_bf16", "amx_bf16"),
        cpu="AMD EPYC 9654",
        os="Linux 6.18 x86_64",
    )


@pytest.mark.parametrize(("part", "name"), [("0xd4f", "Arm Neoverse-V2"), ("0xfff", "Arm implementer 0x41 part 0xfff")])
def test_an_arm_cpu_is_named_by_its_part(linux: Path, part: str, name: str) -> None:
    features = "fp asimd neon sve sve2 i8mm bf16"
    write(linux / "proc/cpuinfo", f"Features\t: {features}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n")
    device = detect()
    assert (device.name, device.cpu) == (name, name)
    assert device.instruction_sets == ("neon", "i8mm", "bf16", "sve", "sve2")


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
@pytest.mark.parametrize(("limit", "memory_bytes"), [("512000", 512000), ("max", 1024000000), (2**62, 1024000000)])
def test_the_limit_of_the_cgroup_bounds_the_memory(linux: Path, file: str, limit: str | int, memory_bytes: int) -> None:
    write(linux / "proc/meminfo", "MemTotal:       1000000 kB\n")
    write(linux / "sys/fs/cgroup" / file, f"{limit}\n")
    assert detect().memory_bytes == memory_bytes


def test_an_instinct_is_recognised_from_the_kfd_topology(linux: Path) -> None:
    write(linux / "proc/cpuinfo", "model name : AMD EPYC 9654\n")
    add_kfd(linux, 0, 0, simds=0, vendor=0)
    add_kfd(linux, 1, 192)
    add_kfd(linux, 2, 192)
    write(linux / "sys/module/amdgpu/version", "6.12.12\n")
    assert detect() == Device(
        kind="rocm",
        name="AMD gfx942",
        driver="6.12.12",
        memory_bytes=192 * GIB,
        count=2,
        cpu="AMD EPYC 9654",
        os="Linux 6.18 x86_64",
    )
    write(linux / "sys/class/drm/card1/device/product_name", "AMD Instinct MI300X OAM\n")
    assert detect().name == "AMD Instinct MI300X OAM"


@pytest.mark.parametrize("changed", [{"gib": 3.9}, {"simds": 0}, {"vendor": 4318}])
def test_what_is_no_discrete_amd_gpu_is_not_used(linux: Path, changed: dict[str, int]) -> None:
    add_kfd(linux, 1, **{"gib": 16, **changed})
    assert (detect().kind, detect().note) == ("cpu", None)


def test_a_discrete_intel_gpu_is_an_xpu(linux: Path) -> None:
    add_pci(linux, "0x8086", slot="0000:00:02.0", driver="i915")
    add_pci(linux, "0x8086", driver="xe")
    device = detect()
    assert (device.kind, device.name, device.driver, device.count) == ("xpu", "Intel GPU e20b", "xe", 1)


def test_gpus_of_three_vendors_are_used_in_order_and_others_are_noted(linux: Path, nvml: Callable[..., None]) -> None:
    add_pci(linux, "0x8086", driver="xe")
    assert detect().kind == "xpu"
    add_kfd(linux, 1, 16)
    assert detect().kind == "rocm"
    add_pci(linux, "0x10de", slot="0000:61:00.0")
    device = detect()
    assert device.kind == "rocm"
    assert device.note == (
        "an NVIDIA GPU is present but its driver does not answer: NVML Shared Library Not Found; "
        "everything runs on the CPU"
    )
    nvml(gpu())
    assert (detect().kind, detect().note) == ("cuda", None)
