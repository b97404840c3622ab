"""Locks of folders that builds write into, and what a build may replace there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.files import remove
from fluxbench.core.locks import only_one

_PAGE_FOLDER = {"records", "artifacts", "cells", "summary.json"}  # see `page.folder`


@contextmanager
def only_build(work: Path) -> Iterator[None]:
    """Hold a notebook's work folder: two builds at once there would mix up their cells.

    Raises `SetupError` where another build holds it, `OSError` where it cannot be made.
    """
    work.mkdir(parents=True, exist_ok=True)
    with only_one(work / "fluxbench.lock", f"another build runs in {work.parent}; wait until it ends"):
        yield


@contextmanager
def cell_folder(work: Path, inside: Path | None = None) -> Iterator[Path]:
    """Give an empty folder for a cell to run in, outside of the repository, and remove it. Raises `OSError`."""
    folder = Path(tempfile.mkdtemp(prefix=_prefix(work), dir=inside))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # the next build tries again
            remove(folder)


def clear_cell_folders(work: Path) -> None:
    """Remove the folders of cells that killed builds left, while this one holds the notebook's work folder."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(work)}*"):
        with contextlib.suppress(OSError):
            remove(folder)


def _prefix(work: Path) -> str:
    return f"fluxbench-cell-{hashlib.sha256(os.fsencode(work.resolve())).hexdigest()[:12]}-"


def check_page(output: Path, notebook: str, *, keeps_history: bool = False) -> None:
    """Raise `SetupError` where what a build would replace in its output folder is not a page of this notebook."""
    page, folder = output / f"{notebook}.html", output / notebook
    if page.is_dir():
        raise SetupError(f"{page} must be a page, got a folder, where the page would go; choose another --output")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise SetupError(f"{folder} must be a folder, where the page's files would go; choose another --output")
    allowed = {*_PAGE_FOLDER, "history"} if keeps_history else _PAGE_FOLDER
    if others := sorted({path.name for path in folder.iterdir()} - allowed) if folder.is_dir() else []:
        raise SetupError(
            f"{folder} must hold nothing but a page's files, since a build replaces it, got {others[0]!r} there; "
            "choose another --output"
        )
