"""What device this is: model, driver, clocks, power limit and modes. No torch; NVML, sysfs and procfs only.

Past 300 lines because recognising four vendors' GPUs and the CPU is one job, and each of the five is short.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fluxbench.device.model import Device

PROC = Path("/proc")
SYS = Path("/sys")

# What /proc/cpuinfo calls an instruction set that matters for matrix work -> what it is called here.
_INSTRUCTION_SETS = {
    **{name: name for name in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16")},
    **{name: name for name in ("amx_tile", "amx_int8", "amx_bf16", "amx_fp16")},
    **{"neon": "neon", "asimd": "neon", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2", "sme": "sme"},
}
# Part numbers of implementer 0x41 (Arm) in MIDR_EL1, from Arm's technical reference manuals of the cores.
_ARM_PARTS = {
    "0xd0c": "Arm Neoverse-N1",
    "0xd40": "Arm Neoverse-V1",
    "0xd49": "Arm Neoverse-N2",
    "0xd4f": "Arm Neoverse-V2",
}
_DISCRETE_BYTES = 4 * 2**30  # graphics built into a CPU get less of its memory; no GPU that ROCm supports has less
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}  # nvmlComputeMode_t
_TARGETS = {
    "h100-80gb-hbm3": "h100-sxm",
    "a100-sxm4-40gb": "a100-40gb",
    "a100-pcie-40gb": "a100-40gb",
    "a100-sxm4-80gb": "a100-80gb",
    "a100-80gb-pcie": "a100-80gb",
}


# A finder returns its device, or None and a sentence where something of its kind is here and cannot be used.
_Found = tuple[Device | None, str | None]


def detect() -> Device:
    """Return the device that a measurement would run on: NVIDIA, AMD, Intel or Apple GPU, in this order, or the CPU."""
    notes = []
    for find in (_cuda, _rocm, _xpu, _mps):
        device, note = find()
        notes += [note] if note else []
        if device:
            return dataclasses.replace(device, cpu=_cpu_model(), os=_os(), note="; ".join(notes) or None)
    model = _cpu_model()
    return Device(
        kind="cpu",
        name=model or platform.machine() or "unknown CPU",
        memory_bytes=_ram_bytes(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        instruction_sets=_instruction_sets(),
        cpu=model,
        os=_os(),
        note="; ".join(notes) or None,
    )


def ask(nvml: Any, call: str, *arguments: Any) -> Any:
    """Return what an NVML call answers, None where the device, its driver or its Python package does not know it."""
    try:
        return getattr(nvml, call)(*arguments) if hasattr(nvml, call) else None
    except nvml.NVMLError:
        return None


def visible_gpu(nvml: Any) -> tuple[Any, Any]:
    """Return NVML's handles of the GPU that CUDA uses first, and of its MIG slice (the same handle without MIG).

    Honours `CUDA_VISIBLE_DEVICES`. Raises `LookupError` with a sentence where CUDA would see no GPU.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = "0" if setting is None else setting.split(",")[0].strip()
    gpus = [ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(nvml.nvmlDeviceGetCount())]
    gpu = part = None
    if chosen.startswith("MIG-"):
        part = ask(nvml, "nvmlDeviceGetHandleByUUID", chosen)
        gpu = None if part is None else nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    elif chosen.isdigit():
        gpu = gpus[int(chosen)] if int(chosen) < len(gpus) else None
    elif chosen.startswith("GPU-"):  # CUDA takes the beginning of a UUID too
        answering = [each for each in gpus if each is not None]
        uuids = [ask(nvml, "nvmlDeviceGetUUID", each) or "" for each in answering]
        gpu = next((each for each, uuid in zip(answering, uuids, strict=True) if uuid.startswith(chosen)), None)
    if gpu is None:  # "" and "-1" hide every GPU, and so does a name that CUDA cannot resolve
        unset = "NVML lists no GPU that answers"
        raise LookupError(unset if setting is None else f"CUDA_VISIBLE_DEVICES={setting!r} leaves no NVIDIA GPU")
    if part is None and (ask(nvml, "nvmlDeviceGetMigMode", gpu) or [0])[0] == 1:
        slots = range(ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", gpu) or 0)
        parts = (ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, slot) for slot in slots)
        part = next((each for each in parts if each is not None), None)
        if part is None:
            raise LookupError("MIG is on and the GPU has no MIG device; create one, or turn MIG off")
    return gpu, gpu if part is None else part


def _cuda() -> _Found:
    seen = _pci_displays("0x10de")
    silent = "an NVIDIA GPU is present but its driver does not answer: {}; what runs here runs on the CPU"
    try:
        import pynvml as nvml
    except ImportError as error:
        return None, silent.format(error) if seen else None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        absent = isinstance(error, (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded))
        return None, silent.format(error) if seen else None if absent else f"NVML is present but fails: {error}"
    try:
        device = _cuda_device(nvml)
        return device, device.note
    except LookupError as error:
        return None, str(error)
    except nvml.NVMLError as error:
        return None, silent.format(error)
    finally:
        nvml.nvmlShutdown()


def _card(uuid: str | bytes | None) -> str | None:
    """Return a name for one card that does not tell its identifier."""
    if not uuid:
        return None
    known = uuid if isinstance(uuid, bytes) else uuid.encode()
    return hashlib.sha256(b"fluxbench" + known).hexdigest()[:8]


def _cuda_device(nvml: Any) -> Device:
    gpu, part = visible_gpu(nvml)
    name = nvml.nvmlDeviceGetName(gpu)
    handles = (ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(nvml.nvmlDeviceGetCount()))
    names = [ask(nvml, "nvmlDeviceGetName", handle) for handle in handles if handle is not None]
    mixed = len(set(names)) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    cuda = ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", gpu)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", part)
    limit_mw = ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", gpu)
    default_mw = ask(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", gpu)
    ecc, mig = ask(nvml, "nvmlDeviceGetEccMode", gpu), ask(nvml, "nvmlDeviceGetMigMode", gpu)
    return Device(
        kind="cuda",
        name=ask(nvml, "nvmlDeviceGetName", part) or name,
        card=_card(ask(nvml, "nvmlDeviceGetUUID", part)),
        driver=ask(nvml, "nvmlSystemGetDriverVersion"),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        compute_capability=None if capability is None else tuple(capability),
        memory_bytes=None if memory is None else int(memory.total),
        sm_clock_max_mhz=ask(nvml, "nvmlDeviceGetMaxClockInfo", gpu, nvml.NVML_CLOCK_SM),
        memory_clock_max_mhz=ask(nvml, "nvmlDeviceGetMaxClockInfo", gpu, nvml.NVML_CLOCK_MEM),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        power_limit_default_w=None if default_mw is None else default_mw / 1000,
        ecc=None if ecc is None else ecc[0] == 1,  # current state, then the one pending a reset
        mig=None if mig is None else mig[0] == 1,
        compute_mode=_COMPUTE_MODES.get(ask(nvml, "nvmlDeviceGetComputeMode", gpu)),
        count=names.count(name),
        note="several GPU models: without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA may use another one" if mixed else None,
    )


def _rocm() -> _Found:
    gpus = []  # (gfx name, memory in bytes)
    for path in sorted((SYS / "class/kfd/kfd/topology/nodes").glob("*/properties")):
        facts = dict(re.findall(r"^(\w+) (\d+)$", _read(path), re.MULTILINE))
        banks = [re.search(r"size_in_bytes (\d+)", _read(bank)) for bank in path.parent.glob("mem_banks/*/properties")]
        memory_bytes = sum(int(bank.group(1)) for bank in banks if bank)
        if facts.get("vendor_id") != "4098" or facts.get("simd_count", "0") == "0" or memory_bytes < _DISCRETE_BYTES:
            continue  # another vendor's, a CPU, or graphics built into one
        # gfx942 is 90402: decimal pairs for major, minor and stepping, of which the name shows the last in hexadecimal.
        version = int(facts.get("gfx_target_version", 0))
        gpus.append((f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}", memory_bytes))
    if not gpus:
        why = "an AMD GPU is present, integrated or without its compute driver (/sys/class/kfd), and not used"
        return None, why if _pci_displays("0x1002") else None
    products = [_read(path) for path in sorted((SYS / "class/drm").glob("card*/device/product_name"))]
    return Device(
        kind="rocm",
        name="AMD " + next(filter(None, products), gpus[0][0]).removeprefix("AMD "),
        driver=_read(SYS / "module/amdgpu/version") or None,
        memory_bytes=gpus[0][1],
        count=len(gpus),
    ), None


def _xpu() -> _Found:
    seen = _pci_displays("0x8086")
    cards = [card for card in seen if not card.name.endswith(":00:02.0")]  # where every integrated Intel GPU sits
    cards = [card for card in cards if (card / "driver").resolve().name in ("i915", "xe")]
    if not cards:
        return None, "an Intel GPU is present, integrated or without its driver, and not used" if seen else None
    name = f"Intel GPU {_read(cards[0] / 'device').removeprefix('0x')}"
    return Device(kind="xpu", name=name, driver=(cards[0] / "driver").resolve().name, count=len(cards)), None


def _mps() -> _Found:
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return None, None
    memory = _run("sysctl", "-n", "hw.memsize")
    return Device(kind="mps", name=_cpu_model() or "Apple GPU", memory_bytes=int(memory) if memory else None), None


def _pci_displays(vendor: str) -> list[Path]:
    """Return the PCI devices of class 0x03 (display controllers, compute-only ones included) of a vendor."""
    cards = sorted((SYS / "bus/pci/devices").glob("*"))
    return [card for card in cards if _read(card / "vendor") == vendor and _read(card / "class").startswith("0x03")]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpuinfo(*keys: str) -> str | None:
    """Return the first value that /proc/cpuinfo gives for any of the keys."""
    found = re.search(rf"^(?:{'|'.join(keys)})\s*:\s*(.+)$", _read(PROC / "cpuinfo"), re.MULTILINE)
    return found.group(1).strip() if found else None


def _cpu_model() -> str | None:
    if platform.system() == "Darwin":
        return _run("sysctl", "-n", "machdep.cpu.brand_string")
    if model := _cpuinfo("model name"):
        return model
    implementer, part = _cpuinfo("CPU implementer"), _cpuinfo("CPU part")
    if implementer == "0x41" and part in _ARM_PARTS:
        return _ARM_PARTS[part]
    return f"Arm implementer {implementer} part {part}" if part else None


def _instruction_sets() -> tuple[str, ...]:
    flags = (_cpuinfo("flags", "Features") or "").split()
    return tuple(dict.fromkeys(name for flag, name in _INSTRUCTION_SETS.items() if flag in flags))


def _ram_bytes() -> int | None:
    """Return the RAM that this process may use: the machine's, or its cgroup's limit where that is lower."""
    if platform.system() == "Darwin":
        return int(_run("sysctl", "-n", "hw.memsize") or 0) or None
    total = re.search(r"^MemTotal:\s*(\d+) kB", _read(PROC / "meminfo"), re.MULTILINE)
    limits = [_read(SYS / "fs/cgroup" / name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
    sizes = [int(limit) for limit in limits if limit.isdigit()] + ([int(total.group(1)) * 1024] if total else [])
    return min(sizes, default=None)


def _os() -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]} {platform.machine()}"
    return f"{platform.system()} {'.'.join(platform.release().split('.')[:2])} {platform.machine()}"


def nvidia_smi() -> str | None:
    """Return what `nvidia-smi` prints, a complaint included; None where there is none, or no answer within 10 s.

    Of a process's program the name stays and its folder does not: pages are published.
    """
    text = _run("nvidia-smi") if shutil.which("nvidia-smi") else None
    return text and re.sub(r"(?<!\S)/\S*/(\S+)", lambda path: path[1].ljust(len(path[0])), text)


def other_processes(device: Device) -> tuple[str, ...]:
    """Return the compute processes on the GPU that are not ours, each as "pid name MiB".

    Ours are this process, its ancestors and its descendants. In a container NVML may give the host's process
    numbers, which cannot be told to be ours.
    """
    if device.kind != "cuda":
        return ()
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        _, part = visible_gpu(nvml)
        found = []
        for process in ask(nvml, "nvmlDeviceGetComputeRunningProcesses", part) or ():
            if process.pid in _ancestry(os.getpid()) or os.getpid() in _ancestry(process.pid):
                continue
            name = Path(ask(nvml, "nvmlSystemGetProcessName", process.pid) or "unknown").name
            memory = "unknown" if process.usedGpuMemory is None else round(process.usedGpuMemory / 2**20)
            found.append(f"{process.pid} {name} {memory} MiB")
        return tuple(found)
    except (LookupError, nvml.NVMLError):
        return ()
    finally:
        nvml.nvmlShutdown()


def _ancestry(pid: int) -> list[int]:
    """Return a process and its ancestors, youngest first, as far as /proc shows them."""
    line = [pid]
    while fields := _read(PROC / str(line[-1]) / "stat").rpartition(")")[2].split():
        line.append(int(fields[1]))  # state, then the parent's pid: proc_pid_stat(5)
    return line


def describe(device: Device) -> str:
    """Return the device as aligned rows "key  value", "unknown" where nothing is known."""
    gpu, cuda = device.kind != "cpu", device.kind == "cuda"
    limits = (_text(watts, " W") for watts in (device.power_limit_w, device.power_limit_default_w))
    rows = (
        (True, "device", device.name),
        (True, "kind", device.kind),
        (True, "memory", _text(device.memory_bytes and round(device.memory_bytes / 2**30, 1), " GiB")),
        (gpu, "count", _text(device.count)),
        (gpu, "driver", _text(device.driver)),
        (cuda, "CUDA of driver", _text(device.cuda)),
        (cuda, "compute capability", _text(device.compute_capability)),
        (cuda, "SM clock, max", _text(device.sm_clock_max_mhz, " MHz")),
        (cuda, "memory clock, max", _text(device.memory_clock_max_mhz, " MHz")),
        (cuda, "power limit", "{} (default {})".format(*limits)),
        (cuda, "ECC", _text(device.ecc)),
        (cuda, "MIG", _text(device.mig)),
        (cuda, "compute mode", _text(device.compute_mode)),
        (gpu, "CPU", _text(device.cpu)),
        (not gpu, "cores", _text(device.cores)),
        (not gpu, "instruction sets", " ".join(device.instruction_sets) or "unknown"),
        (True, "OS", _text(device.os)),
        (device.note is not None, "note", _text(device.note)),
    )
    width = max(len(key) for shown, key, _ in rows if shown)
    return "\n".join(f"{key:<{width}}  {text}" for shown, key, text in rows if shown)


def _text(value: object, unit: str = "") -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "on", False: "off"}[value]
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def target_name(device: Device) -> str:
    """Return the device's folder name under `reports/`: "h200", "h100-sxm", "rtx-4090", "cpu"; safe as a path."""
    if device.kind == "cpu":
        return "cpu"
    plain = re.sub(r"^(nvidia )?(geforce )?", "", device.name.lower())
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or device.kind
    slug = _TARGETS.get(slug, slug)
    return f"{slug}-mig" if device.mig and "mig" not in slug.split("-") else slug
