"""What ran: a call's time by the operation's parts, what else it costs, its kernels by name, and all of it as a CSV."""

from __future__ import annotations

import dataclasses

from sample_records import REASONS, record, results
from tabled import bullets, cells, heads, rows_of, table_of, tables_of, words

from fluxbench import variants
from fluxbench.operations import sets
from fluxbench.records.schema import Cupti, KernelShare, Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Heading, Table
from fluxbench.report.tables.kernels import blocks, rows

LENGTHS = sets.sets()["flux1-1024px"]
PARTS = {"attention": 0.31, "quantization": 0.052, "copies": 0.0}
NOTED = next(iter(variants.notes()))


def split(**parts: float) -> Cupti:
    return Cupti(events_ms=0.4, kernels_ms=0.399, span_ms=0.4, parts_ms=parts)


def costs(*records: Record) -> Table:
    return table_of(blocks(results(*records)), "What ran at")


def named(*records: Record) -> Table:
    return table_of(blocks(results(*records)), "The largest kernels")


def test_a_row_has_the_call_each_part_of_it_and_what_else_it_costs() -> None:
    made = record(cupti=split(**PARTS), launch_ms=0.0213, compile_s=12.34, graph_breaks=0)
    assert cells(costs(made), "torch_flash") == {
        **{"variant": "torch_flash", "call ms": "0.400", "attention ms": "0.310", "quantization ms": "0.0520"},
        **{"copies ms": "-", "other ms": "-", "burst host launch ms": "0.0213", "peak MiB": "27.0"},
        **{"compile s": "12.3", "graph breaks": "0"},
    }
    unknown = record(cupti=None, launch_ms=None, peak_memory_bytes=None)
    assert set(rows_of(costs(unknown))[0][1:]) == {"-"}


def test_the_parts_are_the_operations_and_further_recorded_ones() -> None:
    outside = dataclasses.replace(LENGTHS[0], operation="my_module:Layer")
    assert heads(costs(record(workload=outside, cupti=split(norm=0.1, gemm=0.2))))[1:6] == [
        *("call ms", "attention ms", "quantization ms", "norm ms", "gemm ms"),
    ]


def test_what_was_compiled_at_another_workload_counts() -> None:
    found = [record(workload=LENGTHS[0], compile_s=1.6), record(workload=LENGTHS[5], compile_s=0.1)]
    assert cells(costs(*found, record("a", compile_s=9.0)), "torch_flash")["compile s"] == "1.6"


def test_the_fastest_ratio_comes_first_in_both_tables() -> None:
    records = [record(), record("torch_cudnn", sustained_ms=0.4), record("short", LENGTHS[0])]
    for table in tables_of(blocks(results(*records))):
        assert [row[0] for row in rows_of(table)] == ["torch_cudnn", "torch_flash"]


def test_kernels_are_named_with_their_shares_largest_first_and_small_ones_counted() -> None:
    shares = {"Memset (Device)": 0.003, "copy<int>": 0.08, "void flash_fwd<1>(P)": 0.907, "edge": 0.01}
    kernels = tuple(KernelShare(name=name, share=share, part="copies") for name, share in shares.items())
    assert rows_of(named(record(kernels=kernels))) == [
        ("torch_flash", "91%", "copies", "flash_fwd"),
        ("", "8%", "copies", "copy"),
        ("", "1%", "copies", "edge (and 1 under 1%)"),
    ]


def test_a_kernel_of_no_known_part_and_a_call_without_kernels_are_said() -> None:
    tiny = (KernelShare(name="tiny", share=0.004),)
    assert rows_of(named(record(kernels=tiny))) == [("torch_flash", "0%", "-", "tiny")]
    assert rows_of(named(record(kernels=()))) == [("torch_flash", "-", "-", "not profiled")]


def test_what_the_library_chose_stands_below_its_kernels() -> None:
    table = named(record("xformers", detail="fa2F@2.8.3\n wgmma", sustained_ms=0.5), record())
    assert [row.words.strip() if isinstance(row, Heading) else row.texts()[0] for row in table.rows] == [
        *("xformers", "the library's own choice: fa2F@2.8.3 wgmma", "torch_flash"),
    ]


def test_notes_of_the_registry_stand_once_for_all_forms_also_of_what_did_not_pass() -> None:
    forms = [record(NOTED), record(f"{NOTED}_compile_d", status=Status.CRASHED)]
    for records in (forms, forms[1:]):
        assert bullets(blocks(results(record(), *records)), "") == [(f"{NOTED}: {variants.notes()[NOTED]}", "")]
    assert "Notes on these kernels" not in words(blocks(results(record())))


def test_a_group_in_which_nothing_passed_is_said() -> None:
    assert "nothing is known of what ran there." in words(blocks(results(record(status=Status.CRASHED))))


def test_the_csv_has_a_row_per_kernel_of_every_workload() -> None:
    copy = KernelShare(name="copy", share=0.1, part="copies")
    two = (KernelShare(name="flash<1>", share=0.9, part="attention"), copy)
    made = record(kernels=two, cupti=split(**PARTS), compile_s=1.5, graph_breaks=1, detail="fa2")
    short = record(workload=LENGTHS[0], kernels=two[:1], cupti=None)
    header, *body = rows(results(made, short, record("flex", status=Status.CRASHED)))
    assert header[4:9] == ("call_ms", "attention_ms", "quantization_ms", "copies_ms", "other_ms")
    assert header[9:13] == ("launch_ms", "peak_memory_bytes", "compile_s", "graph_breaks")
    who = ("flux1-1024px-t512", "torch_flash", "PASSED", None)
    cost = (0.4, 0.31, 0.052, 0.0, None, 0.06, 28_311_552, 1.5, 1, "fa2")
    assert body == [
        (*who, *cost, "flash<1>", 0.9, "attention"),
        (*who, *cost, "copy", 0.1, "copies"),
        ("flux1-1024px-t128", *who[1:], *[None] * 5, 0.06, 28_311_552, None, None, None, "flash<1>", 0.9, "attention"),
        ("flux1-1024px-t512", "flex", "CRASHED", REASONS[Status.CRASHED], *[None] * 13),
    ]
