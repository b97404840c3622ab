"""Figures fit into a page: its colours, its width, its ids. And they show what the records hold."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from sample_records import launched_late, make_record, of_old, rested

from fluxbench.analysis.ranking import FORMS
from fluxbench.notebook.style import STYLESHEET
from fluxbench.operations.workloads import SETS
from fluxbench.records.schema import Record, Status
from fluxbench.report.figures import figures as plots
from fluxbench.report.figures.style import BASES, COLOURS, look
from fluxbench.variants import NAMES, REGISTRY

Draw = Callable[[Iterable[Record], Path], None]


def throughput(records: Iterable[Record], svg_path: Path) -> None:
    plots.throughput(records, svg_path, 989.0, 700.0)


FIGURES = [plots.latency, plots.ranking, throughput, plots.frontier, plots.energy]
SMALL = [
    make_record(variant, workload, median_ms)
    for variant, median_ms in (("torch_flash", 0.8), ("torch_flash_copy", 0.9), ("torch_cudnn", 0.4))
    for workload in SETS["flux1-1024px"][-2:]
]


def draw(figure: Draw, records: Iterable[Record], folder: Path, name: str = "figure.svg") -> str:
    figure(records, folder / name)
    return (folder / name).read_text(encoding="utf-8")


def words(svg: str) -> list[str]:
    """Return every text of an SVG."""
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


def told(svg: str) -> list[str]:
    """Return what the marks of an SVG tell."""
    groups = (element for element in ET.fromstring(svg).iter() if element.get("class") == "mark")
    return [group[0].text or "" for group in groups]


def plotted(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2)."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", ["#0a0a0a", "#ffffff"])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_colour_stands_out_from_any_page(colour: str, background: str) -> None:
    assert contrast(colour, background) >= 3


def test_the_pages_have_a_colour_of_every_series_in_both_themes_that_stands_out() -> None:
    css = STYLESHEET.read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in re.findall(r"color-scheme:.*?}", css, re.DOTALL)
    ]
    assert len(themes) == 2
    for theme in themes:
        series = [theme[f"s{number}"] for number in range(1, len(COLOURS) + 1)]
        assert len(set(series)) == len(COLOURS)
        assert min(contrast(colour, theme[name]) for colour in series for name in ("bg", "bg-raised")) >= 4
        texts = (theme[name] for name in ("text", "text-muted", "accent", "bad", "warn"))
        assert min(contrast(text, theme[name]) for text in texts for name in ("bg", "bg-raised", "bg-head")) >= 4.5


def test_variants_are_told_apart_without_colour() -> None:
    kernels = BASES[:11]
    looks = {(look(k + f).marker, look(k + f).dashes, look(k + f).filling) for k in kernels for f in ("", *FORMS)}
    assert len(looks) == 4 * len(kernels)


def test_forms_of_a_kernel_share_its_colour() -> None:
    assert len({look("flex" + form).colour for form in ("", *FORMS)}) == 1


@pytest.mark.parametrize("figure", FIGURES)
class TestEveryFigure:
    def test_takes_text_and_axes_in_the_pages_colour(self, figure: Draw, tmp_path: Path) -> None:
        svg = draw(figure, SMALL, tmp_path)
        series = {str(COLOURS.index(look(record.variant).colour) + 1) for record in SMALL}
        assert set(re.findall(r"(?:stroke|fill):var\(--k(\d)\)", svg)) == series
        assert set(re.findall(r"--k(\d): var\(--s\1, #\w+\)", svg)) == series
        assert re.findall(r"(?:stroke|fill): ?#\w+", svg) == []

    def test_tells_the_numbers_of_a_mark_where_the_pointer_rests(self, figure: Draw, tmp_path: Path) -> None:
        found = told(draw(figure, SMALL, tmp_path))
        assert all(re.search(r"\d", text) and "sustained" in text for text in found if "burst" not in text)
        assert {text.replace(":", " ").split()[0] for text in found} >= {"torch_flash", "torch_cudnn"}

    def test_gives_the_same_bytes_for_the_same_records(self, figure: Draw, tmp_path: Path) -> None:
        (tmp_path / "again").mkdir()
        assert draw(figure, SMALL, tmp_path) == draw(figure, SMALL, tmp_path / "again")

    def test_scales_with_its_container(self, figure: Draw, tmp_path: Path) -> None:
        root = ET.fromstring(draw(figure, SMALL, tmp_path)).attrib
        assert (root["width"], "height" in root, "viewBox" in root) == ("100%", False, True)

    def test_is_named_and_described(self, figure: Draw, tmp_path: Path) -> None:
        root = ET.fromstring(draw(figure, SMALL, tmp_path))
        named = {child.get("id"): child.text for child in root[:2]}
        assert root.get("role") == "img"
        assert all(named[key] for key in root.attrib["aria-labelledby"].split())
        assert "torch_cudnn" in (root[1].text or "")

    def test_refers_to_nothing_outside_itself(self, figure: Draw, tmp_path: Path) -> None:
        svg = draw(figure, SMALL, tmp_path)
        ids = set(re.findall(r' id="([^"]*)"', svg))
        assert svg.startswith("<svg")
        assert set(re.findall(r'(?:url\(|href=")#?([^)"]+)', svg)) <= ids
        assert "<style" not in svg

    def test_shares_no_id_with_another(self, figure: Draw, tmp_path: Path) -> None:
        ids = re.findall(r' id="([^"]*)"', draw(figure, SMALL, tmp_path) + draw(figure, SMALL[:4], tmp_path, "b.svg"))
        assert len(ids) == len(set(ids))

    def test_shows_every_variant_that_passed(self, figure: Draw, tmp_path: Path) -> None:
        draw(figure, SMALL, tmp_path)
        assert {record.variant for record in SMALL} <= {row["variant"] for row in plotted(tmp_path / "figure.csv")}

    def test_names_what_did_not_pass(self, figure: Draw, tmp_path: Path) -> None:
        svg = draw(figure, [*SMALL, make_record("flash_attn_4", status=Status.UNSUPPORTED)], tmp_path)
        assert "UNSUPPORTED flash_attn_4" in " ".join(words(svg))

    @pytest.mark.parametrize("records", [[], [make_record(status=Status.CRASHED)]])
    def test_says_when_nothing_passed(self, figure: Draw, records: list[Record], tmp_path: Path) -> None:
        assert any("Nothing passed" in text for text in words(draw(figure, records, tmp_path)))

    @pytest.mark.parametrize("name", ["wan-720p", "flux1-1024px-t128"])
    def test_can_show_a_single_point(self, figure: Draw, name: str, tmp_path: Path) -> None:
        assert words(draw(figure, [make_record("flex", name)], tmp_path))

    def test_gives_each_model_a_part_of_its_own(self, figure: Draw, tmp_path: Path) -> None:
        found = " ".join(words(draw(figure, [*SMALL, make_record(workload="flux2-512px-t512")], tmp_path)))
        assert "flux1-1024px" in found
        assert "flux2-512px" in found

    def test_names_its_regime_processes_and_clock(self, figure: Draw, tmp_path: Path) -> None:
        found = words(draw(figure, SMALL, tmp_path))
        assert any("sustained" in text.lower() for text in found if "flux1" in text)
        assert "10 samples from 5 fresh processes, SM clock 1,755 MHz, power 640 W" in " ".join(found)
        assert {row["regime"] for row in plotted(tmp_path / "figure.csv") if row["workload"]} == {"sustained"}

    def test_draws_records_without_burst(self, figure: Draw, tmp_path: Path) -> None:
        found = words(draw(figure, map(of_old, SMALL), tmp_path))
        assert not any("burst" in text for text in found)

    def test_keeps_signs_that_mean_something_in_xml(self, figure: Draw, tmp_path: Path) -> None:
        svg = draw(figure, [make_record('a<b>&"c'), make_record("$x_1$")], tmp_path)
        assert any(text.startswith('a<b>&"c') for text in told(svg))


@pytest.mark.parametrize("kernels", [18, 40])
def test_labels_of_the_latency_figure_overlap_neither_each_other_nor_the_text_above(
    kernels: int, tmp_path: Path
) -> None:
    records = [make_record(f"kernel_{i}", w, 0.5) for i in range(kernels) for w in SETS["flux1-1024px"]]
    svg = draw(plots.latency, records, tmp_path)
    heights = sorted(float(y) for y in re.findall(r' y="([\d.]+)"[^>]*>kernel_\d+ 0.500', svg))
    heights = heights[:kernels]  # of the figure with all of them
    assert len(heights) == kernels
    assert min(above - below for below, above in itertools.pairwise(heights)) > 10
    (note,) = (float(y) for y in re.findall(r' y="([\d.]+)"[^>]*>[^<]*simplest form', svg))
    assert heights[0] > note + 10


def test_every_kernel_of_the_registry_has_a_look_of_its_own() -> None:
    looks = [(look(variant.name).colour, look(variant.name).marker) for variant in REGISTRY]
    assert len(set(looks)) == len(looks)


def test_a_long_name_does_not_reach_into_the_plot(tmp_path: Path) -> None:
    name = max((*BASES, *NAMES), key=len) + "_compile_d"
    svg = draw(plots.ranking, [make_record(), make_record(name)], tmp_path)
    (start,) = (float(x) for x in re.findall(rf'x="([\d.]+)"[^>]*>{name}<', svg))
    first_mark = min(float(x) for x in re.findall(r'<use [^>]*x="([\d.]+)"', svg))
    assert start + 0.602 * 9.5 * len(name) < first_mark


def test_where_there_are_many_kernels_the_fastest_are_drawn_again_by_themselves(tmp_path: Path) -> None:
    def found(kernels: int) -> list[str]:
        records = [make_record(f"kernel_{i}", w, 0.5 + 0.1 * i) for i in range(kernels) for w in SETS["flux1-1024px"]]
        return words(draw(plots.latency, records, tmp_path))

    few, many = found(12), found(13)
    assert any("the fastest alone" in text for text in many)
    assert not any("the fastest alone" in text for text in few)
    assert [many.count(label) for label in ("kernel_5 1.00", "kernel_6 1.10")] == [2, 1]


def test_a_curve_that_ends_early_says_where(tmp_path: Path) -> None:
    records = [*SMALL, make_record("flex", SETS["flux1-1024px"][-2], 0.6)]
    assert "flex 0.600 at 448" in words(draw(plots.latency, records, tmp_path))


def test_unknown_rates_are_said_and_not_drawn(tmp_path: Path) -> None:
    plots.throughput(SMALL, tmp_path / "t.svg", None, None)
    text = " ".join(words((tmp_path / "t.svg").read_text(encoding="utf-8")))
    assert "peak unknown" in text
    assert "matmul rate not measured" in text
    assert "of peak" not in text


def test_a_quantized_kernel_has_no_share_of_the_exact_peak(tmp_path: Path) -> None:
    found = words(draw(throughput, [make_record(precision_class="quantized")], tmp_path))
    assert not any("of peak" in text for text in found)
    assert "quantized" in found


def test_known_rates_are_labelled(tmp_path: Path) -> None:
    found = words(draw(throughput, SMALL, tmp_path))
    assert {"bfloat16 peak 989", "matmul measured 700"} <= set(found)


def test_the_ranking_is_in_order_of_the_ratio(tmp_path: Path) -> None:
    draw(plots.ranking, SMALL, tmp_path)
    ratios = [float(row["ratio"]) for row in plotted(tmp_path / "figure.csv")]
    assert ratios == sorted(ratios)


def test_burst_is_a_mark_of_its_own_beside_the_ratio(tmp_path: Path) -> None:
    def marks(records: list[Record], name: str) -> int:
        return draw(plots.ranking, records, tmp_path, name).count("<use ")

    records = [rested(record, 0.7) for record in SMALL]
    assert marks(records, "both.svg") - marks([of_old(record) for record in SMALL], "old.svg") == 3
    assert any("Small hollow diamonds are burst" in text for text in words((tmp_path / "both.svg").read_text("utf-8")))
    assert {row["burst_median_ms"] for row in plotted(tmp_path / "both.csv")} == {"0.7"}


def test_a_ratio_from_rest_far_off_is_still_inside_the_figure(tmp_path: Path) -> None:
    near, far = (rested(make_record("a", median_ms=1.1), burst_ms) for burst_ms in (1.1, 2.9))
    scales = [draw(plots.ranking, [make_record(), record], tmp_path) for record in (near, far)]
    assert ["2.5×" in words(svg) or "3×" in words(svg) for svg in scales] == [False, True]


def test_the_ranking_figure_marks_what_hit_the_cap(tmp_path: Path) -> None:
    some = make_record("a", median_ms=0.5)
    assert some.timing
    hit = launched_late(dataclasses.replace(some, timing=dataclasses.replace(some.timing, precise=False)))
    found = words(draw(plots.ranking, [make_record(), hit], tmp_path))
    assert "-ch" in found
    assert any("h: in one process" in text for text in found)
    assert any("c: the caps of time" in text for text in found)


@pytest.mark.parametrize("figure", [plots.latency, throughput, plots.frontier, plots.energy])
def test_a_time_of_launching_has_its_sign_and_the_figure_explains_it(figure: Draw, tmp_path: Path) -> None:
    svg = draw(figure, [*SMALL, *(launched_late(make_record("flex", r.workload, 0.5)) for r in SMALL[:2])], tmp_path)
    assert {"flex h", "flex 0.500 h"} & set(words(svg))
    assert any(text.startswith("flex h") for text in told(svg))
    assert "is what was timed there (sustained), and such a time has no rank: flex." in " ".join(words(svg))
    found = {(row["variant"], row["launch_bound"]) for row in plotted(tmp_path / "figure.csv") if row["workload"]}
    assert found == {("torch_flash", "0"), ("torch_flash_copy", "0"), ("torch_cudnn", "0"), ("flex", "1")}
    assert "h: in one process" not in " ".join(words(draw(figure, SMALL, tmp_path)))


def test_the_line_of_a_kernel_is_of_a_form_that_was_not_launched_late(tmp_path: Path) -> None:
    late, kept_busy = launched_late(make_record("flex", median_ms=0.5)), make_record("flex_compile_d", median_ms=0.7)
    found = words(draw(plots.latency, [*SMALL, late, kept_busy], tmp_path))
    assert "flex_compile_d 0.700" in found
    assert not any(text.startswith("flex 0.500") for text in found)
    assert "eager 0.500 h" in found


@pytest.mark.parametrize("figure", [plots.latency, throughput, plots.frontier])
def test_the_interval_of_a_time_of_launching_is_not_drawn(figure: Draw, tmp_path: Path) -> None:
    def lines(interval: float, name: str) -> list[str]:
        late = launched_late(make_record("flex", median_ms=0.5, interval=interval))
        return re.findall(r' d="([^"]*)"', draw(figure, [make_record(), late], tmp_path, name))

    assert lines(0.01, "narrow.svg") == lines(0.9, "wide.svg")
