"""What memory was asked for and what was free, where an allocation failed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import torch

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
# What torch's allocators say, from torch 2.1 on; the second is that of a CPU.
_ASKED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_FREE = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """An allocation that failed, in bytes; what torch does not say is None. Torch rounds to a hundredth of a GiB."""

    asked_bytes: int
    free_bytes: int | None
    total_bytes: int | None  # of the device
    own_bytes: int | None  # taken by this process, what torch keeps for later included

    def __str__(self) -> str:
        """Return it as a clause: "asked for 128.00 GiB with 97.30 of 139.80 GiB free"."""
        words = f"asked for {_gib(self.asked_bytes)} GiB"
        if self.free_bytes is None or self.total_bytes is None:
            return words
        words += f" with {_gib(self.free_bytes)} of {_gib(self.total_bytes)} GiB free"
        return words if self.own_bytes is None else f"{words}, {_gib(self.own_bytes)} GiB taken by this process"


def shortage_of(error: Exception) -> Shortage | None:
    """Return what an exception says of memory that was out; None where it is about something else."""
    text = str(error)
    is_cpu = "DefaultCPUAllocator: can't allocate memory" in text
    asked = _ASKED.search(text)
    if asked is None or not (is_cpu or isinstance(error, torch.OutOfMemoryError)):
        return None
    own = _OWN.search(text)
    total: int | None = None
    free: int | None = None
    if is_cpu:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (os.sysconf(name) * page for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    elif found := _FREE.search(text):
        total, free = _bytes(*found.groups()[:2]), _bytes(*found.groups()[2:])
    return Shortage(
        asked_bytes=_bytes(*asked.groups()),
        free_bytes=free,
        total_bytes=total,
        own_bytes=_bytes(*own.groups()) if own else None,
    )


def _bytes(size: str, unit: str) -> int:
    return round(float(size) * _UNITS[unit])


def _gib(size: int) -> str:
    return f"{size / 2**30:,.2f}"
