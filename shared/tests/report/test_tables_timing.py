"""Times and ratios have a row per variant and a column per workload; below them stands what ran."""

from __future__ import annotations

import dataclasses

import pytest
from sample_records import LAUNCH_BOUND, PARTLY_REPLAYED, REASONS, REPLAYED, changed, record, results
from tabled import cells, heads, rows_of, table_of, tables_of, words

from fluxbench.operations import sets
from fluxbench.records.schema import BURST, KernelShare, Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Row, Table
from fluxbench.report.kernel_names import short_name
from fluxbench.report.tables.timing import blocks

LENGTHS = sets.sets()["flux1-1024px"]
SUSTAINED_TABLE, BURST_TABLE, RATIOS, RAN = (
    "; sustained, which ranks",
    "; burst, in rounds",
    " time over ",
    "what ran",
)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, cutlass::bfloat16_t>, false>"
    "(pytorch_flash::Flash_fwd_params)"
)


def timing(caption: str, *records: Record) -> Table:
    return table_of(blocks(results(*records)), caption)


def test_both_regimes_and_ratios_have_a_table() -> None:
    records = [record(workload=LENGTHS[0]), record("a", LENGTHS[5], 0.5, burst_ms=0.63), record(workload=LENGTHS[5])]
    sustained, burst = timing(SUSTAINED_TABLE, *records), timing(BURST_TABLE, *records)
    assert heads(sustained) == heads(burst) == ["text tokens", "128", "512"]
    assert rows_of(sustained) == [("torch_flash", *["1.000 ±0.005"] * 2), ("a", "no record", "0.500 ±0.002")]
    assert rows_of(burst) == [("torch_flash", *["0.9000 ±0.0009"] * 2), ("a", "no record", "0.6300 ±0.0006")]
    assert rows_of(timing(RATIOS, *records)) == [
        ("torch_flash", "reference", "reference"),
        ("a", "no record", "0.500 ±0.002"),
    ]


def test_captions_say_units_regimes_and_conditions() -> None:
    sustained, burst, ratios, _ = tables_of(blocks(results(record())))
    assert sustained.caption.endswith(": mean time per call in ms by text tokens; sustained, which ranks")
    assert burst.caption.endswith(": median time per call in ms by text tokens; burst, in rounds after a rest")
    first = "95% intervals in brackets or half of one after ±; 10 samples from 5 fresh processes, "
    assert sustained.notes == [f"{first}SM clock 1,755 MHz, power 640 W."]
    assert burst.notes == [f"{first}SM clock 1,980 MHz, power 150 W."]
    assert ratios.caption.endswith("sustained time over torch_flash's (under 1 is faster) by text tokens")


def test_what_did_not_pass_has_its_status_and_stands_out() -> None:
    passed = [record(workload=LENGTHS[0]), record("flex", LENGTHS[1])]
    records = [*passed, record("flex", LENGTHS[0], status=Status.TIMEOUT)]
    for caption in (SUSTAINED_TABLE, BURST_TABLE, RATIOS):
        table = timing(caption, *records)
        assert rows_of(table)[1][:2] == ("flex", "TIMEOUT")
        assert [row.failed for row in table.rows if isinstance(row, Row)] == [True, True]  # of one there is no record
    assert f"TIMEOUT: 1 row flex at 128 text tokens: {REASONS[Status.TIMEOUT]}" in words(blocks(results(*records)))


def test_what_passed_nowhere_is_said_once_below_the_times() -> None:
    found = blocks(results(record(), record("flex", status=Status.TIMEOUT)))
    assert [row[0] for row in rows_of(timing(RATIOS, record(), record("flex", status=Status.TIMEOUT)))] == [
        "torch_flash"
    ]
    assert words(found).count(REASONS[Status.TIMEOUT]) == 1
    assert "1 of 2 rows did not pass. Which, and why" in words(found)


def test_signs_stand_behind_times() -> None:
    late = record("a", sustained_ms=0.5, burst_ms=0.45, flags=[LAUNCH_BOUND], converged={BURST: False})
    assert cells(timing(SUSTAINED_TABLE, record(), late), "a")["512"] == "0.500 ±0.002 h"
    assert cells(timing(BURST_TABLE, record(), late), "a")["512"] == "0.4500 ±0.0004 c"
    assert cells(timing(RATIOS, record(), late), "a")["512"] == "0.500 ±0.002 h"
    replayed = record("a", sustained_ms=0.5, flags=[REPLAYED])
    assert cells(timing(SUSTAINED_TABLE, record(), replayed), "a")["512"] == "0.500 ±0.002 g"


def test_burst_alone_ranks() -> None:
    found = blocks(results(record(regimes=[BURST]), record("a", burst_ms=0.45, regimes=[BURST])))
    times, ratios, _ = tables_of(found)
    assert times.caption.endswith("; burst, in rounds after a rest, which ranks")
    assert ratios.caption.startswith("flux1-1024px: burst time over torch_flash's")
    assert cells(ratios, "a")["512"] == "0.5000 ±0.0005"


def test_columns_are_counted_in_the_unit_of_x() -> None:
    found = blocks(results(*(record(workload=name) for name in ("wan-480p", "wan-720p"))))
    assert heads(tables_of(found)[0]) == ["tokens", "32,760", "75,600"]
    twin = dataclasses.replace(LENGTHS[0], name="twin")
    table = timing(SUSTAINED_TABLE, record(workload=LENGTHS[0]), record(workload=twin))
    assert heads(table) == ["text tokens", "flux1-1024px-t128", "twin"]


def test_what_ran_is_of_the_longest_workload_that_passed_and_compiling_of_the_slowest() -> None:
    other, copy, flash = (
        KernelShare(name=name, share=share) for name, share in (("b", 1.0), ("copy", 0.1), (FLASH, 0.9))
    )
    ran = [
        record("flex", LENGTHS[0], compile_s=61.34, kernels=(other,)),
        record("flex", LENGTHS[1], compile_s=1.5, graph_breaks=2, kernels=(copy, flash)),
        record("flex", LENGTHS[2], status=Status.CRASHED),
    ]
    assert cells(timing(RAN, *ran), "flex") == {
        "variant": "flex",
        "compile s": "61.3",
        "graph breaks": "2",
        "share": "90%",
        "dominant kernel": "pytorch_flash::flash_fwd_kernel (and 1 other at other workloads)",
    }


def test_what_was_not_profiled_or_compiled_is_said() -> None:
    table = timing(RAN, changed(record(), kernels=()), record("a", status=Status.CRASHED))
    assert rows_of(table) == [("torch_flash", "-", "-", "-", "not profiled")]


# What the profiler calls a kernel, and below it what a reader is shown.
NAMES = """
void cutlass::device_kernel<flash::enable_sm90<flash::FlashFwdSm90<2>>>(P)
cutlass::device_kernel<FlashFwdSm90>
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::Copy<c10::Half> >(int)
multi_tensor_apply_kernel<Copy>
void cutlass::Kernel2<cutlass_80_tensorop_s16816>(P)
cutlass::Kernel2<cutlass_80_tensorop_s16816>
Memset (Device)
Memset (Device)
kernel<
kernel
""".strip().splitlines()


@pytest.mark.parametrize(
    ("name", "short"),
    [*zip(NAMES[::2], NAMES[1::2], strict=True), ("x" * 80, "x" * 80), ("x" * 81, "x" * 79 + "…")],
)
def test_a_kernel_keeps_what_tells_it_from_others(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_row_that_pools_replayed_and_launched_calls_has_no_time() -> None:
    records = [record("flex", LENGTHS[0]), record("flex", LENGTHS[5], flags=PARTLY_REPLAYED, regimes=[BURST])]
    table = timing(BURST_TABLE, *records)
    assert rows_of(table) == [("flex", "0.9000 ±0.0009", "no time")]
    assert table.notes[-1].startswith("No time: in some processes a CUDA graph was replayed")
