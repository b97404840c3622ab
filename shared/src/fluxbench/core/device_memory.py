"""Who may take memory of the device: any number of workers, or one that has it to itself, of all with one cache folder.

A worker holds its inputs while others use the device. So what lacked memory is tried again in a process that waits
until no other worker holds any. Those that come later do not wait for it: else all cells would come to an end for a few
rows. So it may wait until the others are done, which is at the latest the end of what is built. It is a file lock, of
a process until it ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fluxbench.core.device_lock import locked

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
        try:
            said = -math.inf
            while not locked(file, shared=not alone):
                if time.monotonic() >= said + self._say_every_s:
                    self._waits()
                    said = time.monotonic()
                time.sleep(_POLL_S)
        except BaseException:
            file.close()
            raise
        self._file = file
        self.waited_s += time.monotonic() - began
