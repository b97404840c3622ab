"""Draws between two steps of a cell where no cores are to spare: it holds the device, for which the workers wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fluxbench.core import device_lock
from fluxbench.core.device_lock import DeviceLock
from fluxbench.core.progress import Progress

EARLY_S = 5.0  # after a step of a cell, in which its early records are to be there
_POLL_S = 0.1


def draw_early(
    cache: Path, progress: Callable[[], Progress], draw: Callable[[Path], None], check: Callable[[], None]
) -> None:
    """Wait for the end of a cell's step, and draw its early records where it then has some; `draw` gets its folder.

    `progress` returns how far the cell is. Raises what `check` raises, which is called a few times a second.
    """
    lock = DeviceLock(
        device_lock.folder(cache), device_lock.DRAWS, lambda holds: None if holds else check(),
        poll_s=_POLL_S, say_every_s=0.0,
    )  # fmt: skip
    with lock.held(short=True, alone=True):
        until = time.monotonic() + EARLY_S
        while not (now := progress()).early and time.monotonic() < until:
            check()
            time.sleep(_POLL_S)
        if now.early and now.folder:
            draw(now.folder)
