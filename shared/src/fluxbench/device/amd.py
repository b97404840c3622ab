"""AMD's GPUs, by the topology of their compute driver (KFD)."""

from __future__ import annotations

import re

from fluxbench.device import system
from fluxbench.device.model import Detected, Device

_VENDOR_ID = "4098"  # 0x1002
_DISCRETE_BYTES = 4 * 2**30  # graphics built into a CPU get less of its memory; no GPU that ROCm supports has less


def find() -> Detected:
    """Return the first discrete GPU that the compute driver lists."""
    gpus = _gpus()
    if not gpus:
        why = "an AMD GPU is present, integrated or without its compute driver (/sys/class/kfd), and not used"
        return None, why if system.pci_displays("0x1002") else None
    products = [system.read(path) for path in sorted((system.SYS / "class/drm").glob("card*/device/product_name"))]
    name, memory_bytes = gpus[0]
    return Device(
        kind="rocm",
        name="AMD " + next(filter(None, products), name).removeprefix("AMD "),
        driver=system.read(system.SYS / "module/amdgpu/version") or None,
        memory_bytes=memory_bytes,
        count=len(gpus),
    ), None


def _gpus() -> list[tuple[str, int]]:
    """Return the gfx name and the memory in bytes of each discrete GPU."""
    gpus = []
    for path in sorted((system.SYS / "class/kfd/kfd/topology/nodes").glob("*/properties")):
        facts = dict(re.findall(r"^(\w+) (\d+)$", system.read(path), re.MULTILINE))
        banks = (system.read(bank) for bank in path.parent.glob("mem_banks/*/properties"))
        sizes = (re.search(r"size_in_bytes (\d+)", bank) for bank in banks)
        memory_bytes = sum(int(size.group(1)) for size in sizes if size)
        is_gpu = facts.get("vendor_id") == _VENDOR_ID and facts.get("simd_count", "0") != "0"
        if not is_gpu or memory_bytes < _DISCRETE_BYTES:
            continue  # another vendor's, a CPU, or graphics built into one
        # gfx942 is 90402: decimal pairs for major, minor and stepping, of which the name shows the last in hexadecimal.
        version = int(facts.get("gfx_target_version", 0))
        gpus.append((f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}", memory_bytes))
    return gpus
