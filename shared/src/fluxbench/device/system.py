"""What the operating system says of its hardware: sysfs, procfs and small commands. A missing answer is empty."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")


def read(path: Path) -> str:
    """Return a file's text without surrounding space; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def run(*command: str) -> str | None:
    """Return what a command prints, whatever its exit code; None where it prints nothing within 10 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def pci_displays(vendor: str) -> list[Path]:
    """Return a vendor's PCI devices of class 0x03: display controllers, compute-only ones included.

    `vendor` is the PCI vendor id, such as "0x10de".
    """
    cards = sorted((SYS / "bus/pci/devices").glob("*"))
    return [card for card in cards if read(card / "vendor") == vendor and read(card / "class").startswith("0x03")]
