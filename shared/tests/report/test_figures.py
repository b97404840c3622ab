"""Figures fit into a page (its colours, its width, its ids), and show what the records hold."""

from __future__ import annotations

import functools
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from drawn import bars, lines, marks, overlap, places, scale, text_box, texts, tooltips, words
from sample_records import CPU, LAUNCH_BOUND, REFERENCE, changed, errors, record, results
from sample_results import LONG, SHORT, SMALL, everything, of_revision
from tabled import unfolded

from fluxbench import operations, variants
from fluxbench.analysis.ranking import Ordering
from fluxbench.operations import sets
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Record
from fluxbench.records.status import Status
from fluxbench.report import figures
from fluxbench.report.figures import Drawing
from fluxbench.report.figures.frontier import frontier
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import NARROW, WIDE
from fluxbench.report.picture import Svg
from fluxbench.variants.forms import EVERY_FORM

OF_VARIANTS = [name for name in figures.names() if name != "speedup"]  # whose marks are shapes
OF_RECORDS = [name for name in OF_VARIANTS if name not in ("history", "lengths")]  # which draw two points or more
REGIMES = {
    **{name: {SUSTAINED} for name in ("latency", "throughput", "frontier", "energy")},
    **{"ranking": {SUSTAINED, BURST}, "parts": {BURST}},
}
FROM_WIDE, FROM_NARROW = 840 - 30, 400 - 20  # CSS pixels of a figure on the narrowest screen that shows its drawing
WITH_TIMES = ("latency", "ranking", "throughput", "frontier")


def drawing(name: str, *records: Record, **fields: object) -> Drawing:
    drawn = figures.find(name)(results(*records, **fields))  # type: ignore[arg-type]
    assert drawn is not None
    return drawn


def rows(drawn: Drawing) -> list[dict[str, object]]:
    """Return the rows of the CSV by their columns."""
    header, *cells = drawn.rows
    return [dict(zip(map(str, header), row, strict=True)) for row in cells]


def row(drawn: Drawing, variant: str, workload: str = LONG) -> dict[str, object]:
    [cells] = [line for line in rows(drawn) if (line["variant"], line["workload"]) == (variant, workload)]
    return cells


def said(drawn: Drawing) -> str:
    """Return what stands below a figure in one line: the caption, and how to read it."""
    return " ".join([drawn.caption, *(" ".join(block.text().split()) for block in drawn.details)])


def folded(drawn: Drawing) -> str:
    """Return the drawing in the fold below a figure."""
    [svg] = [block.svg for block in unfolded(drawn.details) if isinstance(block, Svg)]
    return svg


@functools.cache
def full(name: str) -> Drawing:
    """Return what a figure draws of everything."""
    drawn = figures.find(name)(everything())
    assert drawn is not None
    return drawn


@functools.cache
def small(name: str) -> Drawing:
    """Return what a figure draws of `SMALL`."""
    return drawing(name, *SMALL)


def svgs(drawn: Drawing) -> list[str]:
    """Return a figure's drawings: for a wide screen, for a phone, and the one in the fold."""
    return [drawn.svg, drawn.narrow, *(block.svg for block in unfolded(drawn.details) if isinstance(block, Svg))]


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
        assert f"llama3-8b-decode (decode){ending}" in shown
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
    assert lines(drawn.svg) == lines(with_flex(0.9).svg)


class TestLatency:
    def test_a_line_is_at_the_medians_and_its_intervals_at_their_ends(self) -> None:
        times = {SHORT: 1.0, LONG: 4.0}
        svg = drawing("latency", *(record("flex", name, ms, ci=0.2) for name, ms in times.items())).svg
        ticks = [(float(text), places(svg, text)[0][1]) for text in texts(svg) if re.fullmatch("[125]", text)]
        ms = scale([(value, y - 0.34 * 9) for value, y in ticks], log=True)  # a label's baseline lies under its tick
        curve, bars = lines(svg)[:2]
        assert [ms(y) for _, y in curve] == pytest.approx([1, 4], rel=0.01)
        assert sorted(ms(y) for _, y in bars) == pytest.approx([0.8, 1.2, 3.2, 4.8], rel=0.01)
        assert [x for x, _ in curve] == sorted(x for x, _ in curve)
        assert "flex at 512 text tokens: 4.00 ms [3.20, 4.80], sustained" in tooltips(svg)

    def test_rows_have_x_and_its_unit(self) -> None:
        cells = row(small("latency"), REFERENCE, SHORT)
        assert (cells["axis"], cells["length"]) == ("text tokens", 448)

    @pytest.mark.parametrize(("of", "log"), [("flux1-1024px", False), ("llama3-8b-decode", True)])
    def test_the_x_axis_is_logarithmic_where_its_ends_are_far_apart(self, of: str, log: bool) -> None:
        workloads = sets.named([of])
        svg = drawing("latency", *(record("flex", one) for one in workloads)).svg
        ticks = [(one.x, places(svg, f"{one.x:,}")[0][0]) for one in workloads]
        of_x = scale(ticks, log=log)
        assert [of_x(x) for _, x in ticks] == pytest.approx([one.x for one in workloads], rel=0.01)

    def test_one_line_per_kernel_in_the_simplest_form_that_is_not_beaten(self) -> None:
        forms = [record("flex", LONG, 0.7), record("flex_compile_d", LONG, 0.5), record("flex_compile_ma", LONG, 0.499)]
        drawn = drawing("latency", *SMALL, *forms)
        for svg in (drawn.svg, drawn.narrow):
            shown = {"FlexAttention, compiled 0.500", "FlashAttention-2 (SDPA) 0.800, reference", "cuDNN (SDPA) 0.400"}
            assert shown <= set(texts(svg))
        assert {"eager 0.700", "compiled 0.500", "max-autotune 0.499", "layout copy 0.900"} <= set(texts(folded(drawn)))

    def test_a_form_that_is_launch_bound_stands_for_its_kernel_only_if_all_are(self) -> None:
        late = record("flex", LONG, 0.5, flags=[LAUNCH_BOUND])
        drawn = drawing("latency", *SMALL, late, record("flex_compile_d", LONG, 0.7))
        assert "FlexAttention, compiled 0.700" in texts(drawn.svg)
        assert "eager 0.500 h" in texts(folded(drawn))
        assert "FlexAttention 0.500 h" in texts(drawing("latency", *SMALL, late).svg)

    def test_a_form_that_ends_early_says_where_and_does_not_stand_for_its_kernel(self) -> None:
        forms = [record("flex", SHORT, 0.1), record("flex_compile_d", SHORT, 0.4), record("flex_compile_d", LONG, 0.5)]
        assert "FlexAttention, compiled 0.500" in texts(drawing("latency", *SMALL, *forms).svg)
        assert "FlexAttention 0.100 at 448" in texts(drawing("latency", *SMALL, forms[0]).svg)

    @pytest.mark.parametrize("kernels", [12, 13])
    def test_of_many_kernels_the_fastest_are_drawn_and_all_in_the_fold(self, kernels: int) -> None:
        ms = {f"kernel_{index}": 0.5 + 0.1 * index for index in range(kernels)}
        drawn = drawing("latency", *(record(name, one, ms[name]) for name in ms for one in (SHORT, LONG)))
        left_out = kernels > 12
        assert (drawn.caption == "Lower is faster.") == (not left_out)
        assert ("Shown are the 6 of 13 kernels within 2 times the shortest time." in drawn.caption) == left_out
        assert ("kernel_5 1.00" in texts(drawn.svg), "kernel_6 1.10" in texts(drawn.svg)) == (True, not left_out)
        if left_out:
            assert {"kernel_5 1.00", "kernel_6 1.10"} <= set(texts(folded(drawn)))


class TestRanking:
    def test_a_row_is_at_its_ratio_and_its_line_at_the_ends_of_the_interval(self) -> None:
        slow = record("flex", LONG, 2.0, burst_ms=1.35, ci=0.1)
        svg = drawing("ranking", record(), slow).svg
        ticks = [(float(text[:-1]), places(svg, text)[0][0]) for text in texts(svg) if re.fullmatch(r"[\d.]+×", text)]
        ratio = scale(ticks, log=False)
        [(low, first), (high, _)] = lines(svg)[1]
        by_tooltip = {text: (ratio(x), y) for text, (x, y) in marks(svg).items()}
        sustained = by_tooltip["flex: 2.00 [1.80, 2.20] of torch_flash's time, sustained"]
        assert [ratio(low), sustained[0], ratio(high)] == pytest.approx([1.8, 2, 2.2], rel=0.01)
        assert by_tooltip["flex: 1.500 [1.498, 1.501], burst"] == pytest.approx((1.5, first), rel=0.01)
        assert sustained[1] == first > lines(svg)[0][0][1]  # the slower one lies below

    def test_rows_are_in_order_of_rank_by_class_with_both_regimes(self) -> None:
        quantized = record("flash_attn_3_fp8", LONG, 0.3, precision_class="quantized", rel_l2=0.04)
        drawn = drawing("ranking", quantized, *SMALL)
        exact = [("exact", rank, name) for rank, name in enumerate(("torch_cudnn", REFERENCE, "torch_flash_copy"), 1)]
        places_of_all = [(one["precision_class"], one["rank"], one["variant"]) for one in rows(drawn)]
        assert places_of_all == [*exact, ("quantized", 1, "flash_attn_3_fp8")]
        cells = row(drawn, "torch_cudnn")
        assert [cells["ratio"], cells["ratio_low"], cells["ratio_high"]] == pytest.approx([0.5, 0.4975, 0.5025])
        burst = [cells[name] for name in ("burst_ratio", "burst_ratio_low", "burst_ratio_high")]
        assert burst == pytest.approx([1.25, 1.24875, 1.25125])
        assert cells["burst_median_ms"] == 0.9
        assert "quantized kernels" in texts(drawn.svg)
        assert "looser error budgets" in said(drawn)

    def test_signs_stand_behind_ranks(self) -> None:
        capped = record("a", LONG, 0.5, converged={SUSTAINED: False}, flags=[LAUNCH_BOUND])
        labels = texts(drawing("ranking", record(), capped, record("b", LONG, 1.001)).svg)
        assert {"1ch", "a", "2=", "reference"} <= set(labels)

    def test_a_row_per_kernel_in_its_best_form_and_all_forms_in_the_fold(self) -> None:
        drawn = drawing("ranking", *SMALL, record("torch_cudnn_compile_d", LONG, 0.5))
        names = ["cuDNN (SDPA)", "FlashAttention-2 (SDPA)"]
        forms = ["cuDNN (SDPA), compiled", "FlashAttention-2 (SDPA), with a layout copy"]
        assert [[text in texts(svg) for text in (*names, *forms)] for svg in svgs(drawn)] == [
            *([True, True, False, False], [True, True, False, False], [True] * 4),
        ]
        assert drawn.caption == "Left of the line is faster than the reference. 1 of 2 kernels are."

    def test_what_is_far_slower_is_in_the_fold_and_counted(self) -> None:
        drawn = drawing("ranking", record(), record("a", LONG, 5.1), record("b", LONG, 4.9))
        assert ("a" in texts(drawn.svg), "b" in texts(drawn.svg), "a" in texts(folded(drawn))) == (False, True, True)
        assert drawn.caption.endswith("0 of 3 kernels are. 1 kernel over 5 times the least is in the fold.")


class TestThroughput:
    def test_a_line_reaches_from_zero_to_the_end_of_the_interval_beside_the_rates_of_the_device(self) -> None:
        svg = drawing("throughput", record("flex", LONG, 0.8, ci=0.1), rates={"matmul_tflops": 700.0}).svg
        tflops = record("flex", LONG, 0.8).workload.cost.flops / 0.8e9
        ticks = [(float(text), places(svg, text)[0][0]) for text in texts(svg) if re.fullmatch(r"\d+", text)][:5]
        rate = scale(ticks, log=False)
        [(start, _), (end, _)] = lines(svg)[0]
        assert [rate(start), rate(end)] == pytest.approx([0, tflops / 0.9], rel=0.01, abs=1)
        [(_, (x, _))] = marks(svg).items()
        assert rate(x) == pytest.approx(tflops, rel=0.01)
        upright = [rate(line[0][0]) for line in lines(svg, "currentColor") if line[0][0] == line[-1][0]]
        assert {round(value, -1) for value in upright} >= {700, 990}
        assert rate(places(svg, "matmul measured 700")[0][0]) == pytest.approx(700, rel=0.01)
        assert {"bfloat16 peak 990", "matmul measured 700", f"{tflops / 989.5:.1%} of peak"} <= set(texts(svg))

    def test_the_study_may_ask_for_bandwidth(self) -> None:
        one = record(REFERENCE, "llama3-8b-decode-131072", 0.25)
        drawn = drawing("throughput", one, study="made_up_study:DECODE", rates={"copy_gb_s": 4000.0})
        gb_s = one.workload.cost.min_bytes / 0.25e6
        cells = row(drawn, REFERENCE, one.workload.name)
        drawn_gb_s = [cells["gb_s"], cells["gb_s_low"], cells["gb_s_high"]]
        assert drawn_gb_s == pytest.approx([gb_s, gb_s / 1.005, gb_s / 0.995])
        assert cells["share_of_peak"] == pytest.approx(gb_s / 4800)
        assert {"sustained GB/s", "memory peak 4,800", "copy measured 4,000"} <= set(texts(drawn.svg))
        assert "TFLOP/s" not in drawn.svg

    def test_an_unknown_peak_is_not_drawn(self) -> None:
        assert "of peak" not in drawing("throughput", *SMALL, device=CPU).svg

    def test_a_peak_is_held_against_kernels_and_inputs_of_its_precision_alone(self) -> None:
        quantized = record("flash_attn_3_fp8", LONG, 0.3, precision_class="quantized", rel_l2=0.04)
        shape = {**record().workload.shape, "dtype": "float32"}
        wide = operations.workload("attention", "wide", shape, group="wide", x=1, x_unit="tokens")
        drawn = drawing("throughput", quantized, record(REFERENCE, wide))
        assert [cells["share_of_peak"] for cells in rows(drawn)[2:]] == ["", ""]
        assert "quantized" in texts(drawn.svg)

    def test_the_csv_begins_with_the_rates_of_the_device_and_goes_on_fastest_first(self) -> None:
        first, second, *others = rows(drawing("throughput", *SMALL, rates={"matmul_tflops": 700.0}))
        assert [cells["variant"] for cells in others] == ["torch_cudnn", REFERENCE, "torch_flash_copy"]
        assert (first["variant"], first["tflops"]) == ("data-sheet peak", 989.5)
        assert (second["variant"], second["tflops"]) == ("matmul measured", 700.0)


def erring(variant: str, ms: float, rel_l2: float, **fields: object) -> Record:
    return record(variant, LONG, ms, rel_l2=rel_l2, **fields)  # type: ignore[arg-type]


def unbeaten(records: list[Record]) -> list[Record]:
    return frontier(records, Ordering([record for record in records if not record.flags]))


class TestFrontier:
    def test_holds_what_no_faster_kernel_matches_in_error(self) -> None:
        fast, exact = erring("fast", 0.2, 0.05), erring("exact", 0.4, 0.002)
        worse, slow = erring("worse", 0.5, 0.003), erring("slow", 5.0, 0.001)
        alike = erring("alike", 0.6, 0.00195)  # by 2.5% less than one that is faster
        assert unbeaten([slow, worse, exact, fast, alike]) == [fast, exact, slow]

    def test_a_time_that_is_not_measurably_shorter_does_not_make_up_for_an_error(self) -> None:
        noisy, exact, fast = erring("noisy", 0.35, 0.05, ci=0.2), erring("exact", 0.4, 0.002), erring("fast", 0.2, 0.05)
        assert unbeaten([noisy, exact]) == [exact]
        assert unbeaten([noisy, exact, fast]) == [fast, exact]

    def test_what_is_level_in_both_is_on_it_and_what_is_launch_bound_is_not(self) -> None:
        level = [erring("a", 0.4, 0.002), erring("b", 0.401, 0.00195)]
        late = erring("late", 0.2, 0.001, flags=[LAUNCH_BOUND])
        assert unbeaten([*level, late]) == level

    def test_a_mark_is_at_time_and_error_with_the_interval_of_the_time(self) -> None:
        svg = drawing("frontier", erring("flex", 2.0, 0.004, ci=0.2), erring("torch_cudnn", 9.0, 0.002)).svg
        x_ticks = [(float(t), places(svg, t)[0][0]) for t in texts(svg) if re.fullmatch(r"[1-9](\.5)?|10", t)]
        y_ticks = [(float(t), places(svg, t)[0][1] - 0.34 * 9) for t in texts(svg) if re.fullmatch(r"0\.00\d", t)]
        ms, error = scale(x_ticks, log=True), scale(y_ticks, log=True)
        (x, y) = marks(svg)["flex: 2.00 ms [1.60, 2.40] sustained, relative error 4.00e-03"]
        assert (ms(x), error(y)) == pytest.approx((2, 0.004), rel=0.01)
        assert [ms(x) for x, _ in lines(svg)[0]] == pytest.approx([1.6, 2.4], rel=0.01)
        [(_, beside), (_, key)] = sorted(places(svg, "FlexAttention"))  # its name stands below its mark, and in the key
        assert y < beside < y + 25
        [steps] = [line for line in lines(svg, "currentColor") if len(line) == 4]
        corners = [pytest.approx(corner, rel=0.01) for corner in ((2, 0.004), (9, 0.004), (9, 0.002))]
        assert [(ms(x), error(y)) for x, y in steps[:3]] == corners
        assert key < places(svg, "9.00")[0][1]  # the slower one lies below

    def test_a_kernel_is_shown_in_its_fastest_form_and_the_csv_has_all(self) -> None:
        drawn = small("frontier")
        assert [text.split(":")[0] for text in tooltips(drawn.svg)] == ["torch_cudnn", REFERENCE]
        on_frontier = {one["variant"]: one["on_frontier"] for one in rows(drawn)}
        assert list(on_frontier.items()) == [("torch_cudnn", True), (REFERENCE, False), ("torch_flash_copy", False)]

    def test_a_launch_bound_form_stands_for_no_kernel_that_has_another(self) -> None:
        late, other = erring("flex", 0.2, 0.003, flags=[LAUNCH_BOUND]), erring("flex_compile_d", 0.6, 0.003)
        tips = tooltips(drawing("frontier", late, erring("torch_cudnn", 0.4, 0.002), other).svg)
        assert [text.split(":")[0] for text in tips] == ["torch_cudnn", "flex_compile_d"]

    def test_of_several_outputs_the_one_nearest_to_its_budget_counts(self) -> None:
        both = {"dq": errors(0.001, 0.01), "dk": errors(0.004, 0.005)}
        drawn = drawing("frontier", changed(record("flex", "flux1-512px-t512-backward"), errors=both))
        cells = row(drawn, "flex", "flux1-512px-t512-backward")
        assert (cells["rel_l2"], cells["budget_rel_l2"]) == (0.004, 0.005)
        assert "of the output nearest to its budget" in said(drawn)

    @pytest.mark.parametrize(("second", "drawn"), [(0.06, True), (0.12, False)])
    def test_a_budget_is_drawn_where_all_kernels_of_a_class_share_it(self, second: float, drawn: bool) -> None:
        fields = {"precision_class": "quantized", "rel_l2": 0.05}
        one, other = record("flash_attn_3_fp8", LONG, 0.3, **fields), record("cudnn_frontend_fp8", LONG, 0.3, **fields)  # type: ignore[arg-type]
        labels = texts(drawing("frontier", record(), one, changed(other, errors={"out": errors(0.05, second)})).svg)
        assert "budget, exact" in labels
        assert ("budget, quantized" in labels) == drawn


class TestEnergy:
    def test_rows_are_in_order_of_energy_with_its_interval_and_power(self) -> None:
        less = record("torch_cudnn", LONG, 2.0, energy_mj=100.0, energy_ci95_mj=(90.0, 120.0))
        late = record("late", LONG, energy_mj=50.0, energy_ci95_mj=(49.0, 51.0), flags=[LAUNCH_BOUND])
        drawn = drawing("energy", late, record(), less)
        assert [text.split(":")[0] for text in tooltips(drawn.svg)] == ["torch_cudnn", REFERENCE, "late h"]
        labels = texts(drawn.svg)
        ticks = [(float(text), places(drawn.svg, text)[0][0]) for text in labels if re.fullmatch("[125]0+", text)]
        mj = scale(ticks, log=True)
        (x, _) = marks(drawn.svg)["torch_cudnn: 100 mJ [90, 120] a call, sustained, 640 W"]
        (low, _), (high, _) = lines(drawn.svg)[0]
        assert [mj(low), mj(x), mj(high)] == pytest.approx([90, 100, 120], rel=0.01)
        assert {"100 [90, 120] mJ", "250 ±3 mJ", "640 W"} <= set(labels)
        cells = row(drawn, "torch_cudnn")
        fields = ("energy_mj", "energy_low_mj", "energy_high_mj", "power_w")
        assert [cells[name] for name in fields] == [100, 90, 120, 640]

    def test_what_has_no_energy_is_named_and_not_drawn(self) -> None:
        unknown = record("torch_cudnn", LONG, energy_mj=None, energy_ci95_mj=None, telemetry={})
        drawn = drawing("energy", record(), unknown)
        assert "Unknown for torch_cudnn." in said(drawn)
        assert [row(drawn, "torch_cudnn")[name] for name in ("energy_mj", "power_w")] == ["", ""]
        assert any(text.startswith("Not known: this device") for text in texts(drawing("energy", unknown).svg))


def split(variant: str, call_ms: float, **parts: float) -> Record:
    """Return a record whose call the profiler took apart, in ms."""
    return record(variant, LONG, cupti=Cupti(events_ms=call_ms, kernels_ms=call_ms, span_ms=call_ms, parts_ms=parts))


class TestParts:
    def test_a_call_is_split_by_what_its_kernels_do_shortest_first(self) -> None:
        records = [
            split("torch_flash_copy", 0.9, attention=0.6, copies=0.27, other=0.003),
            split("fp8", 0.45, attention=0.3, quantization=0.15),
            record(),
        ]
        drawn = drawing("parts", *records)
        assert tooltips(drawn.svg) == [
            "fp8, attention: 0.300 ms of 0.450 ms, 66.7%, burst",
            "fp8, quantization: 0.150 ms of 0.450 ms, 33.3%, burst",
            "torch_flash_copy, attention: 0.600 ms of 0.900 ms, 66.7%, burst",
            "torch_flash_copy, copies: 0.270 ms of 0.900 ms, 30.0%, burst",
            "torch_flash_copy, other: 0.00300 ms of 0.900 ms, 0.3%, burst",
        ]
        ends = bars(drawn.svg)
        (start, first), (second, end), (third, last) = (ends[tip] for tip in tooltips(drawn.svg)[2:])
        assert [first, end] == pytest.approx([second, third], abs=0.02)
        shares = [(end - start) / (first - start), (last - start) / (first - start)]
        assert shares == pytest.approx([0.87 / 0.6, 0.873 / 0.6], rel=0.01)
        assert {"quantization 0.15", "copies 0.27"} <= set(texts(drawn.svg))
        assert "Not profiled: torch_flash." in said(drawn)
        copies = {cells["variant"]: (cells["call_ms"], cells["copies_ms"]) for cells in rows(drawn)}
        assert copies == {"torch_flash_copy": (0.9, 0.27), "fp8": (0.45, 0.0), REFERENCE: (0.9, "")}

    def test_parts_of_another_operation_have_their_columns_and_colours(self) -> None:
        drawn = drawing("parts", split("flex", 1.0, attention=0.5, gemm=0.3, norm=0.1))
        assert drawn.rows[0][4:] == ("attention_ms", "quantization_ms", "copies_ms", "gemm_ms", "norm_ms", "other_ms")
        assert {"gemm", "norm", "gemm 0.30"} <= set(texts(drawn.svg))
        assert len(set(re.findall(r"fill:var\(--k\d\)", drawn.svg))) == 4


class TestHistory:
    def test_needs_two_revisions(self) -> None:
        assert figures.find("history")(results(of_revision(1, "flex", 1.0))) is None

    def test_a_line_leads_over_revisions_and_breaks_where_times_must_not_be_compared(self) -> None:
        times = {1: 1.2, 2: 1.1, 3: 1.0}
        earlier = [of_revision(index, "flex", times[index], method_version=5 if index == 1 else 6) for index in (1, 2)]
        drawn = drawing("history", of_revision(3, "flex", 1.0), earlier=tuple(earlier))
        times_of_all = [(cells["revision"], cells["torch"], cells["median_ms"]) for cells in rows(drawn)]
        assert times_of_all == [(1, "2.9.0", 1.2), (2, "2.10.0", 1.1), (3, "2.11.0", 1.0)]
        assert [bool(cells["not_comparable_with_before"]) for cells in rows(drawn)] == [False, True, False]
        assert {"FlexAttention 1.00", "583.10", "2026-02-15", "revision"} <= set(texts(drawn.svg))
        assert tooltips(drawn.svg)[0] == "flex, revision 1: 1.200 ms [1.194, 1.206], sustained"
        [(second, _), (third, _)] = lines(drawn.svg)[0]
        x_of_marks = [x for x, _ in marks(drawn.svg).values()]
        assert [second, third] == pytest.approx(x_of_marks[1:], abs=0.02)
        assert "Times must not be compared between revisions 1 and 2, since" in said(drawn)

    def test_one_line_per_kernel_in_its_simplest_form_and_all_in_the_csv(self) -> None:
        now = [of_revision(2, variant, 1.0) for variant in ("flex_compile_d", "flex", "torch_cudnn")]
        drawn = drawing("history", *now, earlier=(of_revision(1, "flex", 1.1), of_revision(1, "flex_compile_d", 1.0)))
        assert {text.split(",")[0] for text in tooltips(drawn.svg)} == {"flex", "torch_cudnn"}
        assert {cells["variant"] for cells in rows(drawn)} == {"flex", "flex_compile_d", "torch_cudnn"}


def test_kernels_and_forms_are_told_apart() -> None:
    kernels = [(look(one.name, "eager").colour, look(one.name, "eager").marker) for one in variants.REGISTRY]
    assert len(set(kernels)) == len(kernels)
    forms = [look("flex", form.name) for form in EVERY_FORM]
    assert len({(form.dashes, form.filling) for form in forms}) == len(forms)
    assert len({(form.colour, form.marker) for form in forms}) == 1
    assert look("a kernel of tomorrow", "eager") == look("a kernel of tomorrow", "a form of tomorrow")
