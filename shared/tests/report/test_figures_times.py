"""The figures of times: latency, ranking, throughput and history show what the records hold."""

from __future__ import annotations

import re

import pytest
from drawings import drawing, folded, row, rows, said, small, svgs
from drawn import lines, marks, places, scale, texts, tooltips
from sample_records import CPU, LAUNCH_BOUND, REFERENCE, record, results
from sample_results import LONG, SHORT, SMALL, of_revision

from fluxbench import operations
from fluxbench.operations import sets
from fluxbench.records.schema import SUSTAINED
from fluxbench.report import figures


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

    def test_lines_that_lie_over_each_other_are_drawn_side_by_side(self) -> None:
        ms = {"flex": 0.5, "triton_flash": 0.502, "torch_math": 0.6}
        drawn = drawing("latency", *(record(name, one, ms[name]) for name in ms for one in (SHORT, LONG)))
        x = {name: x for text, (x, _) in marks(drawn.svg).items() for name in ms if text.startswith(f"{name} at 512 ")}
        assert x["flex"] + 5 == pytest.approx(x["triton_flash"])
        assert x["flex"] < x["torch_math"] < x["triton_flash"]
        assert "Lines that nowhere differ by more than 1% are drawn side by side." in said(drawn)
        assert "side by side" not in said(small("latency"))

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
