"""Blocks are printed, and appended as markup to the file that the build names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxbench.report.blocks import Paragraph, Verbatim
from fluxbench.report.display import VARIABLE, show


def test_blocks_are_printed_an_empty_line_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    show(Paragraph("one"), Verbatim("two"))
    assert capsys.readouterr().out == "one\n\ntwo\n\n"


def test_markup_is_appended_where_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "display.html"
    monkeypatch.setenv(VARIABLE, str(path))
    show(Paragraph("é <b>"))
    show(Paragraph("two"), Paragraph("three"))
    assert path.read_text(encoding="utf-8") == "<p>é &lt;b&gt;</p>\n<p>two</p>\n<p>three</p>\n"
