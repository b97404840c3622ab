"""Processor time of this process, by which work outside of timed calls shows on a CPU."""

from __future__ import annotations

import time


def others_ms() -> float:
    """Return what all threads but the calling one have taken since they began, in milliseconds."""
    return 1e3 * (time.process_time() - time.thread_time())


def all_ms() -> float:
    """Return what all threads have taken since they began, in milliseconds."""
    return 1e3 * time.process_time()
