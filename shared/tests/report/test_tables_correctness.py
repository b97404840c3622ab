"""Correctness has a row per variant, workload and output, with the budget and the verdict, and all fields as a CSV."""

from __future__ import annotations

import msgspec
import pytest
from sample_records import REASONS, TELEMETRY, changed, errors, record, results
from tabled import cells, heads, rows_of, table_of, words

from fluxbench.operations import sets
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Errors, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Heading, Row, Table
from fluxbench.report.flags import all_words
from fluxbench.report.tables.correctness import blocks, rows

LENGTHS = sets.sets()["flux1-1024px"]
BACKWARD = sets.sets()["flux1-1024px-backward"][0]


def correctness(*records: Record) -> Table:
    return table_of(blocks(results(*records)))


def of(found: Errors) -> Record:
    return record(errors={"out": found})


def csv(*records: Record) -> list[dict[str, object]]:
    header, *body = rows(results(*records))
    return [dict(zip(map(str, header), row, strict=True)) for row in body]


def test_a_row_has_the_error_on_each_kind_of_inputs_and_the_judged_one_with_its_budget() -> None:
    table = correctness(record())
    assert cells(table, "flux1-1024px-t512") == {
        "workload": "flux1-1024px-t512",
        **{"rel L2 normal": "2.30e-03", "rel L2 Flux-like": "3.00e-03"},
        **{"rel L2 largest": "3.00e-03", "rel L2 judged": "3.00e-03"},
        **{"budget": "6.10e-03", "error / budget": "49%", "abs max": "1.10e-02", "mean abs": "4.00e-04"},
        **{"worst head / budget": "-", "worst row / budget": "-"},
        **{"MSE": "3.10e-07", "cosine": "0.9999960", "NaN": "0", "verdict": "PASSED"},
    }


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (errors(rel_l2_by_inputs={"normal": None}), {"rel L2 normal": "not finite"}),
        (errors(None, nan_count=3), {"rel L2 judged": "-", "error / budget": "-", "NaN": "3"}),
        (errors(0.0), {"rel L2 judged": "0.00e+00", "error / budget": "0%"}),
        (errors(0.0, 0.0), {"budget": "0.00e+00", "error / budget": "-"}),
        (errors(max_abs=None, mean_abs=None, mse=None, cosine=None), {"abs max": "-", "MSE": "-", "cosine": "-"}),
    ],
)
def test_what_is_not_finite_or_unknown_is_said(found: Errors, shown: dict[str, str]) -> None:
    row = cells(correctness(of(found)), "flux1-1024px-t512")
    assert {name: row[name] for name in shown} == shown


def test_kinds_of_inputs_are_those_that_are_recorded() -> None:
    assert heads(correctness(of(errors(rel_l2_by_inputs={}))))[1:2] == ["rel L2 judged"]
    table = correctness(record("a", errors={"out": errors(rel_l2_by_inputs={"ramp": 0.1})}), record())
    of_kinds = ["rel L2 ramp", "rel L2 normal", "rel L2 Flux-like", "rel L2 largest", "rel L2 judged"]
    assert heads(table)[1:6] == of_kinds
    assert rows_of(table)[0][1:4] == ("1.00e-01", "-", "-")


def test_each_output_has_a_row_where_there_are_several() -> None:
    outputs = {"dq": errors(0.001), "dk": errors(0.002), "dv": errors(0.003)}
    table = correctness(record(workload=BACKWARD, errors=outputs), record("flex", BACKWARD, status=Status.CRASHED))
    assert heads(table)[:2] == ["workload", "output"]
    found = [(row[1], row[5]) for row in rows_of(table)]
    assert found == [("dq", "1.00e-03"), ("dk", "2.00e-03"), ("dv", "3.00e-03")]


def test_rows_are_of_each_variant_by_x_below_its_name_and_class() -> None:
    records = [record(name, w, precision_class="quantized") for name in ("fp8", "q8") for w in LENGTHS[1::-1]]
    table = correctness(*records, record(workload=LENGTHS[0]))
    assert [row.words if isinstance(row, Heading) else row.texts()[0] for row in table.rows] == [
        *("fp8  (quantized)", "  flux1-1024px-t128", "  flux1-1024px-t256"),
        *("q8  (quantized)", "  flux1-1024px-t128", "  flux1-1024px-t256"),
        *("FlashAttention-2 (SDPA), torch_flash", "  flux1-1024px-t128"),
    ]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_did_not_pass_says_why_and_stands_out(status: Status) -> None:
    table = correctness(record(), record("flex", LENGTHS[0]), record("flex", status=status))
    assert [row.failed for row in table.rows if isinstance(row, Row)] == [False, False, True]
    assert rows_of(table)[2][-1] == f"{status.value}: {REASONS[status]}"
    assert (rows_of(table)[2][3] == "-") == (status is not Status.INCORRECT)


@pytest.mark.parametrize(("status", "shown"), [(Status.UNAVAILABLE, False), (Status.INCORRECT, True)])
def test_what_was_never_checked_has_no_rows(status: Status, shown: bool) -> None:
    table = correctness(record(), record("flex", LENGTHS[0], status=status), record("flex", status=status))
    assert (len(rows_of(table)) == 3) == shown


def test_how_many_are_within_their_budgets_and_which_is_nearest_stands_first() -> None:
    near = record("flex", LENGTHS[0], errors={"out": errors(0.0045, 0.005)})
    said = blocks(results(record(), near, record("a", status=Status.INCORRECT), record("b", status=Status.CRASHED)))[0]
    assert " ".join(said.text().split()) == (
        "2 of 3 checked rows are within their error budgets. The nearest to a budget is FlexAttention at "
        "flux1-1024px-t128, with 90% of the whole output's."
    )


def test_the_nearest_to_a_budget_is_so_in_a_head_or_a_row_too() -> None:
    near = record("flex", errors={"out": errors(0.0045, 0.005, head_budget_share=0.93)})
    assert "with 93% of a head's." in blocks(results(record(), near))[0].text()
    other = record("torch_math", errors={"out": errors(head_budget_share=0.5, row_budget_share=0.95)})
    assert "with 95% of a row's." in blocks(results(near, other))[0].text()


def test_the_csv_has_a_row_per_record_and_output_with_its_workload() -> None:
    found = csv(record(), record("flex_compile_d", BACKWARD), record("a", LENGTHS[0], status=Status.CRASHED))
    assert [(row["variant"], row["kernel"], row["form"], row["output"]) for row in found] == [
        ("torch_flash", "torch_flash", "eager", "out"),
        *(("flex_compile_d", "flex", "compile_d", output) for output in ("dq", "dk", "dv")),
        ("a", "a", "eager", None),
    ]
    first = {"workload": "flux1-1024px-t512", "operation": "attention", "group": "flux1-1024px", "x": 512, "ranks": 1}
    shape = {"x_unit": "text tokens", "seq_len_q": 4608, "heads": 24, "head_dim_v": 128, "causal": False, "batch": 1}
    assert {name: found[0][name] for name in first | shape} == first | shape


def test_the_csv_has_both_regimes_and_what_is_beside_them() -> None:
    sustained = msgspec.structs.replace(record("a").timings[SUSTAINED], discarded=4, samples_ms=((1.0,) * 7, (1.0,)))
    flags = (Flag(kind=FlagKind.NO_CUPTI, regime=BURST), Flag(kind=FlagKind.NO_TELEMETRY))
    hot = msgspec.structs.replace(TELEMETRY[BURST], throttle_reasons=("hot", "power"))
    made = changed(
        record("a", sustained_ms=0.8, burst_ms=0.63, converged={BURST: False}),
        flags=flags,
        cupti=Cupti(events_ms=1.2, kernels_ms=0.9, span_ms=1.0),
        telemetry={**TELEMETRY, BURST: hot},
    )
    [row] = csv(changed(made, timings={**made.timings, SUSTAINED: sustained}))
    expected = {
        **{"regime": "sustained", "reference_variant": "torch_flash", "processes": 2, "samples": 8, "discarded": 4},
        **{"median_ms": 1.0, "ci95_low_ms": 0.995, "ci95_high_ms": 1.005, "ratio": 1.0, "ratio_low": 0.995},
        **{"ratio_high": 1.005, "converged": None, "sm_clock_mhz": 1755, "power_w": 640, "temperature_c": 61},
        **{"burst_processes": 5, "burst_samples": 10, "burst_median_ms": 0.63, "burst_ratio": 0.7},
        **{"burst_converged": False, "burst_sm_clock_mhz": 1980, "burst_throttle_reasons": "hot; power"},
        **{"energy_mj": 250, "energy_ci95_low_mj": 247, "energy_ci95_high_mj": 253, "launch_ms": 0.06, "device_s": 1.1},
        **{"dominant_kernel": "flash_fwd_kernel", "driver": "580.10", "throttle_reasons": None, "status": "PASSED"},
        **{"rel_l2": 0.003, "rel_l2_normal": 0.0023, "rel_l2_flux": 0.003, "budget_rel_l2": 0.0061, "nan_count": 0},
        **{
            "method_version": METHOD_VERSION,
            "precision_class": "exact",
            "peak_memory_bytes": 28_311_552,
            "reason": None,
        },
    }
    assert {name: row[name] for name in expected} == expected
    assert row["cupti_difference"] == pytest.approx(0.2)
    assert row["tflops"] == pytest.approx(260.9, rel=1e-3)
    assert row["gb_s"] == pytest.approx(113.2, rel=1e-3)
    assert row["flags"] == "; ".join(all_words(made))


def test_the_csv_of_what_did_not_pass_is_empty_where_nothing_is_known() -> None:
    [row] = csv(record(status=Status.CRASHED))
    assert (row["status"], row["reason"]) == ("CRASHED", REASONS[Status.CRASHED])
    assert {row[name] for name in ("regime", "median_ms", "rel_l2", "tflops", "flags", "dominant_kernel")} == {None}


def test_errors_of_quantized_kernels_on_inputs_without_a_budget_stand_beside_the_count_of_those_within() -> None:
    def quantized(
        variant: str, workload: str = "flux1-1024px-t512", status: Status = Status.PASSED, **by_inputs: float | None
    ) -> Record:
        found = errors(0.059, 0.12, rel_l2_by_inputs={"normal": 0.059, "flux": 0.05, **by_inputs})
        return record(variant, workload, status=status, precision_class="quantized", errors={"out": found})

    shown = blocks(results(
        record(), quantized("cudnn_frontend_fp8", peaked=0.16, tailed=0.9),
        quantized("cudnn_frontend_fp8", "flux1-1024px-t128", peaked=0.15, tailed=0.95),
        quantized("sage_int8_fp16_triton", peaked=0.038, tailed=0.016), quantized("flash_attn_3_fp8", peaked=None),
        quantized("sage_int8_fp16_cuda", status=Status.INCORRECT, peaked=0.5),
    ))  # fmt: skip
    expected = (
        "5 of 6 checked rows are within their error budgets. Of these, 4 rows are of quantized kernels, which have no "
        "budget on peaked and tailed inputs. Their largest relative L2 errors there: FlashAttention-3 float8 not "
        "finite (peaked), cuDNN Frontend float8 95% (tailed), SageAttention int8 (Triton) 3.8% (peaked). The nearest"
    )
    assert expected in words(shown[:1])
    table = table_of(shown)
    assert cells(table, "flux1-1024px-t128")["rel L2 largest"] == "9.50e-01"
    assert cells(table, "flux1-1024px-t128")["rel L2 judged"] == "5.90e-02"
    assert "no budget" not in words(blocks(results(record()))[:1])
