"""The ranking has a row per variant that passed at the longest workload, and says what its signs and rates are."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from sample_records import LAUNCH_BOUND, REASONS, record, results
from tabled import cells, heads, rows_of, tables_of, words

from fluxbench.analysis import verdict
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.operations.workload import Cost
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Block, Fold, Heading, Table
from fluxbench.report.tables.ranking import blocks

LENGTHS = sets.sets()["flux1-1024px"]


def opened(found: list[Block]) -> Table:
    """Return the open table, of the first group."""
    return tables_of(found)[0]


def every(found: list[Block]) -> Table:
    """Return the folded table of all variants, of the first group."""
    return tables_of(found)[1]


def ranking(*records: Record) -> Table:
    return every(blocks(results(*records)))


def below(*records: Record) -> str:
    return " ".join(opened(blocks(results(*records))).notes)


def test_a_row_has_rank_ratio_time_rate_and_burst() -> None:
    table = ranking(record(), record("a", sustained_ms=0.5, burst_ms=0.63))
    assert heads(table) == [
        *("rank", "kernel", "sustained ratio", "sustained ms", "sustained TFLOP/s", "sustained of peak", "burst ms"),
    ]
    assert rows_of(table) == [
        ("1", "a", "0.500 [0.497, 0.502]", "0.500 ±0.002", "522", "52.7%", "0.6300 ±0.0006"),
        ("2", "torch_flash", "reference", "1.000 ±0.005", "261", "26.4%", "0.9000 ±0.0009"),
    ]
    assert table.caption.endswith("; peak 990 TFLOP/s by data sheet.")
    assert table.notes == ["Ratio: time over FlashAttention-2 (SDPA)'s; under 1 is faster."]


def test_two_methods_are_not_ranked_together_and_two_versions_of_torch_are_said() -> None:
    shown = words(blocks(results(record("flex"), record(method_version=7))))
    assert "Nothing is ranked: not all of these can be compared, since they were not measured in the same way" in shown
    mixed = words(blocks(results(record("flex"), record(versions={"torch": "2.15.0", "driver": "580.10"}))))
    assert "These were not all measured with the same versions: torch 2.15.0 (torch_flash), 2.9.0 (flex)." in mixed


def test_ranks_are_aligned_whatever_signs_stand_behind_them() -> None:
    late = record("c", sustained_ms=0.8, flags=[LAUNCH_BOUND])
    ties = [record("a", sustained_ms=0.5, converged={SUSTAINED: False}), record("b", sustained_ms=0.501)]
    first = [row.texts()[0] for row in ranking(record(), *ties, late).rows if not isinstance(row, Heading)]
    assert first == ["1=c ", "1=  ", "3h  ", "4   "]


def test_decode_is_given_in_gigabytes_a_second_where_the_study_says_so() -> None:
    workload = dataclasses.replace(
        sets.by_name()["llama3-8b-decode-4096"], cost=Cost(flops=1, min_flops=1, min_bytes=24 * 10**8)
    )
    records = [record(workload=workload), record("fp8", workload, precision_class="quantized")]
    table = every(blocks(results(*records, study="made_up_study:DECODE")))
    assert table.caption.endswith("; peak 4,800 GB/s by data sheet.")
    assert "sustained GB/s" in heads(table)
    for name in ("torch_flash", "fp8"):
        assert (cells(table, name)["sustained GB/s"], cells(table, name)["sustained of peak"]) == ("2,400", "50.0%")


def test_an_unknown_peak_is_said() -> None:
    device = dataclasses.replace(results().device, name="made up")
    table = every(blocks(results(record(), device=device)))
    assert table.caption.endswith("; peak unknown.")
    assert "sustained of peak" not in cells(table, "torch_flash")


def test_quantized_variants_stand_apart_without_a_share_of_the_exact_peak() -> None:
    table = ranking(record(), record("fp8", sustained_ms=0.3, precision_class="quantized"))
    assert [row.words if isinstance(row, Heading) else row.texts()[1] for row in table.rows] == [
        *("torch_flash", "quantized: looser error budgets, ranked separately", "fp8"),
    ]
    assert cells(table, "fp8")["sustained of peak"] == "-"
    assert cells(table, "fp8")["rank"] == "1"


def test_ties_are_said_and_many_are_counted() -> None:
    pair = [record("a", sustained_ms=0.5), record("b", sustained_ms=0.502)]
    assert "Not measurably apart (=) by a test that is corrected for the number of kernels: a = b." in below(
        record(), *pair
    )
    assert "All differences are measurable." in below(record(), pair[0])
    assert "v3 = v4" not in below(*(record(f"v{number}", sustained_ms=0.5) for number in range(9)))


def test_the_open_rows_have_each_kernel_of_the_verdict_in_its_form() -> None:
    tied = [record("a", sustained_ms=0.5), record("b", sustained_ms=0.5, cell="a")]
    forms = [record("flash_attn_3", sustained_ms=0.503), record("flash_attn_3_compile_d", sustained_ms=0.5)]
    shown = [row[1] for row in rows_of(opened(blocks(results(record(), *tied, *forms))))]
    [group] = groups([record(), *tied, *forms])
    assert shown == [*(row.record.variant for row in verdict.of(group).exact), "torch_flash"]
    assert {"a", "b"} < set(shown)


def test_the_open_rows_have_what_rounds_more_where_it_is_faster_than_every_exact_kernel() -> None:
    eager = record("torch_eager", sustained_ms=0.8, precision_class="rounded")
    quantized = record("fp8", sustained_ms=0.3, precision_class="quantized")
    shown = [row[1] for row in rows_of(opened(blocks(results(record(), eager, quantized))))]
    assert shown == ["torch_flash", "torch_eager", "fp8"]
    shown = [row[1] for row in rows_of(opened(blocks(results(record(), record("a", sustained_ms=0.5), eager))))]
    assert shown == ["a", "torch_flash"]


def test_the_open_rows_are_the_best_form_of_each_kernel_and_the_fold_has_all() -> None:
    late: dict[str, Any] = {"ci": 0.6, "flags": [LAUNCH_BOUND]}
    records = [record("torch_flash"), record("torch_flash_compile_d", sustained_ms=0.999)]
    records += [record("flex", sustained_ms=0.8), record("flex_compile_d", sustained_ms=0.5)]
    records += [record("te_fused", sustained_ms=0.7), record("te_fused_compile_d", sustained_ms=0.65, **late)]
    records += [record("fp8", sustained_ms=0.3, precision_class="quantized"), record("te", precision_class="rounded")]
    found = blocks(results(*records))
    assert [row[1] for row in rows_of(opened(found))] == ["flex_compile_d", "te_fused", "torch_flash", "fp8"]
    assert len(rows_of(every(found))) == len(records)


def test_no_kernel_is_left_out_of_the_open_rows() -> None:
    """Neither for another that its cell measures too, as FlashAttention-4's has FlexAttention's, nor for many."""
    many = [record(f"v{number:02}", sustained_ms=0.5 + number / 10) for number in range(20)]
    beside = [record("flash_attn_4", sustained_ms=0.41), record("flex_flash", sustained_ms=0.4, cell="flash_attn_4")]
    default = [record("torch_native", sustained_ms=3.0)]
    slow = [record("fp8", sustained_ms=9.0, precision_class="quantized")]
    shown = rows_of(opened(blocks(results(*many, *beside, *default, *slow))))
    assert [row[1] for row in shown] == [
        *("flex_flash", "flash_attn_4"),
        *(f"v{number:02}" for number in range(20)),
        *("torch_native", "fp8"),
    ]
    assert shown[-2][2] == "1×"


def test_of_one_rank_the_shortest_time_comes_first_in_the_open_rows() -> None:
    """Ranks come from ratios to a reference, which differs between cells."""
    near = record("flash_attn_3", sustained_ms=0.501, reference_ms=1.01, ci=0.02)
    found = blocks(results(record(ci=0.02), near, record("flash_attn_4", sustained_ms=0.5, ci=0.02)))
    assert [row[0] for row in rows_of(opened(found))] == ["1=", "1=", "3"]
    assert [row[1] for row in rows_of(opened(found))][:2] == ["flash_attn_4", "flash_attn_3"]


def test_what_is_too_uncertain_stands_below_the_others_with_its_time() -> None:
    found = blocks(results(record(), record("flex", sustained_ms=0.8, ci=0.5), record("a", sustained_ms=0.9)))
    for table in (every(found), opened(found)):
        assert [tuple(cell.strip() for cell in row[:2]) for row in rows_of(table)] == [
            ("1", "a"), ("2", "torch_flash"), ("-", "flex"),
        ]  # fmt: skip
    assert opened(found).notes[-1] == (
        "Too uncertain for a rank, with 95% intervals of time and of ratio that both reach over 1.25 times the value: "
        "FlexAttention (0.800 [0.400, 1.200] ms)."
    )
    alone = words(blocks(results(record("flex", ci=0.5))))
    assert "Too uncertain for a rank" in alone
    assert "Nothing passed" not in alone


def test_open_rows_have_the_speed_over_the_default_and_no_symbol_but_a_tie() -> None:
    records = [
        record(),
        record("torch_native", sustained_ms=0.8),
        record("flex", sustained_ms=0.4, flags=[LAUNCH_BOUND]),
    ]
    table = opened(blocks(results(*records)))
    assert heads(table)[2] == "speed over PyTorch default (SDPA)"
    assert [row[:3] for row in rows_of(table)] == [
        ("1", "flex", "2.00× [1.99, 2.01]"),
        ("2", "torch_native", "1×"),
        ("3", "torch_flash", "0.800× [0.795, 0.805]"),
    ]
    without = opened(blocks(results(record(), record("flex", sustained_ms=0.4))))
    assert heads(without)[2] == "speed over FlashAttention-2 (SDPA)"


def test_burst_ranks_alone_where_there_is_nothing_else() -> None:
    table = ranking(record(regimes=[BURST]), record("a", burst_ms=0.45, regimes=[BURST]))
    assert heads(table)[2:] == ["burst ratio", "burst ms", "burst TFLOP/s", "burst of peak"]
    assert cells(table, "a")["burst ms"] == "0.4500 ±0.0004"
    assert "Burst ranks. " in below(record(regimes=[BURST]))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_did_not_pass_has_no_rank_but_a_reason(status: Status) -> None:
    found = blocks(results(record(), record("other", status=status)))
    assert [row[1] for row in rows_of(every(found))] == ["torch_flash"]
    what = "is UNSUPPORTED here" if status is Status.UNSUPPORTED else "did not pass"
    assert f"1 of 2 rows {what}. Which, and why" in words(found)
    assert f"{status.value}: 1 row other everywhere: {REASONS[status]}" in words(found)


@pytest.mark.parametrize("kind", [None, FlagKind.SKIPS_WORK])
def test_a_variant_that_is_not_believed_at_one_length_has_no_rank_at_the_others(kind: FlagKind | None) -> None:
    status, flags = (Status.ERROR, [Flag(kind=kind)]) if kind else (Status.INCORRECT, [])
    wrong = record("flex", LENGTHS[0], status=status, flags=flags)
    found = blocks(results(record(), record("flex", LENGTHS[5], 0.1), wrong))
    assert [row[1] for row in rows_of(every(found))] == ["torch_flash"]
    assert "has no rank at the others." in words(found)


def test_each_group_is_ranked_and_the_method_said_once() -> None:
    records = [record(workload=name) for name in ("flux1-1024px-t512", "flux1-512px-t128", "llama3-8b-decode-512")]
    found: list[Block] = blocks(results(*records))
    titles = [table.caption.split(" with ")[0].removeprefix("Ranking at ") for table in tables_of(found)[::2]]
    assert titles == ["flux1-1024px", "flux1-512px", "llama3-8b-decode (decoding)"]
    assert words(found).count("Sustained, which ranks: calls of one kernel back to back") == 1


def test_the_range_of_the_speed_over_all_lengths_stands_below_the_open_rows() -> None:
    at_lengths = [record("torch_native", workload) for workload in LENGTHS[:3]]
    faster = [record("flex", workload, ms) for workload, ms in zip(LENGTHS[:3], (0.5, 0.8, 0.9), strict=True)]
    assert (
        opened(blocks(results(*at_lengths, *faster)))
        .notes[0]
        .endswith("FlexAttention at 3 lengths: 1.11 to 2.00 times.")
    )
    assert "lengths" not in opened(blocks(results(at_lengths[0], faster[0]))).notes[0]


def test_a_ranking_of_one_variant_has_no_plural() -> None:
    titles = [block.title for block in blocks(results(record())) if isinstance(block, Fold)]
    assert titles[:1] == ["The one ranked variant"]
