"""The figures of error, energy and parts of a call show what the records hold."""

from __future__ import annotations

import re

import pytest
from drawings import drawing, row, rows, said, small
from drawn import bars, lines, marks, places, scale, texts, tooltips
from sample_records import LAUNCH_BOUND, REFERENCE, changed, errors, record
from sample_results import LONG

from fluxbench.analysis.ranking import Ordering
from fluxbench.records.schema import Cupti, Record
from fluxbench.report.figures.frontier import frontier, largest_errors


def erring(variant: str, ms: float, rel_l2: float, **fields: object) -> Record:
    return record(variant, LONG, ms, rel_l2=rel_l2, **fields)  # type: ignore[arg-type]


def unbeaten(records: list[Record]) -> list[Record]:
    return frontier(records, Ordering([record for record in records if not record.flags]), largest_errors(records))


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

    def test_the_reference_s_kernel_too_is_shown_in_its_fastest_form(self) -> None:
        """Else what that form beats seems to be beaten by nothing."""
        records = [
            erring("torch_flash", 1.0, 0.002),
            erring("torch_flash_copy", 0.5, 0.002),
            erring("flex", 0.8, 0.002),
        ]
        drawn = drawing("frontier", *records)
        assert [text.split(":")[0] for text in tooltips(drawn.svg)] == ["torch_flash_copy", "flex"]
        assert [one["variant"] for one in rows(drawn) if one["on_frontier"]] == ["torch_flash_copy"]

    def test_a_launch_bound_form_stands_for_no_kernel_that_has_another(self) -> None:
        late, other = erring("flex", 0.2, 0.003, flags=[LAUNCH_BOUND]), erring("flex_compile_d", 0.6, 0.003)
        tips = tooltips(drawing("frontier", late, erring("torch_cudnn", 0.4, 0.002), other).svg)
        assert [text.split(":")[0] for text in tips] == ["torch_cudnn", "flex_compile_d"]

    def test_of_several_outputs_the_largest_error_counts(self) -> None:
        both = {"dq": errors(0.001, 0.01), "dk": errors(0.004, 0.005)}
        drawn = drawing("frontier", changed(record("flex", "flux1-512px-t512-backward"), errors=both))
        assert row(drawn, "flex", "flux1-512px-t512-backward")["rel_l2"] == 0.004
        assert "(of all outputs, on normal and flux inputs)" in said(drawn)

    def test_errors_are_on_the_same_kinds_of_inputs_whatever_took_most_of_a_budget(self) -> None:
        on = {"normal": 0.0023, "flux": 0.0017, "peaked": 0.0022}
        flux = changed(erring("flux", 0.6, 0.0017), errors={"out": errors(0.0017, 0.0033, rel_l2_by_inputs=on)})
        normal = changed(erring("normal", 0.4, 0.0023), errors={"out": errors(0.0023, 0.0044, rel_l2_by_inputs=on)})
        assert largest_errors([flux, normal]) == {"flux": 0.0023, "normal": 0.0023}
        assert unbeaten([flux, normal]) == [normal]  # it is faster, and errs as much

    def test_kinds_on_which_a_quantized_kernel_has_no_budget_do_not_count(self) -> None:
        on = {"normal": 0.05, "flux": 0.04, "peaked": 0.2}
        quantized = erring("flash_attn_3_fp8", 0.3, 0.05, precision_class="quantized")
        quantized = changed(quantized, errors={"out": errors(0.05, 0.06, rel_l2_by_inputs=on)})
        exact = changed(
            erring("flex", 0.6, 0.003), errors={"out": errors(0.003, rel_l2_by_inputs={"normal": 0.002, "flux": 0.001})}
        )
        assert largest_errors([quantized, exact]) == {"flash_attn_3_fp8": 0.05, "flex": 0.002}

    def test_without_errors_by_kind_the_one_recorded_counts(self) -> None:
        old = changed(erring("old", 0.3, 0.004), errors={"out": errors(0.004, rel_l2_by_inputs={})})
        assert largest_errors([old]) == {"old": 0.004}


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
