"""What detect() says of a machine, with fakes at its edges only: NVML's module, /proc and /sys.

Past 300 lines because one fake NVML serves the tests of devices, of their names and of their peaks.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fluxbench.device import detection as hardware
from fluxbench.device import peaks
from fluxbench.device.detection import Device, describe, detect, nvidia_smi, other_processes, target_name
from fluxbench.device.peaks import peak

MIB = 2**20
H200 = SimpleNamespace(
    name="NVIDIA H200",
    uuid="GPU-aaaa-1",
    capability=(9, 0),
    memory_mib=143771,
    sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    limit_mw=650_000,
    default_mw=700_000,
    ecc=[1, 1],
    mig=[0, 0],
    slices=[],
    mode=0,
    processes=[],
)


def gpu(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(H200), **changes})


class NVMLError(Exception):
    pass


class LibraryNotFound(NVMLError):
    pass


def fake_nvml(*gpus: SimpleNamespace | None, init_error: NVMLError | None = None) -> ModuleType:
    """Stand in for pynvml; a handle is the fake GPU itself, and a field that is None is "Not Supported"."""

    def answer(field: str) -> Callable[..., Any]:
        def call(handle: SimpleNamespace, *_: Any) -> Any:
            value = getattr(handle, field, None)
            if value is None:
                raise NVMLError("Not Supported")
            return value

        return call

    def init() -> None:
        if init_error:
            raise init_error

    def by_index(index: int) -> SimpleNamespace:
        found = gpus[index]
        if found is None:
            raise NVMLError("GPU is lost")
        return found

    def by_uuid(uuid: str) -> Any:
        for part in (part for found in gpus if found for part in found.slices):
            if part.uuid == uuid:
                return part
        raise NVMLError("Not Found")

    def slice_of(handle: SimpleNamespace, index: int) -> Any:
        if index >= len(handle.slices):
            raise NVMLError("Not Found")
        return handle.slices[index]

    def clock(handle: SimpleNamespace, kind: int) -> Any:
        return answer("sm_clock_mhz" if kind == 1 else "memory_clock_mhz")(handle)

    fake: Any = ModuleType("pynvml")
    fake.NVMLError = NVMLError
    fake.NVMLError_LibraryNotFound = LibraryNotFound
    fake.NVMLError_DriverNotLoaded = type("DriverNotLoaded", (NVMLError,), {})
    fake.NVML_CLOCK_SM, fake.NVML_CLOCK_MEM = 1, 2
    fake.nvmlInit = init
    fake.nvmlShutdown = lambda: None
    fake.nvmlSystemGetDriverVersion = lambda: "580.159.04"
    fake.nvmlSystemGetCudaDriverVersion_v2 = lambda: 13000
    fake.nvmlSystemGetProcessName = lambda pid: "/opt/someone/bin/train"
    fake.nvmlDeviceGetCount = lambda: len(gpus)
    fake.nvmlDeviceGetHandleByIndex = by_index
    fake.nvmlDeviceGetHandleByUUID = by_uuid
    fake.nvmlDeviceGetMigDeviceHandleByIndex = slice_of
    fake.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    fake.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = lambda part: next(g for g in gpus if g and part in g.slices)
    fake.nvmlDeviceGetMaxClockInfo = clock
    fake.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=answer("memory_mib")(handle) * MIB)
    for call, field in {
        "Name": "name",
        "UUID": "uuid",
        "CudaComputeCapability": "capability",
        "EnforcedPowerLimit": "limit_mw",
        "PowerManagementDefaultLimit": "default_mw",
        "EccMode": "ecc",
        "MigMode": "mig",
        "ComputeMode": "mode",
        "ComputeRunningProcesses": "processes",
    }.items():
        setattr(fake, f"nvmlDeviceGet{call}", answer(field))
    module: ModuleType = fake
    return module


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Linux machine with an empty /sys and /proc, and no NVML."""
    monkeypatch.setattr(hardware, "SYS", tmp_path / "sys")
    monkeypatch.setattr(hardware, "PROC", tmp_path / "proc")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "release", lambda: "6.18.44-generic")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(init_error=LibraryNotFound("NVML Shared Library Not Found")))
    return tmp_path


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*gpus: SimpleNamespace | None, init_error: NVMLError | None = None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*gpus, init_error=init_error))

    return install


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def add_pci_display(root: Path, vendor: str, slot: str = "0000:41:00.0", driver: str | None = None) -> None:
    card = root / "sys/bus/pci/devices" / slot
    write(card / "vendor", vendor + "\n")
    write(card / "class", "0x030200\n")
    write(card / "device", "0xe20b\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        (card / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def cuda_device(name: str, memory_gib: float, mig: bool = False) -> Device:
    return Device(kind="cuda", name=name, memory_bytes=int(memory_gib * 2**30), mig=mig)


def test_two_cards_of_a_model_are_told_apart_and_neither_tells_its_identifier(
    machine: Path, nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(gpu(uuid="GPU-aaaa-1"), gpu(uuid="GPU-bbbb-2"))
    cards = []
    for index in ("0", "1", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", index)
        cards.append(detect().card)
    assert cards[0] == cards[2] != cards[1]
    assert not {"aaaa", "bbbb"} & {str(card) for card in cards}


def test_an_h200_is_described_by_everything_that_nvml_knows(machine: Path, nvml: Callable[..., None]) -> None:
    write(machine / "proc/cpuinfo", "model name\t: INTEL(R) XEON(R) PLATINUM 8581C\n")
    nvml(gpu(), gpu(uuid="GPU-bbbb-2"))
    assert detect() == Device(
        kind="cuda",
        name="NVIDIA H200",
        card="dad9ac5a",
        driver="580.159.04",
        cuda="13.0",
        compute_capability=(9, 0),
        memory_bytes=143771 * MIB,
        sm_clock_max_mhz=1980,
        memory_clock_max_mhz=3201,
        power_limit_w=650.0,
        power_limit_default_w=700.0,
        ecc=True,
        mig=False,
        compute_mode="default",
        count=2,
        cpu="INTEL(R) XEON(R) PLATINUM 8581C",
        os="Linux 6.18 x86_64",
    )


@pytest.mark.parametrize(
    ("unsupported", "field"),
    [
        ("ecc", "ecc"),
        ("mig", "mig"),
        ("memory_mib", "memory_bytes"),
        ("limit_mw", "power_limit_w"),
        ("default_mw", "power_limit_default_w"),
        ("sm_clock_mhz", "sm_clock_max_mhz"),
        ("capability", "compute_capability"),
        ("mode", "compute_mode"),
    ],
)
def test_what_nvml_does_not_support_is_unknown_and_the_rest_stays(
    nvml: Callable[..., None], unsupported: str, field: str
) -> None:
    nvml(gpu())
    whole = vars(detect())
    nvml(gpu(**{unsupported: None}))
    assert vars(detect()) == {**whole, field: None}


def test_no_nvidia_gpu_and_no_driver_is_a_plain_cpu_without_a_note(machine: Path) -> None:
    write(machine / "proc/cpuinfo", "model name : AMD EPYC 9654\nflags : fpu avx2 avx512f avx512_bf16 amx_bf16 sse2\n")
    write(machine / "proc/meminfo", "MemTotal:       24684100 kB\n")
    device = detect()
    assert (device.kind, device.name, device.memory_bytes, device.note) == (
        "cpu",
        "AMD EPYC 9654",
        24684100 * 1024,
        None,
    )
    assert device.instruction_sets == ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    assert device.cores == len(os.sched_getaffinity(0))


def test_an_nvidia_gpu_whose_driver_is_absent_is_named_in_the_note(machine: Path) -> None:
    add_pci_display(machine, "0x10de")
    device = detect()
    assert device.kind == "cpu"
    assert "an NVIDIA GPU is present but its driver does not answer: NVML Shared Library" in str(device.note)


def test_an_nvml_that_fails_is_named_in_the_note(nvml: Callable[..., None]) -> None:
    nvml(init_error=NVMLError("RM has detected an NVML/RM version mismatch."))
    assert detect().note == "NVML is present but fails: RM has detected an NVML/RM version mismatch."


@pytest.mark.parametrize("setting", ["", "-1", "7", "GPU-zzzz", "MIG-zzzz"])
def test_hidden_gpus_leave_the_cpu_and_a_note(
    monkeypatch: pytest.MonkeyPatch, nvml: Callable[..., None], setting: str
) -> None:
    nvml(gpu())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    device = detect()
    assert device.kind == "cpu"
    assert device.note == f"CUDA_VISIBLE_DEVICES={setting!r} leaves no NVIDIA GPU"


@pytest.mark.parametrize("setting", ["1", "1,0", " 1", "GPU-bbbb-2", "GPU-bb"])
def test_the_first_visible_gpu_is_used(
    monkeypatch: pytest.MonkeyPatch, nvml: Callable[..., None], setting: str
) -> None:
    nvml(gpu(), gpu(uuid="GPU-bbbb-2", limit_mw=500_000))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert detect().power_limit_w == 500.0


def test_a_lost_gpu_does_not_shift_the_indices_of_the_others(
    monkeypatch: pytest.MonkeyPatch, nvml: Callable[..., None]
) -> None:
    nvml(None, gpu(limit_mw=500_000), gpu())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device = detect()
    assert (device.power_limit_w, device.count, device.note) == (500.0, 2, None)


def test_a_lost_only_gpu_is_a_cpu_with_a_note(nvml: Callable[..., None]) -> None:
    nvml(None)
    assert (detect().kind, detect().note) == ("cpu", "NVML lists no GPU that answers")


def test_gpus_of_several_models_are_noted_because_cuda_may_order_them_otherwise(
    monkeypatch: pytest.MonkeyPatch, nvml: Callable[..., None]
) -> None:
    nvml(gpu(), gpu(name="NVIDIA L4"))
    assert "CUDA_DEVICE_ORDER" in str(detect().note)
    assert detect().count == 1
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert detect().note is None


@pytest.mark.parametrize("setting", [None, "0", "MIG-1"])
def test_a_mig_slice_has_its_own_name_and_memory_and_no_peak(
    monkeypatch: pytest.MonkeyPatch, nvml: Callable[..., None], setting: str | None
) -> None:
    part = SimpleNamespace(name="NVIDIA H200 MIG 1g.18gb", uuid="MIG-1", memory_mib=16384)
    nvml(gpu(mig=[1, 1], slices=[part]))
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    device = detect()
    assert (device.name, device.memory_bytes, device.mig) == ("NVIDIA H200 MIG 1g.18gb", 16384 * MIB, True)
    assert device.power_limit_w == 650.0
    assert peak(device) is None
    assert target_name(device) == "h200-mig-1g-18gb"


def test_mig_without_a_slice_is_a_cpu_with_a_note(nvml: Callable[..., None]) -> None:
    nvml(gpu(mig=[1, 1]))
    assert "MIG is on" in str(detect().note)


def test_an_instinct_is_recognised_from_the_kfd_topology(machine: Path) -> None:
    nodes = machine / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n")
    write(nodes / "1/properties", "cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\ngfx_target_version 90402\n")
    write(nodes / "1/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 206141652992\n")
    write(machine / "sys/module/amdgpu/version", "6.12.12\n")
    device = detect()
    assert (device.kind, device.name, device.driver) == ("rocm", "AMD gfx942", "6.12.12")
    assert (device.memory_bytes, device.count) == (206141652992, 1)
    write(machine / "sys/class/drm/card1/device/product_name", "AMD Instinct MI300X OAM\n")
    assert target_name(detect()) == "amd-instinct-mi300x-oam"


def test_an_amd_gpu_without_its_compute_driver_is_noted(machine: Path) -> None:
    add_pci_display(machine, "0x1002")
    device = detect()
    assert device.kind == "cpu"
    assert "an AMD GPU is present" in str(device.note)


def test_graphics_built_into_an_amd_cpu_are_not_an_accelerator(machine: Path) -> None:
    node = machine / "sys/class/kfd/kfd/topology/nodes/1"
    write(node / "properties", "simd_count 4\nvendor_id 4098\ngfx_target_version 100306\n")
    write(node / "mem_banks/0/properties", "size_in_bytes 536870912\n")
    assert detect().kind == "cpu"


def test_a_discrete_intel_gpu_is_an_xpu(machine: Path) -> None:
    add_pci_display(machine, "0x8086", driver="xe")
    device = detect()
    assert (device.kind, device.name, device.driver) == ("xpu", "Intel GPU e20b", "xe")


def test_an_integrated_intel_gpu_is_not_an_accelerator(machine: Path) -> None:
    add_pci_display(machine, "0x8086", slot="0000:00:02.0", driver="i915")
    device = detect()
    assert device.kind == "cpu"
    assert "an Intel GPU is present, integrated" in str(device.note)


def test_apple_silicon_is_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    answers = {"machdep.cpu.brand_string": "Apple M3 Max\n", "hw.memsize": "68719476736\n"}
    monkeypatch.setattr(subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command[-1]]))
    device = detect()
    assert (device.kind, device.name, device.memory_bytes) == ("mps", "Apple M3 Max", 2**36)
    assert (device.os, target_name(device)) == ("macOS 15.1 arm64", "apple-m3-max")


def test_an_arm_cpu_is_named_by_its_part(machine: Path) -> None:
    write(
        machine / "proc/cpuinfo",
        "processor\t: 0\nFeatures\t: fp asimd sve sve2 i8mm bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n",
    )
    device = detect()
    assert device.name == "Arm Neoverse-V2"
    assert device.instruction_sets == ("neon", "i8mm", "bf16", "sve", "sve2")


def test_the_cgroup_limit_bounds_the_memory(machine: Path) -> None:
    write(machine / "proc/meminfo", "MemTotal:       1000000 kB\n")
    write(machine / "sys/fs/cgroup/memory.max", "512000000\n")
    assert detect().memory_bytes == 512000000


def test_other_processes_leaves_out_ours_and_names_the_rest(machine: Path, nvml: Callable[..., None]) -> None:
    me, parent, child, stranger = os.getpid(), 900001, 900002, 900003
    for pid, ppid in ((me, parent), (parent, 1), (child, me), (stranger, 1), (1, 0)):
        write(machine / f"proc/{pid}/stat", f"{pid} (a name) with ) it) S {ppid} 1 1 0\n")
    running = [SimpleNamespace(pid=pid, usedGpuMemory=2048 * MIB) for pid in (me, parent, child, stranger)]
    nvml(gpu(processes=[*running, SimpleNamespace(pid=900004, usedGpuMemory=None)]))
    assert other_processes(detect()) == ("900003 train 2048 MiB", "900004 train unknown MiB")


def test_a_cpu_has_no_other_processes() -> None:
    assert other_processes(detect()) == ()


def test_nvidia_smi_is_none_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert nvidia_smi() is None


def test_nvidia_smi_is_its_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert nvidia_smi() == "NVIDIA-SMI has failed"


def test_of_a_program_nvidia_smi_shows_the_name_and_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "|  80W /  700W | Pwr:Usage/Cap |\n|  1  844  C  /home/someone/venv/bin/python3   846MiB |"
    write(tmp_path / "bin/nvidia-smi", f"#!/bin/sh\nprintf '%s' '{said}'\n")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert nvidia_smi() == "|  80W /  700W | Pwr:Usage/Cap |\n|  1  844  C  python3                          846MiB |"


def test_a_description_aligns_its_rows_and_shows_no_zero_for_the_unknown(nvml: Callable[..., None]) -> None:
    nvml(gpu(memory_mib=None, default_mw=None, ecc=None))
    rows = describe(detect()).splitlines()
    assert "memory              unknown" in rows
    assert "power limit         650 W (default unknown)" in rows
    assert "ECC                 unknown" in rows
    assert "compute capability  9.0" in rows
    assert not any(row.endswith(" 0") for row in rows)


def test_a_description_of_a_cpu_shows_its_note_and_no_gpu_rows() -> None:
    text = describe(Device(kind="cpu", name="AMD EPYC", cores=2, note="an NVIDIA GPU is present"))
    assert text.splitlines()[-1] == "note              an NVIDIA GPU is present"
    assert "power limit" not in text


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop-gpu"),
        ("Tesla T4", "tesla-t4"),
        ("../../etc", "etc"),
        ("", "cuda"),
    ],
)
def test_a_target_is_a_safe_folder_name(name: str, target: str) -> None:
    assert target_name(Device(kind="cuda", name=name)) == target


def test_a_mig_slice_with_the_name_of_the_whole_gpu_is_another_target() -> None:
    assert target_name(Device(kind="cuda", name="NVIDIA H200", mig=True)) == "h200-mig"


def test_every_cpu_is_the_target_cpu() -> None:
    assert target_name(Device(kind="cpu", name="AMD EPYC 9654")) == "cpu"


@pytest.mark.parametrize(
    ("name", "memory_gib", "bf16_tflops", "memory_gb_s"),
    [
        ("NVIDIA A100-SXM4-40GB", 40.0, 312.0, 1555.0),
        ("A100-PCIE-40GB", 39.4, 312.0, 1555.0),
        ("NVIDIA A100-SXM4-80GB", 80.0, 312.0, 2039.0),
        ("NVIDIA A100 80GB PCIe", 80.0, 312.0, 1935.0),
        ("NVIDIA A10G", 22.49, 70.0, 600.0),
        ("NVIDIA L4", 22.49, 121.0, 300.0),
        ("NVIDIA L40S", 44.99, 362.05, 864.0),
        ("NVIDIA H100 80GB HBM3", 79.65, 989.4, 3350.0),
        ("NVIDIA H100 PCIe", 79.65, 756.0, 2039.0),
        ("NVIDIA H200", 140.4, 989.5, 4800.0),
        ("NVIDIA H200 NVL", 140.4, 835.5, 4800.0),
        ("NVIDIA B200", 179.06, 2250.0, 7672.0),
        ("NVIDIA GeForce RTX 4090", 23.99, 165.2, 1008.0),
        ("NVIDIA GeForce RTX 5090", 31.84, 209.5, 1792.0),
    ],
)
def test_a_known_gpu_has_its_peak_and_a_source(
    name: str, memory_gib: float, bf16_tflops: float, memory_gb_s: float
) -> None:
    rates = peak(cuda_device(name, memory_gib))
    assert rates is not None
    assert (rates.bf16_tflops, rates.memory_gb_s) == (bf16_tflops, memory_gb_s)
    assert rates.source


@pytest.mark.parametrize("name", peaks._PEAKS)
def test_no_data_sheet_is_over_the_limits_of_its_card(name: str) -> None:
    rates = peaks._PEAKS[name][1]
    most = rates.limits
    rounding = 1.001  # "312 TFLOPS" are 311.9
    assert rates.bf16_tflops <= rounding * most.tflops()
    assert (rates.fp8_tflops or 0) <= rounding * most.tflops(narrow=True)
    assert rates.memory_gb_s <= rounding * most.gb_s()


@pytest.mark.parametrize("name", peaks._PEAKS)
def test_the_clock_behind_a_data_sheets_rate_is_one_that_the_card_has(name: str) -> None:
    rates = peaks._PEAKS[name][1]
    half_rate = 2 if "GeForce" in name or name == "A10G" else 1  # of float32 accumulation
    boost_mhz = half_rate * rates.bf16_tflops * 1e6 / (rates.limits.sms * rates.limits.ops_16bit)
    assert 0.75 < boost_mhz / rates.limits.sm_clock_mhz < 1.001


def test_an_h200_computes_and_moves_more_than_its_data_sheet_says() -> None:
    limits = peaks._PEAKS["H200"][1].limits
    assert limits.tflops() == pytest.approx(1070.5, abs=0.1)
    assert limits.tflops(sm_clock_mhz=1830) == pytest.approx(989.4, abs=0.1)
    assert limits.gb_s() == pytest.approx(4916.7, abs=0.1)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("A100-80GB", "A100-SXM4-80GB"),
        ("A100 PCIe 80GB", "A100 80GB PCIe"),
        ("H100-80GB", "H100 80GB HBM3"),
        ("NVIDIA H100 SXM5", "H100 80GB HBM3"),
        ("H200", "H200"),
        ("h200 nvl", "H200 NVL"),
        ("A10G-24GB", "A10G"),
        ("RTX 4090", "GeForce RTX 4090"),
    ],
)
def test_a_table_may_name_a_card_in_other_words(name: str, card: str) -> None:
    assert peaks.by_name(name) is peaks._PEAKS[card][1]


@pytest.mark.parametrize(
    "name", ["", "GPU", "A100-64GB", "H100 NVL", "RTX 4090 Laptop GPU", "L40", "GH200", "H200 MIG 1g.18gb", "MI300X"]
)
def test_a_card_that_is_not_known_has_no_peak_by_name(name: str) -> None:
    assert peaks.by_name(name) is None


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [
        ("NVIDIA H300", 200.0),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16.0),
        ("NVIDIA GeForce RTX 4090 D", 24.0),
        ("NVIDIA GeForce RTX 4090", 48.0),
        ("NVIDIA L4-12Q", 12.0),
        ("NVIDIA A100-SXM4-40GB", 20.0),
    ],
)
def test_a_gpu_that_is_not_the_full_known_card_has_no_peak(name: str, memory_gib: float) -> None:
    assert peak(cuda_device(name, memory_gib)) is None


def test_a_mig_slice_with_the_name_of_the_whole_gpu_has_no_peak() -> None:
    assert peak(cuda_device("NVIDIA H200", 140.4, mig=True)) is None


def test_a_cpu_has_no_peak() -> None:
    assert peak(Device(kind="cpu", name="AMD EPYC")) is None
