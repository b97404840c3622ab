"""Copies of the repository for jobs, so that no two of them write one folder, and no edit reaches a running one."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.files import remove, write_bytes
from fluxbench.fleet.pair import Pair

_CODE = "code"
_COPIED = ("shared/src", "shared/pyproject.toml", "shared/README.md", "shared/kernels.lock", "environment")
_LINKED = ("shared", "environment")
_UV = "uv.toml"  # beside the notebooks


def snapshot(root: Path, fleet: Path) -> Path:
    """Copy what builds run to `code/<hash>/`, unless it is there, and return that folder. Raises `OSError`."""
    files = [path for name in _COPIED for path in _files(root / name)]
    folder = fleet / _CODE / _hash(root, files)
    if folder.is_dir():
        return folder
    new = folder.with_name(f".{folder.name}.new")
    remove(new)
    try:
        for path in files:
            copy = new / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        new.rename(folder)
    except OSError:
        remove(new)
        raise
    return folder


def prepare(pair: Pair, notebook: Path, code: Path) -> None:
    """Let a pair's jobs build this notebook with this code; results of earlier jobs stay. Raises `OSError`."""
    pair.document.parent.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        link = pair.work / name
        if not link.is_symlink() or link.readlink() != _relative(code / name, pair.work):
            remove(link)
            link.symlink_to(_relative(code / name, pair.work))
    for source, copy in ((notebook, pair.document), (notebook.with_name(_UV), pair.document.with_name(_UV))):
        if source.is_file():
            write_bytes(copy, source.read_bytes())


def built_from(notebook: Path, code: Path) -> str:
    """Return a hash of all that a pair is built from. Raises `SetupError` where the notebook cannot be read."""
    try:
        return hashlib.sha256(code.name.encode() + notebook.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise SetupError(f"a notebook must be a readable file, got {notebook}: {error.strerror}") from error


def clear(fleet: Path, pairs: Iterable[Pair]) -> None:
    """Remove the code that no pair is built with any more. Raises `OSError`."""
    linked = {(pair.work / _LINKED[0]).resolve().parent for pair in pairs}
    for folder in (fleet / _CODE).glob("*"):
        if folder.resolve() not in linked:
            remove(folder)


def _files(path: Path) -> list[Path]:
    """Return a file, or all files of a folder that are no leftovers of running it."""
    if path.is_file():
        return [path]
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return [file for file in files if "__pycache__" not in file.parts]


def _hash(root: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _relative(path: Path, folder: Path) -> Path:
    return Path(os.path.relpath(path, folder))
