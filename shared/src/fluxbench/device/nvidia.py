"""NVIDIA's GPUs, by NVML: the one that CUDA uses first, and what else runs on it. No CUDA context is made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from fluxbench.device import system
from fluxbench.device.model import Detected, Device

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}  # nvmlComputeMode_t
BUILD = "FLUXBENCH_BUILD"
_NO_ANSWER = "an NVIDIA GPU is present but its driver does not answer: {}; everything runs on the CPU"


def find() -> Detected:
    """Return the GPU that CUDA uses first; a device's own note is the second value too."""
    is_present = bool(system.pci_displays("0x10de"))
    try:
        import pynvml as nvml
    except ImportError as error:
        return None, _NO_ANSWER.format(error) if is_present else None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        absent = isinstance(error, (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded))
        failure = None if absent else f"NVML is present but fails: {error}"
        return None, _NO_ANSWER.format(error) if is_present else failure
    try:
        device = _device(nvml)
        return device, device.note
    except LookupError as error:
        return None, str(error)
    except nvml.NVMLError as error:
        return None, _NO_ANSWER.format(error)
    finally:
        nvml.nvmlShutdown()


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
    first = "0" if setting is None else setting.split(",")[0].strip()
    gpus = [ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(nvml.nvmlDeviceGetCount())]
    gpu = part = None
    if first.startswith("MIG-"):
        part = ask(nvml, "nvmlDeviceGetHandleByUUID", first)
        gpu = None if part is None else nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    elif first.isdigit():
        gpu = gpus[int(first)] if int(first) < len(gpus) else None
    elif first.startswith("GPU-"):  # CUDA takes the beginning of a UUID too
        answering = [handle for handle in gpus if handle is not None]
        gpu = next((gpu for gpu in answering if (ask(nvml, "nvmlDeviceGetUUID", gpu) or "").startswith(first)), None)
    if gpu is None:  # "" and "-1" hide every GPU, and so does a name that CUDA cannot resolve
        unset = "NVML lists no GPU that answers"
        raise LookupError(unset if setting is None else f"CUDA_VISIBLE_DEVICES={setting!r} leaves no NVIDIA GPU")
    if part is None and (ask(nvml, "nvmlDeviceGetMigMode", gpu) or [0])[0] == 1:
        slots = range(ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", gpu) or 0)
        parts = (ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, slot) for slot in slots)
        part = next((handle for handle in parts if handle is not None), None)
        if part is None:
            raise LookupError("MIG is on and the GPU has no MIG device; create one, or turn MIG off")
    return gpu, gpu if part is None else part


def other_processes(device: Device) -> tuple[str, ...]:
    """Return the compute processes on the GPU that are not ours, each as "pid name MiB"; none on other devices.

    Ours are this process, its ancestors and its descendants, and those of the build that `FLUXBENCH_BUILD` names by its
    process number: its other cells take turns on the device with this one. In a container NVML may give the host's
    process numbers, by which ours cannot be recognised.
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
        others = []
        own = {os.getpid(), int(os.environ.get(BUILD) or os.getpid())}
        for process in ask(nvml, "nvmlDeviceGetComputeRunningProcesses", part) or ():
            if process.pid in _ancestry(os.getpid()) or own & set(_ancestry(process.pid)):
                continue
            name = Path(ask(nvml, "nvmlSystemGetProcessName", process.pid) or "unknown").name
            memory = "unknown" if process.usedGpuMemory is None else round(process.usedGpuMemory / 2**20)
            others.append(f"{process.pid} {name} {memory} MiB")
        return tuple(others)
    except (LookupError, nvml.NVMLError):
        return ()
    finally:
        nvml.nvmlShutdown()


def nvidia_smi() -> str | None:
    """Return what `nvidia-smi` prints, an error message included; None where there is none, or no answer within 10 s.

    A process's program is shown without its folder: pages are published.
    """
    text = system.run("nvidia-smi") if shutil.which("nvidia-smi") else None
    return text and re.sub(r"(?<!\S)/\S*/(\S+)", lambda path: path[1].ljust(len(path[0])), text)


def _device(nvml: Any) -> Device:
    gpu, part = visible_gpu(nvml)
    name = nvml.nvmlDeviceGetName(gpu)
    handles = (ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(nvml.nvmlDeviceGetCount()))
    names = [ask(nvml, "nvmlDeviceGetName", handle) for handle in handles if handle is not None]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    mixed = len(set(names)) > 1
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
        count=min(names.count(name), len(visible.split(","))) if visible else names.count(name),
        note="several GPU models: they are counted as nvidia-smi counts them" if mixed else None,
    )


def _card(uuid: str | bytes | None) -> str | None:
    """Return a name for one card that does not reveal its identifier."""
    if not uuid:
        return None
    identifier = uuid if isinstance(uuid, bytes) else uuid.encode()
    return hashlib.sha256(b"fluxbench" + identifier).hexdigest()[:8]


def _ancestry(pid: int) -> list[int]:
    """Return a process and its ancestors, youngest first, as far as /proc shows them."""
    line = [pid]
    while fields := system.read(system.PROC / str(line[-1]) / "stat").rpartition(")")[2].split():
        line.append(int(fields[1]))  # state, then the parent's pid: proc_pid_stat(5)
    return line
