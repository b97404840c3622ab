"""Who may take memory of the device: any number of workers, or one that has it to itself, of all with one cache folder.

A worker holds its inputs while others use the device. So what lacked memory is tried again in a process that waits
until no other worker holds any, and for which those that come later wait. It is a file lock, of a process until it
ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fluxbench.core.device_lock import living, locked, marked

_POLL_S = 0.02
_SAY_EVERY_S = 10.0


class DeviceMemory:
    """The device's memory as one worker sees it.

    `waits` is called when the worker begins to wait, and again every ten seconds (`say_every_s`). Without a folder
    there is nobody to share with.
    """

    def __init__(
        self, folder: Path | None, waits: Callable[[], None] = lambda: None, *, say_every_s: float = _SAY_EVERY_S
    ) -> None:
        self._folder, self._waits, self._say_every_s = folder, waits, say_every_s
        self._file: TextIO | None = None
        self.waited_s = 0.0  # so far

    def take(self, *, alone: bool) -> None:
        """Wait until this worker may take memory, which it may until it ends. Raises `OSError`.

        `alone`: until no other may. It must not hold the device lock, which others need to come to an end. Nothing
        happens where it may already.
        """
        if self._folder is None or self._file:
            return
        began = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / "memory").open("a+")
        with contextlib.ExitStack() as stack:
            stack.push(lambda kind, *_: file.close() if kind else None)
            if alone:
                waiting = self._folder / f"alone-{os.getpid()}"
                stack.enter_context(marked(waiting))
                stack.callback(waiting.unlink, missing_ok=True)
            said = -math.inf
            while not ((alone or not self._is_wanted()) and locked(file, shared=not alone)):
                if time.monotonic() >= said + self._say_every_s:
                    self._waits()
                    said = time.monotonic()
                time.sleep(_POLL_S)
        self._file = file
        self.waited_s += time.monotonic() - began

    def _is_wanted(self) -> bool:
        """Return whether a living worker waits to have it to itself; what dead ones left is removed."""
        assert self._folder
        return any(True for _ in living(self._folder.glob("alone-*")))
