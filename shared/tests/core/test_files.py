"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path

import pytest

from fluxbench.core import files


def test_rows_are_written_as_csv_and_none_is_empty(tmp_path: Path) -> None:
    files.write_rows(tmp_path / "a.csv", [("name", "ms"), ("a, b", None), ("é", 1.5)])
    assert (tmp_path / "a.csv").read_bytes() == 'name,ms\n"a, b",\né,1.5\n'.encode()


def test_the_same_text_is_compressed_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        files.write_gzip(tmp_path / name, "é\n" * 1000)
    assert gzip.decompress((tmp_path / "a").read_bytes()).decode() == "é\n" * 1000
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_text(tmp_path / "a", "old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "no room")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="no room"):
        files.write_text(tmp_path / "a", "new")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("a", "old")]
