"""A cell's text as markup: its tables, lists and paragraphs, and nothing of it as markup itself."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest
from sample_records import make_record

from fluxbench.device.detection import describe
from fluxbench.notebook.page_text import drawn
from fluxbench.operations.workloads import named
from fluxbench.records.schema import Status
from fluxbench.report.tables import tables
from fluxbench.report.tables.text import grid


def parsed(text: str) -> ET.Element:
    """Return the markup of a text, which must be well-formed."""
    return ET.fromstring(f"<div>{drawn(text)}</div>")


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of the tables in a text's markup."""
    return [["".join(cell.itertext()) for cell in row] for row in parsed(text).iter("tr")]


def test_aligned_columns_become_a_table() -> None:
    text = grid(
        ("variant", "sustained\nms", "reason"), [("a", "1.25 ±0.01", "none"), ("long_name", "-", "of two words")]
    )
    assert rows(text) == [
        ["variant", "sustained\nms", "reason"],
        ["a", "1.25 ±0.01", "none"],
        ["long_name", "-", "of two words"],
    ]


def test_a_table_knows_which_columns_are_aligned_to_the_right() -> None:
    text = grid(("variant", "ms", "why"), [("a", "1.25", "x"), ("bb", "11.25", "of two words")], left=(0, 2))
    assert 'class="n2"' in drawn(text)


def test_a_sentence_over_a_table_is_its_caption_and_names_the_part_that_scrolls() -> None:
    found = parsed("Some title; sustained:\n\n" + grid(("a", "b"), [("1", "2")]))
    assert "".join(next(found.iter("caption")).itertext()) == "Some title; sustained:"
    region = found[0]
    assert (region.get("role"), region.get("tabindex")) == ("region", "0")
    assert region.get("aria-label") == "Some title; sustained:"
    assert list(found.iter("p")) == []


def test_a_row_across_all_columns_spans_them() -> None:
    text = grid(("variant", "ms"), ["quantized: looser error budgets, so ranked apart", ("a", "1")])
    [across] = [cell for cell in parsed(text).iter("th") if cell.get("colspan")]
    assert (across.text, across.get("colspan")) == ("quantized: looser error budgets, so ranked apart", "2")
    assert rows(text)[-1] == ["a", "1"]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_a_row_of_what_did_not_pass_looks_it(status: Status) -> None:
    records = [make_record(), make_record("flex", status=status)]
    failed = [row for row in parsed(tables.correctness_table(records)).iter("tr") if row.get("class") == "failed"]
    assert [row[-1].text for row in failed] == [f"{status}: {records[1].reason}"]


def test_a_hostile_kind_of_inputs_is_no_markup() -> None:
    record = make_record()
    assert record.correctness
    checked = dataclasses.replace(record.correctness, rel_l2_by_inputs={"<script>": 1.0, "flux": 0.003})
    markup = drawn(tables.correctness_table([dataclasses.replace(record, correctness=checked)]))
    assert "3.00e-03" in markup
    assert "<script" not in markup


def test_every_table_of_a_page_is_drawn_as_one() -> None:
    records = [
        make_record(variant, workload, ms, kernel="void cutlass::device_kernel<flash::FlashAttnFwdSm90<128> >(Params)")
        for variant, ms in (("torch_flash", 1.0), ("torch_cudnn_compile_ma", 0.123456), ("flex", 12.5))
        for workload in named("flux1-1024px")
    ]
    records += [make_record("torch_fa3", each, status=Status.UNSUPPORTED) for each in named("flux1-1024px")]
    for table in (
        tables.timing_table,
        tables.ranking_table,
        tables.state_table,
        tables.correctness_table,
        tables.kernels_table,
    ):
        text = table(records)
        markup = drawn(text)
        assert markup.count("<table") == len(re.findall("^─", text, re.MULTILINE))
        assert "─" not in markup
        words = re.findall(r"\w+", " ".join(parsed(text).itertext()))
        assert sorted(words) == sorted(re.findall(r"\w+", text))  # nothing is lost and nothing told twice


def test_names_and_values_become_a_list_of_pairs() -> None:
    from fakes import GPU

    found = parsed(describe(dataclasses.replace(GPU, note="<odd>")))
    pairs = dict(zip((e.text for e in found.iter("dt")), (e.text for e in found.iter("dd")), strict=True))
    assert pairs["device"] == "NVIDIA Made Up"
    assert pairs["note"] == "<odd>"


def test_a_value_of_several_lines_is_one() -> None:
    found = parsed("source    of a data sheet\n          and of more\npeak      3 TFLOP/s")
    assert [each.text for each in found.iter("dd")] == ["of a data sheet and of more", "3 TFLOP/s"]


def test_wrapped_lines_are_one_paragraph_and_short_ones_are_several() -> None:
    long = "a word " * 15 + "at the end of it"
    assert [each.text for each in parsed(f"{long}\nand on\nIt ends.").iter("p")] == [f"{long} and on", "It ends."]


def test_what_did_not_pass_becomes_a_list_with_whom_it_is_of() -> None:
    found = parsed(tables.timing_table([make_record("a"), make_record("flex", status=Status.CRASHED)]))
    [item] = found.iter("li")
    assert item.text == "CRASHED everywhere: the worker ended on signal 11 "
    assert item[0].text == "flex"


def test_columns_without_a_rule_stay_as_they_are() -> None:
    text = "+-----+\n| GPU |\n+-----+"
    assert drawn(text) == f'<pre tabindex="0">{text}</pre>'


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x>:\n\n" + grid(("<b>", '"'), [("<i>", "&amp;"), "<u>across"]),
        "a  <b>\nbb <i>",
        "lead\n  <li>\n      <of>",
        "  | <pre> |",
    ],
)
def test_nothing_of_a_text_is_markup(text: str) -> None:
    found = parsed(text)
    known = {
        "div",
        "p",
        "table",
        "caption",
        "span",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "pre",
    }
    assert {element.tag for element in found.iter()} <= known
    marks = re.findall(r"<\w+>|&amp;", text)
    assert all(mark in "".join(found.itertext()) for mark in marks)
