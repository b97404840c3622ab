"""Blocks print themselves and draw themselves, say the same both times, and let no text become markup."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET

import pytest

from fluxbench.report.blocks import (
    Block,
    Bullets,
    Column,
    Facts,
    Heading,
    Paragraph,
    Row,
    Table,
    Verbatim,
)

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></tr></table>", "&amp;<!--", "]]>'")
TAGS = {
    *("div", "p", "table", "caption", "span", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "ul", "li", "pre")
}


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
        *(Bullets(text, [(text, text)]), Table(columns, [row, heading], text, (text,)), Table(columns, [row])),
    ]


def hostile_texts(count: int) -> list[str]:
    rng = random.Random(0)
    pieces = (*HOSTILE, *"<>&\"'/= \nab", "é", "±")
    return [*HOSTILE, *("".join(rng.choices(pieces, k=rng.randint(1, 12))) for _ in range(count))]


@pytest.mark.parametrize("text", hostile_texts(60))
def test_nothing_of_a_text_is_markup(text: str) -> None:
    for block in blocks_of(text):
        root = parsed(block)
        assert {element.tag for element in root.iter()} <= TAGS
        attributes = {name for element in root.iter() for name in element.attrib}
        assert attributes <= {"class", "role", "tabindex", "aria-label", "scope", "colspan"}
        if not (isinstance(block, Paragraph) and block.kind):
            said = " ".join("".join(root.itertext()).split())
            assert " ".join(text.split()) in said


def test_a_terminal_and_a_page_say_the_same_words() -> None:
    block = table(Row(("flex", "1.25 ±0.01")), Heading("quantized"), caption="A caption.", notes=("A note.",))
    printed = re.findall(r"\w+", block.text().replace("─", ""))
    assert sorted(printed) == sorted(re.findall(r"\w+", " ".join(parsed(block).itertext())))


def test_columns_are_aligned_numbers_to_the_right_and_a_caption_and_notes_stand_around_them() -> None:
    block = table(
        Row(("flex", "1.25")),
        Heading("apart:"),
        Row(("a_long_name", "11.25")),
        caption="Times.",
        notes=("One.", "Two."),
    )
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


def test_a_wide_last_column_has_a_short_rule() -> None:
    block = Table((Column("a", left=True), Column("why", left=True)), [Row(("x", "y" * 60))])
    assert block.text().splitlines()[1] == f"─  {'─' * 44}"


def test_a_table_of_a_page_scrolls_in_itself_and_has_a_name() -> None:
    [region] = parsed(table(Row(("a", "1")), caption="Some title"))
    assert (region.get("role"), region.get("tabindex"), region.get("aria-label")) == ("region", "0", "Some title")
    assert "".join(next(region.iter("caption")).itertext()) == "Some title"
    [unnamed] = parsed(table(Row(("a", "1"))))
    assert unnamed.get("aria-label") == "variant"
    assert list(unnamed.iter("caption")) == []


def test_a_table_of_a_page_says_which_columns_are_numbers_and_which_row_failed() -> None:
    root = parsed(table(Row(("a", "1")), Row(("b", "CRASHED"), failed=True)))
    assert next(root.iter("table")).get("class") == "n2"
    assert [row.get("class") for row in root.iter("tr")] == [None, None, "failed"]
    assert "class" not in next(parsed(Table((Column("a", left=True),), [Row(("x",))])).iter("table")).attrib


def test_cells_are_stripped_the_first_names_its_row_and_long_ones_may_break() -> None:
    root = parsed(table(Row(("  flex", "y" * 45)), Row(("a", "y" * 44))))
    body = [list(row) for row in root.iter("tr")][1:]
    assert [(cell.tag, cell.get("scope"), cell.get("class"), cell.text) for cell in body[0]] == [
        ("th", "row", None, "flex"),
        ("td", None, "wide", "y" * 45),
    ]
    assert body[1][1].get("class") is None


def test_a_heading_spans_all_columns() -> None:
    root = parsed(table(Heading("quantized"), Heading("  a word", note=True)))
    across = [(cell.text, cell.get("colspan"), cell.get("class")) for cell in root.iter("th") if cell.get("colspan")]
    assert across == [("quantized", "2", "across"), ("a word", "2", "across word")]


def test_a_paragraph_is_wrapped_in_a_terminal_and_has_its_kind_in_a_page() -> None:
    long = Paragraph("word " * 40, kind="note")
    assert max(map(len, long.text().splitlines())) <= 110
    assert len(long.text().splitlines()) == 2
    assert parsed(long)[0].get("class") == "note"
    assert parsed(Paragraph("a"))[0].attrib == {}


def test_facts_are_names_and_values() -> None:
    facts = Facts([("device", "H200"), ("a longer name", "of two lines " * 12)])
    first, second, third = facts.text().splitlines()
    assert first == "device         H200"
    assert second.startswith("a longer name  of two lines")
    assert third.startswith(" " * 15 + "two lines of")
    root = parsed(Facts([("device", "H200"), ("driver", "580")]))
    assert [(name.text, value.text) for name, value in zip(root.iter("dt"), root.iter("dd"), strict=True)] == [
        ("device", "H200"),
        ("driver", "580"),
    ]


def test_bullets_say_of_whom_they_are() -> None:
    block = Bullets("Did not pass:", [("CRASHED everywhere: signal 11", "flex, a"), ("a note", "")])
    assert block.text().splitlines() == [
        "Did not pass:",
        "  CRASHED everywhere: signal 11",
        "      flex, a",
        "  a note",
    ]
    first, second = parsed(block).iter("li")
    assert (first.text, first[0].text, first[0].get("class")) == ("CRASHED everywhere: signal 11 ", "flex, a", "of")
    assert (second.text, len(second)) == ("a note", 0)


def test_lines_of_another_program_stay_as_they_are() -> None:
    text = "+-----+\n|  <GPU>  |"
    assert Verbatim(text).text() == text
    assert parsed(Verbatim(text))[0].text == text
