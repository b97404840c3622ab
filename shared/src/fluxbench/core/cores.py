"""How many of the host's cores are ours."""

from __future__ import annotations

import os


def available() -> int:
    """Return how many cores this process may use: `taskset` and a container's CPU set leave fewer than the host has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
