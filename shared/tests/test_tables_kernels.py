"""The table of what ran: a call's time by what its kernels do, their names, and what old records do not say."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from sample_records import REASONS, make_record, of_old

from fluxbench.operations.workloads import SETS
from fluxbench.records.schema import Kernel, Record, SecondClock, Status
from fluxbench.report.tables.kernels import kernels_table, short_name, write_kernels_csv

LENGTHS = SETS["flux1-1024px"]
PARTS = {"attention": 0.31, "quantization": 0.052, "copies": 0.0}
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, cutlass::bfloat16_t>, false>"
    "(pytorch_flash::Flash_fwd_params)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)>"
)


def record(variant: str = "torch_flash", **other: Any) -> Record:
    return dataclasses.replace(make_record(variant), **other)


def split(**parts: float) -> SecondClock:
    return SecondClock(events_ms=0.4, kernels_ms=0.399, span_ms=0.4, parts_ms=parts)


def row(text: str, variant: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"{variant} "))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_row_has_the_call_and_each_part_of_it() -> None:
    found = record(second_clock=split(**PARTS), launch_ms=0.0213, compile_s=12.34, graph_breaks=0)
    cells = row(kernels_table([found]), "torch_flash")
    assert cells == ["torch_flash", "0.400", "0.310", "0.0520", "-", "-", "0.0213", "27.0", "12.3", "0"]


def test_it_is_said_that_launch_and_call_are_of_bursts() -> None:
    text = flat(kernels_table([record()]))
    assert "Host launch: what the host takes to launch one call, in burst: back to back the host is faster." in text
    assert "they can exceed the call by a percent" in text


def test_what_was_compiled_at_another_length_counts() -> None:
    first = record(compile_s=1.6)
    longest = dataclasses.replace(record(), workload=dataclasses.replace(first.workload, name="longest", seq_len=9999))
    assert row(kernels_table([first, longest]), "torch_flash")[8] == "1.6"


def test_an_old_record_says_what_it_knows() -> None:
    assert row(kernels_table([of_old(record())]), "torch_flash") == ["torch_flash", *("-",) * 6, "27.0", "-", "-"]


def test_a_record_without_parts_has_its_call_alone() -> None:
    assert row(kernels_table([record()]), "torch_flash")[1:6] == ["0.900", "-", "-", "-", "-"]


def test_kernels_are_named_with_their_shares_largest_first_and_by_what_else_they_do() -> None:
    ran = (Kernel(name=COPY, share=0.08, part="copies"), Kernel(name=FLASH, share=0.913, part="attention"))
    small = (Kernel(name="Memset (Device)", share=0.003), Kernel(name="tiny", share=0.004))
    below = kernels_table([record(kernels=(*small, *ran))]).split("The largest kernels of a call")[1]
    first, second = (line.split() for line in below.splitlines() if "%" in line)
    assert first == ["torch_flash", "91%", "attention", "pytorch_flash::flash_fwd_kernel"]
    assert second == ["8%", "copies", "elementwise_kernel<direct_copy_kernel_cuda>", "(and", "2", "under", "1%)"]


def test_what_was_not_profiled_is_said() -> None:
    assert "torch_flash - - not profiled" in flat(kernels_table([record(kernels=())]))


def test_what_the_library_says_that_it_chose_is_shown() -> None:
    text = kernels_table([record("xformers", detail="fa2F@2.8.3\nwgmma"), record()])
    assert "its own word: fa2F@2.8.3 wgmma" in flat(text)


def test_a_note_stands_once_for_all_forms_and_only_where_they_are_shown() -> None:
    notes = {"flash_attn_3": "a third party's rebuild", "te_fused": "not here"}
    text = kernels_table([record(), record("flash_attn_3"), record("flash_attn_3_compile_d")], notes)
    assert text.count("flash_attn_3: a third party's rebuild") == 1
    assert "not here" not in text


def test_a_note_is_shown_of_what_did_not_pass() -> None:
    failed = make_record("flash_attn_3", status=Status.UNSUPPORTED)
    assert "a rebuild" in kernels_table([record(), failed], {"flash_attn_3": "a rebuild"})


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_did_not_pass_has_its_status_and_reason(status: Status) -> None:
    text = kernels_table([record(), make_record("other", status=status)])
    assert f"{status.value} everywhere: {REASONS[status]}" in text


def test_nothing_passed_is_said() -> None:
    text = kernels_table([make_record(status=Status.CRASHED)])
    assert "nothing is known of what ran" in text
    assert kernels_table([]) == "There are no records."


def test_the_fastest_comes_first() -> None:
    text = kernels_table([record(), make_record("torch_cudnn", median_ms=0.4)])
    assert text.index("torch_cudnn") < text.index("torch_flash")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (FLASH, "pytorch_flash::flash_fwd_kernel"),
        (COPY, "elementwise_kernel<direct_copy_kernel_cuda>"),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Main<2>>>>(P)",
            "cutlass::device_kernel<FlashAttnFwdSm90>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<long>, std::array<char*, 1ul> >"
            "(int, at::native::FillFunctor<long>)",
            "vectorized_elementwise_kernel<FillFunctor>",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::Copy<c10::BFloat16, c10::BFloat16> >(int)",
            "multi_tensor_apply_kernel<Copy>",
        ),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816>(P)", "cutlass::Kernel2<cutlass_80_tensorop_s16816>"),
        (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::Sm80>::Params)",
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
        ),
        ("triton_tem_fused_0", "triton_tem_fused_0"),
        ("Memset (Device)", "Memset (Device)"),
        ("kernel<", "kernel"),
        ("x" * 100, "x" * 79 + "…"),
    ],
)  # fmt: skip
def test_a_kernel_keeps_what_tells_it_from_others(name: str, short: str) -> None:
    assert short_name(name) == short


def test_the_csv_has_a_row_per_kernel_of_every_workload(tmp_path: Path) -> None:
    two = (Kernel(name=FLASH, share=0.9, part="attention"), Kernel(name="copy", share=0.1, part="copies"))
    found = [
        *(dataclasses.replace(make_record(workload=w), kernels=two, second_clock=split(**PARTS)) for w in LENGTHS),
        make_record("flex", status=Status.CRASHED),
    ]
    write_kernels_csv(found, tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(LENGTHS) + 1
    assert {each["workload"] for each in rows} == {workload.name for workload in LENGTHS}
    assert [rows[0][key] for key in ("call_ms", "attention_ms", "copies_ms", "other_ms", "kernel", "kernel_part")] == [
        *("0.4", "0.31", "0.0", "", FLASH, "attention"),
    ]
    assert (rows[-1]["status"], rows[-1]["reason"], rows[-1]["kernel"]) == ("CRASHED", REASONS[Status.CRASHED], "")


def test_the_legend_says_whose_compiling_found_empty_caches() -> None:
    text = " ".join(kernels_table([make_record()]).split())
    assert "with caches that are empty at the start of the cell: the first variant pays for what later ones" in text
