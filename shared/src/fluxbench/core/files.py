"""Files that are written whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable
from pathlib import Path


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
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # which an error of writing lacks
        raise
