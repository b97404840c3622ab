"""Locks of folders that builds write into."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluxbench.core.errors import SetupError, full_disk


@contextmanager
def only_build(work: Path) -> Iterator[None]:
    """Hold a notebook's work folder: two builds at once there would mix up their cells.

    Raises `SetupError` where another build holds it, or it cannot be made.
    """
    make(work)
    with (work / "fluxbench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another build runs in {work.parent}; wait until it ends") from error
        yield


@contextmanager
def scratch(cache: Path) -> Iterator[None]:
    """Remove what killed measurements left in the cache, unless another build measures there.

    Raises `SetupError` where the cache cannot be made.
    """
    make(cache)
    with (cache / "runs.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(cache / "runs", ignore_errors=True)
        except BlockingIOError:  # another build holds the lock below
            pass
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def make(folder: Path) -> None:
    """Make a folder. Raises `SetupError` where that cannot be done, `OSError` where the disk is full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if full_disk(error):
            raise
        raise SetupError(f"{folder} must be a folder that can be written to: {error}") from error
