"""The supervisors that this process started, and what a killed one of them leaves behind.

A process without a parent becomes a child of this process while a command runs. What is neither a supervisor nor was
there before is then an orphan of a supervisor that its own cell killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from fluxbench.notebook import supervisor


class Orphans:
    """All of them that are in one process; its threads may start supervisors at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._others: set[int] = set()  # children of this process that no supervisor is
        self._supervisors: set[int] = set()
        self._runs = 0

    @contextlib.contextmanager
    def adopted(self) -> Iterator[None]:
        """Be the parent of orphans meanwhile."""
        with self._lock:
            if not self._runs:
                self._others = set(supervisor.descendants(os.getpid()))
                supervisor.adopt_orphans()
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    supervisor.adopt_orphans(False)

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a supervisor, as `subprocess.Popen` does."""
        with self._lock:  # so that nobody takes it for an orphan
            watcher = subprocess.Popen(command, **options)
            self._supervisors.add(watcher.pid)
        return watcher

    def ended(self, watcher: subprocess.Popen[bytes]) -> None:
        """Kill what a supervisor left, if it was killed itself."""
        with self._lock:
            self._supervisors.discard(watcher.pid)
            if watcher.returncode:
                kill(self._others | self._supervisors)


def kill(without: set[int]) -> None:
    """Kill and reap every process below this one, except the children `without` and what is below these."""
    killed: set[int] = set()
    deadline = time.monotonic() + supervisor.KILL_LIMIT_S
    while (left := set(supervisor.descendants(os.getpid(), without))) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        time.sleep(0.005)
    for pid in killed:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
