"""Locks of folders between processes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_in_use(cache: Path) -> Iterator[None]:
    """Keep builds from removing what measurements write into the cache's `runs/`. Raises `OSError`."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "runs.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
