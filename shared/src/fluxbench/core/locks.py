"""Locks of folders between processes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def scratch(cache: Path) -> Iterator[None]:
    """Remove what killed measurements left in the cache, unless another build measures there.

    Raises `OSError` where the cache cannot be made.
    """
    with _of_runs(cache) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(cache / "runs", ignore_errors=True)
        except BlockingIOError:  # another build or a cell of plain uvnote holds the lock below
            pass
    with scratch_in_use(cache):
        yield


@contextmanager
def scratch_in_use(cache: Path) -> Iterator[None]:
    """Keep builds from removing what measurements write into the cache's `runs/`. Raises `OSError`."""
    with _of_runs(cache) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _of_runs(cache: Path) -> TextIO:
    cache.mkdir(parents=True, exist_ok=True)
    return (cache / "runs.lock").open("w")
