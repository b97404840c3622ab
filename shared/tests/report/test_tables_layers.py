"""Tables of whole layers: the three passes beside one another, what a call is spent on, and the published table."""

from __future__ import annotations

import pytest
from sample_records import CPU, record, results
from tabled import cells, rows_of, table_of, words

from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, Cupti, KernelShare, Record
from fluxbench.records.status import Status
from fluxbench.report.tables import layer_parts, layers, layers_published

ONE = {workload.operation: workload for workload in sets.sets()["layers-models"] if workload.group == "llama3-8b"}
THEIRS = {workload.name: workload for workload in sets.sets()["layers-published"]}
FORWARD, BACKWARD, TRAINING = ONE["layer"], ONE["layer_backward"], ONE["layer_training"]


def timed(variant: str, workload: Workload, ms: float, ci: float = 0.001) -> Record:
    return record(variant, workload, burst_ms=ms, burst_ci=ci, reference_ms=4 / 0.9, regimes=[BURST])


def passes(variant: str, forward: float, backward: float, total: float) -> list[Record]:
    return [
        timed(variant, workload, ms)
        for workload, ms in ((TRAINING, total), (FORWARD, forward), (BACKWARD, backward))
    ]  # fmt: skip


SLOW, FAST = passes("torch_math", 4.0, 8.0, 12.0), passes("flash_attn_4", 1.0, 2.0, 2.4)
NATIVE = passes("torch_native", 2.0, 4.0, 6.6)


def test_each_pass_stands_in_its_own_column_with_its_speed() -> None:
    lacking = record("flash_attn_3", TRAINING, status=Status.UNSUPPORTED, regimes=[BURST])
    shown = layers.blocks(results(*SLOW, *FAST, *NATIVE, timed("flash_attn_3", FORWARD, 1.1), lacking))
    table = table_of(
        shown, "llama3-8b: grouped-query, 32/8 heads of 128, width 4,096, 1 x 4,096 tokens, rotary, causal"
    )
    row = cells(table, "flash_attn_4")
    assert (row["forward ms"][:4], row["backward ms"][:4], row["total ms"][:4]) == ("1.00", "2.00", "2.40")
    assert [name for name, *_ in rows_of(table)] == ["flash_attn_4", "torch_native", "torch_math", "flash_attn_3"]
    speeds = [rows_of(table)[0][place][:5] for place in (2, 5, 7)]
    assert speeds == ["5.000", "4.000", "4.000"]
    assert cells(table, "flash_attn_3")["total ms"] == "UNSUPPORTED"


@pytest.mark.parametrize(("total", "mark"), [(2.4, " <"), (3.0, ""), (3.3, " >")])
def test_a_total_is_marked_where_it_is_not_the_sum_of_its_parts(total: float, mark: str) -> None:
    shown = layers.blocks(results(*SLOW, *passes("flash_attn_4", 1.0, 2.0, total)))
    of_sum = cells(table_of(shown, "llama3-8b: "), "flash_attn_4")["total / sum"]
    assert of_sum.startswith(f"{total / 3:.1f}")
    assert of_sum.endswith(f"]{mark}")


def test_the_fastest_of_each_layer_and_by_how_much_over_the_others() -> None:
    shown = layers.blocks(results(*SLOW, *FAST, *NATIVE))
    row = rows_of(table_of(shown, "The fastest implementation"))[0]
    assert (row[:2], row[4:]) == (("llama3-8b", "FlashAttention-4"), ("FlashAttention-4", "FlashAttention-4"))
    assert (row[2][:5], row[3][:5]) == ("5.000", "2.750")
    assert (
        "FlashAttention-4 is measurably the fastest at 1 of 1 layer. The fastest of a layer is 5.00 times as fast"
        in words(shown)
    )


def test_implementations_that_tie_as_fastest_are_marked_and_counted_apart() -> None:
    shown = layers.blocks(results(*SLOW, *FAST, *passes("flex", 1.0005, 2.0, 2.4005)))
    assert "FlashAttention-4 is measurably the fastest at 0 of 1 layer, and ties as fastest at 1." in words(shown)
    assert rows_of(table_of(shown, "The fastest implementation"))[0][1].rstrip() == "FlashAttention-4 ="


def test_all_that_are_the_fastest_at_some_layer_are_named() -> None:
    others = [THEIRS[f"{name}-1x4096-32x128-layer-training"] for name in ("fused", "separate")]
    at_others = [timed(name, one, ms) for one in others for name, ms in (("torch_math", 4.0), ("flex", 1.0))]
    said = words(layers.blocks(results(*SLOW, *FAST, *at_others)))
    assert "FlexAttention is measurably the fastest at 2 of 3 layers; FlashAttention-4 is at 1. The" in said


def test_a_layer_that_is_wrong_in_one_pass_has_no_place_in_it() -> None:
    wrong = record("flash_attn_4", BACKWARD, status=Status.INCORRECT, regimes=[BURST])
    shown = layers.blocks(results(*SLOW, *NATIVE, *FAST[:2], wrong))
    assert rows_of(table_of(shown, "The fastest"))[0][-1] == "PyTorch default (SDPA)"
    row = cells(table_of(shown, "llama3-8b: "), "flash_attn_4")
    assert (row["backward ms"], row["total / sum"]) == ("INCORRECT", "-")


def test_the_csv_has_a_row_for_each_layer_variant_and_pass() -> None:
    header, *found = layers.rows(results(*SLOW, *FAST))
    by_name = {tuple(row[1:3]): dict(zip(header, row, strict=True)) for row in found}
    assert len(found) == 6
    row = by_name["flash_attn_4", "total"]
    assert row["over_math"] == pytest.approx(5.0)
    assert row["total_over_sum"] == pytest.approx(0.8)
    assert by_name["flash_attn_4", "forward"]["total_over_sum"] is None


def test_parts_are_those_of_the_profiler_or_on_a_cpu_of_operators() -> None:
    parts = {"attention": 0.25, "projections": 0.6, "copies": 0.1, "elementwise": 0.05}
    on_gpu = record("flash_attn_4", FORWARD, cupti=Cupti(events_ms=1.0, kernels_ms=1.0, span_ms=1.0, parts_ms=parts))
    row = cells(table_of(layer_parts.blocks(results(on_gpu))), "flash_attn_4")
    assert (row["projections ms"], row["other ms"]) == ("0.600 (60%)", "-")
    operators = [("aten::mm", 0.5), ("aten::_scaled_dot_product_flash_attention_for_cpu", 0.25), ("aten::copy_", 0.25)]
    kernels = tuple(KernelShare(name=name, share=share) for name, share in operators)
    on_cpu = record("torch_native", FORWARD, cupti=Cupti(events_ms=2.0, kernels_ms=2.0, span_ms=2.0), kernels=kernels)
    row = cells(table_of(layer_parts.blocks(results(on_cpu, device=CPU))), "torch_native")
    assert (row["attention ms"], row["projections ms"], row["copies ms"]) == (
        *("0.500 (25%)", "1.00 (50%)", "0.500 (25%)"),
    )


def test_the_published_columns_are_speeds_of_their_own_source_and_wrong_ones_are_marked() -> None:
    name = "fused-1x4096-32x128-layer"
    mine = [timed("torch_math", THEIRS[name], 4.0), timed("flash_attn_2", THEIRS[name], 1.0)]
    table = table_of(layers_published.blocks(results(*mine)), "Speed over PyTorch's unfused attention")
    found = {row[:2]: row[2:] for row in rows_of(table)}
    assert len(found) == 45
    assert found["fused-1x4096-32x128", "backward"] == ("17.1× contradictory", "1.71×", "-", "-")
    theirs, flash, triton, ours = found["fused-1x4096-32x128", "forward"]
    assert (theirs, flash, triton, ours[:5]) == ("1.02×", "2.51×", "-", "4.000")
    assert found["separate-1x2048-40x128", "total"][0] == "2.52× contradictory"
    assert not any(mark in cell for row in found.values() for cell in row[1:] for mark in ("impossible", "contra"))
    reasons = words(layers_published.blocks(results(*mine))[1:])
    assert "triton backward, 0.9097 ms" in reasons
    assert "9.1440" not in words([table])  # never their times
