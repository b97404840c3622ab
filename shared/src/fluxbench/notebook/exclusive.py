"""Locks of folders that builds write into."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluxbench.core.errors import SetupError


@contextmanager
def only_build(work: Path) -> Iterator[None]:
    """Hold a notebook's work folder: two builds at once there would mix up their cells.

    Raises `SetupError` where another build holds it, `OSError` where it cannot be made.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / "fluxbench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"another build runs in {work.parent}; wait until it ends") from error
        yield


@contextmanager
def scratch(cache: Path) -> Iterator[None]:
    """Remove what killed measurements left in the cache, unless another build measures there.

    Raises `OSError` where the cache cannot be made.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "runs.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(cache / "runs", ignore_errors=True)
        except BlockingIOError:  # another build holds the lock below
            pass
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
