"""Blocks print themselves and draw themselves, say the same both times, and let no text become markup."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fluxbench.report import display
from fluxbench.report.blocks import (
    Block,
    Bullets,
    Code,
    Column,
    Facts,
    Fold,
    Heading,
    Name,
    Paragraph,
    Row,
    Table,
    Verbatim,
)
from fluxbench.report.picture import Picture

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></tr></table>", "&amp;<!--", "]]>'")


def table(*rows: Row | Heading, caption: str = "", notes: tuple[str, ...] = ()) -> Table:
    return Table((Column("variant", left=True), Column("sustained\nms")), rows, caption, notes)


def parsed(block: Block) -> ET.Element:
    """Return the markup, which must be well-formed."""
    return ET.fromstring(f"<div>{block.html()}</div>")


def blocks_of(text: str) -> list[Block]:
    """Return a block of each kind with a text in every place that takes one."""
    row, heading = Row((text, text)), Heading(text)
    columns = (Column(text), Column(text))
    return [
        *(Paragraph(text), Paragraph("a", kind=text), Verbatim(text), Facts([(text, text)])),
        *(
            Bullets(text, [(text, text)]),
            Bullets(text, [(text, text)], [(text, text)]),
            Table(columns, [row, heading], text, (text,)),
            Table(columns, [row]),
        ),
        Fold(text, [Paragraph(text), Table(columns, [row])]),
        Table(columns, [Row((Name(text, text), Name(text, "an_id")))], notes=("a", text)),
        Picture(file=text, wide="<svg/>", narrow="<svg/>", caption=text, details=[Paragraph(text)]),
    ]


def hostile_texts(count: int) -> list[str]:
    rng = random.Random(0)
    pieces = (*HOSTILE, *"<>&\"'/= \nab", "é", "±")
    return [*HOSTILE, *("".join(rng.choices(pieces, k=rng.randint(1, 12))) for _ in range(count))]


@pytest.mark.parametrize("text", hostile_texts(60))
def test_nothing_of_a_text_is_markup(text: str) -> None:
    for block in blocks_of(text):
        root = parsed(block)
        assert not {"script", "img"} & {element.tag for element in root.iter()}
        assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
        if not (isinstance(block, Paragraph) and block.kind):
            said = " ".join("".join(root.itertext()).split())
            assert " ".join(text.split()) in said


def test_a_terminal_and_a_page_say_the_same_words() -> None:
    block = table(Row(("flex", "1.25 ±0.01")), Heading("quantized"), caption="A caption.", notes=("A note.",))
    printed = re.findall(r"\w+", block.text().replace("─", ""))
    assert sorted(printed) == sorted(re.findall(r"\w+", " ".join(parsed(block).itertext())))


def test_columns_are_aligned_numbers_to_the_right_and_a_caption_and_notes_stand_around_them() -> None:
    rows = Row(("flex", "1.25")), Heading("apart:"), Row(("a_long_name", "11.25"))
    block = table(*rows, caption="Times.", notes=("One.", "Two."))
    assert block.text().splitlines() == [
        "Times.",
        "             sustained",
        "variant             ms",
        "───────────  ─────────",
        "flex              1.25",
        "apart:",
        "a_long_name      11.25",
        "",
        "One.",
        "",
        "Two.",
    ]


def test_bullets_say_of_whom_they_are() -> None:
    block = Bullets("Did not pass:", [("CRASHED everywhere: signal 11", "flex, a"), ("a note", "")])
    assert block.text().splitlines() == [
        "Did not pass:",
        "  CRASHED everywhere: signal 11",
        "      flex, a",
        "  a note",
    ]


def test_bullets_link_to_what_shows_them_in_a_page_alone() -> None:
    block = Bullets("", [("It is slower.", "flex"), ("It is faster.", "")], [("cell-a", "figure"), ("cell-b", "table")])
    assert block.text().splitlines() == ["  It is slower.", "      flex", "  It is faster."]
    [items] = parsed(block)
    assert [(link.attrib["href"], link.text) for link in items.iter("a")] == [
        ("#cell-a", "figure"),
        ("#cell-b", "table"),
    ]
    assert items.tag == "ul"


def test_a_fold_is_closed_in_a_page_and_printed_whole_in_a_terminal() -> None:
    block = Fold("How to read this", [Paragraph("One."), Fold("More", [Paragraph("Two.")])])
    assert block.text() == "How to read this\n\nOne.\n\nMore\n\nTwo."
    [details] = parsed(block)
    assert [child.tag for child in details] == ["summary", "p", "details"]
    assert "open" not in details.attrib
    assert details[0].text == "How to read this"


def test_a_variant_has_its_name_for_people_and_its_id_in_a_page_and_the_id_in_a_terminal() -> None:
    block = table(Row((Name("FlashAttention-3, compiled", "flash_attn_3_compile_d"), "1")), Row((Name("a", "a"), "2")))
    assert [line.split() for line in block.text().splitlines()[-2:]] == [["flash_attn_3_compile_d", "1"], ["a", "2"]]
    [first, second] = [
        ["".join(code.itertext()) for code in cell] for cell in parsed(block).iter("th") if cell.get("scope") == "row"
    ]
    assert (first, second) == (["FlashAttention-3, compiled", "flash_attn_3_compile_d"], ["a"])


def test_one_note_of_a_table_is_open_and_the_others_are_folded() -> None:
    root = parsed(table(Row(("a", "1")), notes=("One.", "Two.", "Three.")))
    assert [child.tag for child in root] == ["div", "p", "details"]
    assert [line.text for line in root.iter("p")] == ["One.", "Two.", "Three."]
    assert root.find("details") is not None
    assert parsed(table(Row(("a", "1")), notes=("One.",))).find("details") is None


def test_a_figure_has_both_drawings_its_caption_below_them_and_a_fold() -> None:
    block = Picture(
        file="a.svg", wide="<svg>w</svg>", narrow="<svg>n</svg>", caption="Lower.", details=[Paragraph("How.")]
    )
    [figure, fold] = parsed(block)
    assert [(child.get("class"), "".join(child.itertext())) for child in figure] == [
        *(("wide", "w"), ("narrow", "n"), (None, "Lower.")),
    ]
    assert figure.get("data-file") == "a.svg"
    assert "".join(fold.itertext()).split() == ["How", "to", "read", "this", "figure", "How."]
    assert block.text() == "a.svg: Lower.\n\nHow to read this figure\n\nHow."


def test_lines_of_another_program_stay_as_they_are() -> None:
    block = Verbatim("+-----+\n|  <GPU>  |")
    assert block.text() == parsed(block)[0].text == "+-----+\n|  <GPU>  |"


def test_markup_is_appended_where_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "display.html"
    monkeypatch.setenv(display.VARIABLE, str(path))
    display.show(Paragraph("é <b>"))
    display.show(Paragraph("two"), Paragraph("three"))
    assert path.read_text(encoding="utf-8") == "<p>é &lt;b&gt;</p>\n<p>two</p>\n<p>three</p>\n"


def test_lines_of_code_are_indented_below_what_they_are() -> None:
    assert Code("a\n\nb", "PyTorch: flex").text() == "PyTorch: flex:\n    a\n\n    b"


def test_what_stands_between_backticks_in_prose_is_code_and_a_lone_one_is_none() -> None:
    shown = (
        Paragraph("as `a < b` says"),
        Bullets("as `a < b` says", [("see `c`", "")]),
        table(notes=("as `a < b` says",)),
    )
    assert [[code.text for code in parsed(block).iter("code")] for block in shown] == [
        ["a < b"],
        ["a < b", "c"],
        ["a < b"],
    ]
    assert parsed(Paragraph("a ` alone")).find(".//code") is None
