"""The CPU: its model, memory, cores and instruction sets, and the operating system."""

from __future__ import annotations

import platform
import re

from fluxbench.core import cores
from fluxbench.device import system
from fluxbench.device.model import Device

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


def find() -> Device:
    """Return the CPU as a device; there always is one."""
    name = model()
    return Device(
        kind="cpu",
        name=name or platform.machine() or "unknown CPU",
        memory_bytes=memory_bytes(),
        cores=cores.available(),
        instruction_sets=_instruction_sets(),
        cpu=name,
    )


def model() -> str | None:
    """Return the CPU's model name, None where the system does not tell."""
    if platform.system() == "Darwin":
        return system.run("sysctl", "-n", "machdep.cpu.brand_string")
    if name := _cpuinfo("model name"):
        return name
    implementer, part = _cpuinfo("CPU implementer"), _cpuinfo("CPU part")
    if implementer == "0x41" and part in _ARM_PARTS:
        return _ARM_PARTS[part]
    return f"Arm implementer {implementer} part {part}" if part else None


def memory_bytes() -> int | None:
    """Return the RAM that this process may use: the machine's, or its cgroup's limit where that is lower."""
    if platform.system() == "Darwin":
        return int(system.run("sysctl", "-n", "hw.memsize") or 0) or None
    total = re.search(r"^MemTotal:\s*(\d+) kB", system.read(system.PROC / "meminfo"), re.MULTILINE)
    limits = [system.read(system.SYS / "fs/cgroup" / name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
    sizes = [int(limit) for limit in limits if limit.isdigit()] + ([int(total.group(1)) * 1024] if total else [])
    return min(sizes, default=None)


def os_name() -> str:
    """Return the operating system, its release and the machine's architecture: "Linux 6.18 x86_64"."""
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]} {platform.machine()}"
    return f"{platform.system()} {'.'.join(platform.release().split('.')[:2])} {platform.machine()}"


def _instruction_sets() -> tuple[str, ...]:
    flags = (_cpuinfo("flags", "Features") or "").split()
    return tuple(dict.fromkeys(name for flag, name in _INSTRUCTION_SETS.items() if flag in flags))


def _cpuinfo(*keys: str) -> str | None:
    """Return the first value that /proc/cpuinfo gives for any of the keys."""
    match = re.search(rf"^(?:{'|'.join(keys)})\s*:\s*(.+)$", system.read(system.PROC / "cpuinfo"), re.MULTILINE)
    return match.group(1).strip() if match else None
