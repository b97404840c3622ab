"""Figures fit into a page (its colours, its width, its ids), and show what the records hold."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from drawings import drawing, full, row, rows, said, small, svgs
from drawn import lines, overlap, text_box, texts, tooltips, words
from sample_records import LAUNCH_BOUND, REFERENCE, changed, record, results
from sample_results import LONG, SMALL, everything

from fluxbench import variants
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.records.status import Status
from fluxbench.report import figures
from fluxbench.report.figures import Drawing
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import NARROW, WIDE
from fluxbench.variants.forms import EVERY_FORM

OF_VARIANTS = [name for name in figures.names() if name != "speedup"]  # whose marks are shapes
OF_RECORDS = [name for name in OF_VARIANTS if name not in ("history", "lengths")]  # which draw two points or more
REGIMES = {
    **{name: {SUSTAINED} for name in ("latency", "throughput", "frontier", "energy")},
    **{"ranking": {SUSTAINED, BURST}, "parts": {BURST}},
}
FROM_WIDE, FROM_NARROW = 840 - 30, 400 - 20  # CSS pixels of a figure on the narrowest screen that shows its drawing
WITH_TIMES = ("latency", "ranking", "throughput", "frontier")


@pytest.mark.parametrize("name", figures.names())
class TestEveryFigure:
    """The contract of a figure, on whatever there is to draw."""

    def test_is_one_svg_that_is_named_and_reaches_nothing_outside_itself(self, name: str) -> None:
        taken = set(re.findall(r' id="([^"]*)"', full("energy" if name == "history" else "history").svg))
        for svg in svgs(full(name)):
            root = ET.fromstring(svg)
            ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
            assert len(ids) == len(set(ids))
            assert not taken & set(ids)
            taken |= set(ids)
            assert [child.get("id") for child in root[:2]] == root.attrib["aria-labelledby"].split()
            assert set(re.findall(r'(?:url\(|href=")([^)"]+)', svg)) <= {f"#{own}" for own in ids}
            assert not re.search("<(style|metadata|script|image)|font-family:(?! 'Cascadia)", svg)

    def test_text_has_ten_pixels_on_the_narrowest_screen_that_shows_it(self, name: str) -> None:
        drawn = full(name)
        for svg, narrowest in ((drawn.svg, FROM_WIDE), (drawn.narrow, FROM_NARROW)):
            width = float(ET.fromstring(svg).attrib["viewBox"].split()[2])
            sizes = [float(size) for size in re.findall(r"font-size:([\d.]+)px", svg)]
            assert sizes
            assert min(sizes) * narrowest / width >= 10

    def test_no_text_reaches_over_an_edge_or_into_another(self, name: str) -> None:
        for layout, svg in zip((WIDE, NARROW, NARROW), svgs(full(name)), strict=False):
            boxes = [box for element in ET.fromstring(svg).iter() if (box := text_box(element))]
            height = float(ET.fromstring(svg).attrib["viewBox"].split()[3])
            for text, left, top, right, bottom in boxes:
                assert left >= -1, text
                assert right <= layout.width_pt + 1, text
                assert 0 <= top < bottom <= height, text
            for one, other in itertools.combinations(boxes, 2):
                assert not overlap(one, other), (one, other)

    def test_has_a_caption_of_one_line_and_little_else_in_the_drawing(self, name: str) -> None:
        drawn = full(name)
        assert 10 < len(drawn.caption) < 160
        assert drawn.caption.endswith(".")
        assert max(len(text) for text in texts(drawn.svg)) < 80
        assert "95%" not in words(drawn.svg)

    def test_is_the_same_for_the_same_records(self, name: str) -> None:
        assert figures.find(name)(everything()) == full(name)

    def test_is_none_where_nothing_passed(self, name: str) -> None:
        assert figures.find(name)(results()) is None
        assert figures.find(name)(results(record(status=Status.CRASHED))) is None


@pytest.mark.parametrize("name", OF_VARIANTS)
class TestEveryFigureOfVariants:
    """What holds of all figures but the map of shapes."""

    def test_shows_every_variant_that_passed_with_numbers_and_a_regime(self, name: str) -> None:
        drawn = full(name)
        shown = {str(cells["variant"]) for cells in rows(drawn)}
        assert {REFERENCE, "torch_flash_copy", "torch_cudnn", 'a<b>&"c]]>\x01'} <= shown
        tips = tooltips(drawn.svg)
        assert len(tips) >= 4
        assert all(re.search(r"\d", text) and re.search("sustained|burst", text) for text in tips)


@pytest.mark.parametrize("name", OF_RECORDS)
class TestEveryFigureOfRecords:
    """What holds of all figures but the history."""

    def test_names_a_group_in_which_nothing_passed(self, name: str) -> None:
        for svg in (full(name).svg, full(name).narrow):
            assert "Nothing passed: wan" in texts(svg)

    def test_can_show_a_single_point(self, name: str) -> None:
        drawn = drawing(name, record("flex", "wan-720p"))
        assert "wan" in words(drawn.svg)
        assert [cells["workload"] for cells in rows(drawn) if cells["workload"]] == ["wan-720p"]

    def test_has_a_part_for_each_group_and_its_unit_of_x(self, name: str) -> None:
        shown = words(full(name).svg)
        ending = ", against cached tokens" if name == "latency" else " at 131,072 cached tokens"
        assert f"llama3-8b-decode (decoding){ending}" in shown
        assert name == "latency" or "flux1-1024px at 512 text tokens, 4,608 in all" in shown

    def test_says_what_its_numbers_rest_on(self, name: str) -> None:
        labels = said(small(name))
        clocks = {SUSTAINED: "SM clock 1,755 MHz, power 640 W", BURST: "SM clock 1,980 MHz, power 150 W"}
        shown = {regime for regime, clock in clocks.items() if f"10 samples from 5 fresh processes, {clock}" in labels}
        assert shown
        assert shown == REGIMES.get(name, shown)
        assert (BURST in words(small(name).svg)) == (BURST in shown)

    def test_records_of_burst_alone_are_never_called_sustained(self, name: str) -> None:
        drawn = drawing(name, *(changed(one, timings={BURST: one.burst}, energy_mj=None) for one in SMALL))
        if name == "energy":
            assert "Not known: this device has no energy counter, or it was not asked." in texts(drawn.svg)
            assert drawn.caption == "The energy of a call is not known here."
        else:
            for svg in svgs(drawn):
                assert "sustained" not in svg.lower()
                assert "burst" in svg.lower()
            assert "sustained" not in said(drawn).lower()


@pytest.mark.parametrize("name", WITH_TIMES)
def test_the_csv_has_the_times_of_the_regime_that_ranks(name: str) -> None:
    drawn = full(name)
    cells = row(drawn, "torch_cudnn")
    [timed] = [line for line in SMALL if line.variant == "torch_cudnn" and line.workload.name == LONG]
    assert timed.sustained
    assert cells["regime"] == SUSTAINED
    if name == "throughput":
        flops = timed.workload.cost.flops
        low, high = (flops / ms / 1e9 for ms in reversed(timed.sustained.ci95_ms))
        assert [cells["tflops"], cells["tflops_low"], cells["tflops_high"]] == pytest.approx([flops / 4e8, low, high])
    else:
        assert cells["median_ms"] == 0.4
    if name in ("latency", "frontier"):
        assert (cells["ci95_low_ms"], cells["ci95_high_ms"]) == timed.sustained.ci95_ms
    if name != "ranking":
        assert (row(drawn, "flex")["launch_bound"], cells["launch_bound"]) == (1, 0)


@pytest.mark.parametrize("name", ["latency", "throughput", "frontier", "energy"])
def test_a_launch_bound_time_has_its_sign_no_interval_and_a_sentence(name: str) -> None:
    def with_flex(ci: float) -> Drawing:
        late = record("flex", LONG, 0.5, ci=ci, flags=[LAUNCH_BOUND], energy_mj=100.0, energy_ci95_mj=(99.0, 101.0))
        return drawing(name, *SMALL, late)

    drawn = with_flex(0.01)
    assert {"FlexAttention h", "FlexAttention 0.500 h"} & set(texts(drawn.svg))
    assert any(text.startswith("flex h") for text in tooltips(drawn.svg))
    assert " with h " in said(drawn)
    assert " with h " not in said(small(name))
    assert lines(drawn.svg) == lines(with_flex(0.2).svg)


def test_kernels_and_forms_are_told_apart() -> None:
    kernels = [(look(one.name, "eager").colour, look(one.name, "eager").marker) for one in variants.REGISTRY]
    assert len(set(kernels)) == len(kernels)
    forms = [look("flex", form.name) for form in EVERY_FORM]
    assert len({(form.dashes, form.filling) for form in forms}) == len(forms)
    assert len({(form.colour, form.marker) for form in forms}) == 1
    assert look("a kernel of tomorrow", "eager") == look("a kernel of tomorrow", "a form of tomorrow")


def test_a_reader_who_does_not_see_a_figure_gets_its_numbers_by_rank_in_each_precision_class() -> None:
    description = ET.fromstring(full("ranking").svg)[1].text or ""
    assert ", by rank in each precision class, sustained: " in description
    assert "fastest first" not in description
