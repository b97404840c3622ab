"""Which device of a machine is used, and what is known of AMD's, Intel's and Apple's and of the CPU."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import NVMLError, gpu, write

from fluxbench.device.detect import detect
from fluxbench.device.model import Device

NODES = "sys/class/kfd/kfd/topology/nodes"
GIB = 2**30


def add_pci(
    root: Path, vendor: str, slot: str = "0000:41:00.0", driver: str | None = None, kind: str = "030200"
) -> None:
    card = root / "sys/bus/pci/devices" / slot
    write(card / "vendor", f"{vendor}\n")
    write(card / "class", f"0x{kind}\n")
    write(card / "device", "0xe20b\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (card / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def add_kfd(root: Path, node: int, gib: float, simds: int = 1216, vendor: int = 4098, version: int = 90402) -> None:
    facts = f"cpu_cores_count 0\nsimd_count {simds}\nvendor_id {vendor}\ngfx_target_version {version}\n"
    write(root / NODES / str(node) / "properties", facts)
    for bank in range(2):
        write(
            root / NODES / f"{node}/mem_banks/{bank}/properties", f"heap_type 1\nsize_in_bytes {int(gib * GIB) // 2}\n"
        )


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


def test_a_cpu_that_says_nothing_is_named_by_its_architecture() -> None:
    device = detect()
    assert (device.name, device.cpu, device.memory_bytes, device.instruction_sets) == ("x86_64", None, None, ())


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
@pytest.mark.parametrize(
    ("limit", "memory_bytes"), [("512000000", 512000000), ("max", 1024000000), (str(2**62), 1024000000)]
)
def test_the_limit_of_the_cgroup_bounds_the_memory(linux: Path, file: str, limit: str, memory_bytes: int) -> None:
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


def test_the_stepping_of_a_gfx_name_is_hexadecimal(linux: Path) -> None:
    add_kfd(linux, 1, 4.1, version=90010)
    assert detect().name == "AMD gfx90a"


@pytest.mark.parametrize("changed", [{"gib": 3.9}, {"simds": 0}, {"vendor": 4318}])
def test_what_is_no_discrete_amd_gpu_is_not_used(linux: Path, changed: dict[str, int]) -> None:
    add_kfd(linux, 1, **{"gib": 16, **changed})
    assert (detect().kind, detect().note) == ("cpu", None)


def test_a_discrete_intel_gpu_is_an_xpu(linux: Path) -> None:
    add_pci(linux, "0x8086", slot="0000:00:02.0", driver="i915")
    add_pci(linux, "0x8086", driver="xe")
    device = detect()
    assert (device.kind, device.name, device.driver, device.count) == ("xpu", "Intel GPU e20b", "xe", 1)


@pytest.mark.parametrize("place", [{"slot": "0000:00:02.0", "driver": "i915"}, {"driver": "vfio-pci"}, {}])
def test_an_intel_gpu_that_is_integrated_or_has_no_driver_is_noted(linux: Path, place: dict[str, str]) -> None:
    add_pci(linux, "0x8086", **place)
    device = detect()
    assert device.kind == "cpu"
    assert device.note == "an Intel GPU is present, integrated or without its driver, and not used"


def test_a_network_card_is_no_display(linux: Path) -> None:
    add_pci(linux, "0x8086", kind="020000")
    assert detect().note is None


@pytest.mark.parametrize(
    ("brand", "memory", "name", "memory_bytes"),
    [("Apple M3 Max\n", "68719476736\n", "Apple M3 Max", 2**36), ("", "", "Apple GPU", None)],
)
def test_apple_silicon_is_mps(
    monkeypatch: pytest.MonkeyPatch, brand: str, memory: str, name: str, memory_bytes: int | None
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    answers = {("sysctl", "-n", "machdep.cpu.brand_string"): brand, ("sysctl", "-n", "hw.memsize"): memory}
    monkeypatch.setattr(subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command]))
    device = detect()
    assert (device.kind, device.name, device.memory_bytes, device.os) == ("mps", name, memory_bytes, "macOS 15.1 arm64")


def test_a_mac_of_another_architecture_is_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: SimpleNamespace(stdout="4096\n"))
    assert (detect().kind, detect().memory_bytes) == ("cpu", 4096)


def test_gpus_of_three_vendors_are_used_in_order_and_what_is_not_is_noted(
    linux: Path, nvml: Callable[..., None]
) -> None:
    add_pci(linux, "0x8086", driver="xe")
    assert detect().kind == "xpu"
    add_kfd(linux, 1, 16)
    assert detect().kind == "rocm"
    add_pci(linux, "0x10de", slot="0000:61:00.0")
    device = detect()
    assert device.kind == "rocm"
    assert device.note == (
        "an NVIDIA GPU is present but its driver does not answer: NVML Shared Library Not Found; "
        "what runs here runs on the CPU"
    )
    nvml(gpu())
    assert (detect().kind, detect().note) == ("cuda", None)


def test_all_notes_are_kept(linux: Path, nvml: Callable[..., None]) -> None:
    add_pci(linux, "0x1002")
    nvml(init_error=NVMLError("a version mismatch"))
    assert detect().note == (
        "NVML is present but fails: a version mismatch; "
        "an AMD GPU is present, integrated or without its compute driver (/sys/class/kfd), and not used"
    )
