"""Processor time of this process, by which work outside of timed calls shows on a CPU."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_THREADS = Path("/proc/self/task")
_LOOK_S, _MOST_S = 0.0005, 0.5
_LOOKS = 2  # in succession that find no other thread at work


def others_ms() -> float:
    """Return what all threads but the calling one have taken since they began, in milliseconds."""
    return 1e3 * (time.process_time() - time.thread_time())


def all_ms() -> float:
    """Return what all threads have taken since they began, in milliseconds."""
    return 1e3 * time.process_time()


def wait_for_quiet() -> None:
    """Wait until no other thread of this process works, for half a second at most.

    Threads of a library may spin for a while after a call, and would take a core from the next one.
    """
    until, quiet = time.monotonic() + _MOST_S, 0
    while quiet < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_S)
        quiet = 0 if _others_work() else quiet + 1


def _others_work() -> bool:
    """Whether the system runs another thread of this process, or would if a core were free (proc_pid_stat(5))."""
    own = str(threading.get_native_id())
    for each in _THREADS.iterdir():
        try:
            state = (each / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):  # it has ended since
            continue
        if each.name != own and state == "R":
            return True
    return False
