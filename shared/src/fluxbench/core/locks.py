"""Locks of folders between processes."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fluxbench.core.errors import SetupError

_POLL_S = 0.1


@contextmanager
def only_one(path: Path, refusal: str, *, patience_s: float = 0.0) -> Iterator[None]:
    """Hold a lock file, for which `patience_s` seconds are waited.

    Raises `SetupError` with the refusal where another process holds it then; `OSError`.
    """
    deadline = time.monotonic() + patience_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise SetupError(refusal) from error
                time.sleep(_POLL_S)
        yield


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
