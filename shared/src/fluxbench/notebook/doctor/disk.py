"""The folders that a build writes into, and whether there is space in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.settings import Settings
from fluxbench.notebook.doctor.tools import output_of

_ELSEWHERE = "name other folders in FLUXBENCH_CACHE, UV_CACHE_DIR and TMPDIR"
_WALK_S = 0.3  # for counting the sizes of all folders together
_GB = 10**9
# What must be free for records and pages; for packages; and for torch with CUDA, roughly: it unpacks to about 6 GB, and
# its wheels pass through uv's cache.
_LITTLE_GB, SOME_GB, TORCH_GB = 0.1, 1, 12


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder that a build writes into. Where `is_more`, `size_bytes` is what was counted before time was up."""

    name: str
    path: str
    free_bytes: int
    needed_bytes: int
    size_bytes: int | None
    is_more: bool
    is_writable: bool  # or can be made, where it is not there yet

    def text(self) -> str:
        """Return where it is, what is free there, and its size."""
        size = "" if self.size_bytes is None else f", {'more than ' * self.is_more}{_size(self.size_bytes)}"
        return f"{self.path}: {_size(self.free_bytes)} free{size}"


def places(settings: Settings, uv: str | None, packages_gb: float, walk_s: float = _WALK_S) -> Iterator[Place]:
    """Yield the folders that a build writes into; uv's cache, the largest, is counted last.

    `packages_gb` must be free where packages are installed. Sizes are counted for `walk_s` seconds.
    """
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # its disk is full or read-only
        temporary = "/tmp"
    folders: list[tuple[str, Path, tuple[str, ...], float]] = [
        ("cache", settings.cache, ("envs", "overlays"), packages_gb),
        ("results", settings.root / "notebooks" / ".uvnote", ("cache",), _LITTLE_GB),
        ("pages", Path("site"), (), _LITTLE_GB),
        ("temporary folder", Path(temporary), (), _LITTLE_GB),
    ]
    if uv:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            folders.append(("uv's cache", Path(output_of(uv, "cache", "dir")), (".",), packages_gb))
    until = time.monotonic() + walk_s
    for name, folder, counted, needed_gb in folders:
        absolute = folder.absolute()
        existing = next(path for path in (absolute, *absolute.parents) if os.access(path, os.F_OK))
        written = (existing, *(absolute / part for part in counted if os.access(absolute / part, os.F_OK)))
        size, is_whole = _count((folder / part for part in counted), until)
        yield Place(
            name=name,
            path=str(folder),
            free_bytes=shutil.disk_usage(existing).free,
            needed_bytes=int(needed_gb * _GB),
            size_bytes=size if counted else None,
            is_more=not is_whole,
            is_writable=all(path.is_dir() and os.access(path, os.W_OK | os.X_OK) for path in written),
        )


def lacking(places: Iterable[Place]) -> Iterator[str]:
    """Yield a sentence for each folder that cannot be written to, and for those of one disk with too little free."""
    short: dict[tuple[int, int], list[Place]] = {}
    for place in places:
        if not place.is_writable:
            yield (
                f"{place.name} must be in a writable folder, got {place.path}; change its owner or "
                f"mode, or {_ELSEWHERE}"
            )
        if place.free_bytes < place.needed_bytes:
            short.setdefault((place.needed_bytes, place.free_bytes), []).append(place)
    for (needed, free), of_disk in short.items():
        where = ", ".join(f"{place.name} ({place.path})" for place in of_disk)
        why = ", roughly, to install torch with CUDA" if needed == TORCH_GB * _GB else ""
        yield (f"{needed / _GB:g} GB must be free{why} for {where}, got {_size(free)}; free some, or {_ELSEWHERE}")


def _count(folders: Iterable[Path], until: float) -> tuple[int, bool]:
    """Return how many bytes the files in these folders have, and whether all were counted."""
    size, ahead = 0, [str(folder) for folder in folders]
    while ahead:
        if time.monotonic() > until:
            return size, False
        with contextlib.suppress(OSError), os.scandir(ahead.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return size, True


def _size(count: int) -> str:
    return f"{count / _GB:,.1f} GB" if count >= _GB / 10 else f"{count / 10**6:,.1f} MB"
