"""Forward + backward stands against backward alone with its memory, and a deterministic form against the default."""

from __future__ import annotations

import pytest
from sample_records import changed, record, results
from tabled import cells, heads, rows_of, table_of, tables_of, words

from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report import usage
from fluxbench.report.tables import determinism, training

BOTH, ALONE = "llama3-8b-4096-training", "llama3-8b-4096-backward"
SHORT_BOTH, SHORT_ALONE = "flux1-256px-t128-training", "flux1-256px-t256-backward"


def both(variant: str, ms: float, mib: int | None = 3, workload: str = BOTH) -> Record:
    return changed(record(variant, workload, ms), peak_memory_bytes=None if mib is None else mib << 20)


def test_a_variant_s_two_times_and_its_memory_share_a_row_fastest_first() -> None:
    found = results(
        both("torch_flash", 4.0), record("torch_flash", ALONE, 3.0), both("flex", 2.0, None),
        record("flex", ALONE, status=Status.OUT_OF_MEMORY, reason="too much"), both("te_fused", 1.0, 7),
        record("te_fused", ALONE, 0.5),
    )  # fmt: skip
    table = table_of(training.blocks(found))
    assert [row[0] for row in rows_of(table)] == ["te_fused", "flex", "torch_flash"]
    assert cells(table, "te_fused") == {
        "kernel": "te_fused", "forward + backward sustained ms": "1.000 ±0.005",
        "backward sustained ms": "0.500 ±0.002", "backward's share": "50%", "peak MiB": "7",
    }  # fmt: skip
    assert list(cells(table, "flex").values())[2:] == ["-", "-", "-"]
    assert training.rows(found)[1] == ("te_fused", BOTH, "sustained", 1.0, 0.5, 0.5, 7 << 20)


def test_all_times_of_a_table_are_of_the_one_regime_in_its_heads() -> None:
    """Also that of a kernel whose backward pass alone was not measured."""
    alone = record("te_fused", ALONE, 0.6, burst_ms=0.4, regimes=["burst"])
    found = results(both("te_fused", 1.0), alone, both("flex", 2.0))  # 0.9 and 1.8 in burst
    table = table_of(training.blocks(found))
    assert heads(table)[1:3] == ["forward + backward burst ms", "backward burst ms"]
    assert [tuple(cell[:5] for cell in row[1:3]) for row in rows_of(table)] == [("0.900", "0.400"), ("1.800", "-")]
    assert cells(table, "te_fused")["backward's share"] == "44%"
    assert [row[2:4] for row in training.rows(found)[1:]] == [("burst", 0.9), ("burst", 1.8)]


def test_times_at_different_shapes_are_never_put_together() -> None:
    found = results(both("torch_flash", 4.0, workload=SHORT_BOTH), record("torch_flash", SHORT_ALONE, 3.0))
    assert rows_of(table_of(training.blocks(found)))[0][2:4] == ("-", "-")


def test_without_a_time_of_both_passes_it_is_said() -> None:
    assert words(training.blocks(results(record("torch_flash", ALONE)))) == "No forward + backward was measured."
    failed = record("torch_flash", BOTH, status=Status.ERROR, reason="no")
    assert "Nothing passed forward + backward at 4,096 tokens" in words(training.blocks(results(failed)))


def test_determinism_costs_what_its_form_takes_over_the_default() -> None:
    found = results(
        both("torch_flash", 2.0), both("torch_flash_det", 3.0), both("flash_attn_2", 2.0),
        both("flash_attn_2_det", 2.2), both("te_fused_det", 1.0), both("torch_efficient", 1.0),
        record("torch_efficient_det", BOTH, status=Status.INCORRECT, reason="wrong"),
    )  # fmt: skip
    table = table_of(determinism.blocks(found))
    assert [row[0] for row in rows_of(table)] == ["flash_attn_2", "torch_flash"]
    assert heads(table)[1:] == ["default sustained ms", "deterministic sustained ms", "cost"]
    assert cells(table, "torch_flash")["cost"].startswith("1.50")
    name, default, workload, ms, default_ms, cost, low, high = determinism.rows(found)[2]
    assert (name, default, workload, ms, default_ms) == ("torch_flash_det", "torch_flash", BOTH, 3.0, 2.0)
    assert cost == pytest.approx(1.5, rel=1e-3)
    assert float(str(low)) < float(str(cost)) < float(str(high))
    assert tables_of(determinism.blocks(results(both("torch_flash", 2.0)))) == []


def test_no_lines_of_a_forward_pass_are_given_for_training() -> None:
    assert usage.of(record("torch_flash"))
    assert not usage.of(both("torch_flash", 1.0))
    assert not usage.of(record("torch_flash", ALONE))
