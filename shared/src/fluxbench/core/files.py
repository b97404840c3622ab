"""Files that are written whole or not at all, and files of others that are read without following a link."""

from __future__ import annotations

import csv
import ctypes
import errno
import gzip
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_text(path: Path, text: str) -> None:
    """Replace a file by a new text in one step; on failure the old file stays. Raises `OSError`."""
    write_bytes(path, text.encode("utf-8"))


def write_gzip(path: Path, content: str | bytes) -> None:
    """Replace a file by compressed content in one step; the same content gives the same bytes. Raises `OSError`."""
    content = content.encode("utf-8") if isinstance(content, str) else content
    write_bytes(path, gzip.compress(content, compresslevel=9, mtime=0))


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the header first, to a CSV in one step; None is empty. Raises `OSError`."""
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    write_text(path, table.getvalue())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file by new bytes in one step; on failure the old file stays. Raises `OSError`."""
    part = path.with_name(path.name + ".part")
    remove(part)  # whatever a killed run left there
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # which an error of writing lacks
        raise


def open_regular(folder: Path, name: str) -> BinaryIO:
    """Open the regular file `name`, a relative path, inside a folder. No link is followed, no special file opened.

    Raises `OSError`; what is there in place of a regular file is named in its `strerror`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, last = PurePosixPath(name).parts
        for part in folders:
            below = _open(descriptor, part, stat.S_IFDIR, name)
            os.close(descriptor)
            descriptor = below
        return os.fdopen(_open(descriptor, last, stat.S_IFREG, name), "rb")
    finally:
        os.close(descriptor)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return what a regular file holds. Raises `OSError` also where it is none, a link, or longer than `most_bytes`."""
    with open_regular(path.parent, path.name) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is longer than {most_bytes:,} bytes", str(path))
    return content


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it, however deep and with whatever rights.

    What is missing is no error. Raises `OSError`.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if path.is_symlink() or not path.is_dir():
            raise
        _remove_folder(path)


def replace_folder(new: Path, final: Path, aside: Path) -> None:
    """Put a new folder in the place of an old one, which is moved `aside`. Raises `OSError`.

    In one step, where the file system can: then there is a folder at any moment. `restore_folder` undoes what an
    interruption leaves elsewhere.
    """
    remove(aside)
    if final.exists() and _exchange(new, final):
        new.rename(aside)
        return
    if final.exists():
        final.rename(aside)
    new.rename(final)


def restore_folder(final: Path, aside: Path) -> None:
    """Put an old folder back where `replace_folder` was interrupted between its two steps. Raises `OSError`."""
    if aside.exists() and not final.exists():
        aside.rename(final)


def _exchange(one: Path, other: Path) -> bool:
    """Give each of two folders the other's name in one step; return False where that cannot be done."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)  # a C library may lack it, and a file system refuse it
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


def _open(descriptor: int, part: str, kind: int, name: str) -> int:
    mode = stat.S_IFMT(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode)
    if mode != kind:
        what = _KINDS.get(mode, "a regular file")
        raise OSError(errno.EINVAL, f"{what} where {_KINDS.get(kind, 'a regular file')} must be", name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(part, flags | (os.O_DIRECTORY if kind == stat.S_IFDIR else 0), dir_fd=descriptor)


def _remove_folder(top: Path) -> None:
    """Remove a folder. The folders below are moved to its top level by level, so that no path grows too long."""
    unique = secrets.token_hex(8)
    number = 0
    top.chmod(0o700)
    while folders := _folders_of(top):
        for folder in folders:
            folder.chmod(0o700)
            for below in _folders_of(folder):
                below.chmod(0o700)  # without it, it cannot be moved
                below.rename(top / f"{unique}-{number}")
                number += 1
            shutil.rmtree(folder)
    shutil.rmtree(top)


def _folders_of(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
