"""The tables of the scaling notebook: crossovers, exponents, memory with its failures, and the published sweeps."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any

import msgspec
import pytest
from fakes import tokens
from sample_records import changed, record, results

from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Memory, Record, Shortage
from fluxbench.records.status import Status
from fluxbench.report import tables
from fluxbench.report.blocks import Block, Bullets, Fold, Row, Table
from fluxbench.report.figures import lengths as figure
from fluxbench.report.results import Results

GIB = 2**30
LENGTHS = (256, 512, 1024, 2048, 4096)


def at(length: int, operation: str = "attention", **shape: Any) -> Workload:
    return dataclasses.replace(tokens(f"n{length}-{operation}", length, operation, **shape), group="lengths")


def memory(length: int) -> Memory:
    """Return 4 MiB at 256 tokens, with the square of the length."""
    peak = 64 * length**2
    return Memory(inputs_bytes=length, kept_bytes=0, allocated_bytes=peak, reserved_bytes=2 * peak, call_bytes=peak)


LACK = Shortage(asked_bytes=128 * GIB, free_bytes=97 * GIB, total_bytes=140 * GIB, own_bytes=23 * GIB)


def measured() -> Results:
    """Two kernels whose order changes, of which one runs out of memory."""
    fused = [record("torch_native", at(length), 1e-3 * length, ci=0.01, burst_ci=0.01) for length in LENGTHS]
    plain = [record("torch_math", at(length), 2e-6 * length**2, ci=0.01, burst_ci=0.01) for length in LENGTHS[:4]]
    plain = [changed(one, memory=memory(one.workload.x)) for one in plain]
    out = record("torch_math", at(4096), status=Status.OUT_OF_MEMORY, reason="asked for 128.00 GiB", shortage=LACK)
    return results(*fused, *plain, out)


def text(name: str, of: Results) -> str:
    return "\n".join(block.text() for block in tables.find(name).blocks(of))


def rows(name: str, of: Results) -> list[dict[str, str]]:
    made = tables.find(name).rows
    assert made
    written = io.StringIO()
    csv.writer(written).writerows(made(of))
    return list(csv.DictReader(io.StringIO(written.getvalue())))


def every_table(blocks: list[Block]) -> list[Table]:
    inside = [each for block in blocks if isinstance(block, Fold) for each in block.blocks]
    return [block for block in [*blocks, *inside] if isinstance(block, Table)]


def test_a_crossover_states_where_each_of_two_kernels_is_faster() -> None:
    [row] = rows("crossovers", measured())
    names, places = (row["kernel"], row["other"]), (row["faster_from"], row["other_faster_at"])
    assert (names, places) == (("torch_native", "torch_math"), ("512", "256"))
    assert (row["other_slower_at"], row["neither_at"]) == ("", "")
    assert float(row["equal_near"]) == pytest.approx(500)  # where 1e-3 x is 2e-6 x**2
    sentence = "PyTorch default (SDPA) is faster than Unfused math (SDPA) from 512 tokens on; Unfused math (SDPA) is "
    assert f"{sentence}faster at 256." in " ".join(text("crossovers", measured()).split())
    same = [record(name, at(length), 1e-3 * length) for length in LENGTHS for name in ("torch_native", "torch_math")]
    assert text("crossovers", results(*same)) == "No two kernels change their order over the lengths with certainty."


def test_a_crossover_hides_no_shorter_length_at_which_the_other_is_slower() -> None:
    """One is faster at 256 and 2,048 and from 4,096 on, the other at 1,024; at 512 neither is."""
    ms = {256: 1.0, 512: 2.0, 1024: 5.0, 2048: 8.0, 4096: 16.0}
    other = {256: 2.0, 512: 2.0, 1024: 4.0, 2048: 8.0, 4096: 20.0}
    records = [
        record(name, at(length), of[length], ci=0.01, burst_ci=0.01)
        for name, of in (("torch_native", ms), ("torch_math", other)) for length in LENGTHS
    ]  # fmt: skip
    shown = " ".join(text("crossovers", results(*records)).split())
    assert "PyTorch default (SDPA) is faster than Unfused math (SDPA) at 4,096 tokens, the longest; " in shown
    assert "Unfused math (SDPA) is faster at 1,024, slower at 256, neither is at 512 and 2,048." in shown
    [row] = rows("crossovers", results(*records))
    assert [row[head] for head in ("faster_from", "other_faster_at", "other_slower_at", "neither_at")] == [
        "4096", "1024", "256", "512 2048"
    ]  # fmt: skip


def test_three_neighbouring_lengths_are_a_range_and_bfloat16_forward_comes_first() -> None:
    def curves(operation: str, dtype: str, names: tuple[str, str]) -> list[Record]:
        places = [
            dataclasses.replace(at(length, operation, dtype=dtype), name=f"{dtype}{operation}{length}", group=dtype)
            for length in LENGTHS
        ]
        fast = [record(names[0], place, 3.0 if place.x < 2048 else 1.0, ci=0.01, burst_ci=0.01) for place in places]
        return [*fast, *(record(names[1], place, 2.0, ci=0.01, burst_ci=0.01) for place in places)]

    both = ("torch_native", "torch_math")
    of = results(
        *curves("attention", "float32", both),
        *curves("attention_backward", "bfloat16", both),
        *curves("attention", "bfloat16", both),
        *curves("attention", "float32", ("triton_flash", "torch_math")),
    )
    order, bullets, _ = tables.find("crossovers").blocks(of)
    assert order.text().startswith("Pairs of kernels, one crossover each, bfloat16 before float32")
    assert isinstance(bullets, Bullets)
    first, second = (words for words, _ in bullets.items)
    assert "bfloat16: PyTorch default (SDPA) is faster than Unfused math (SDPA) from 2,048 tokens on" in first
    assert "faster at 256 to 1,024" in first
    assert "float32: Triton (fluxbench) is faster" in second


def test_exponents_stand_with_their_intervals_and_lengths() -> None:
    by_variant = {row["variant"]: row for row in rows("exponents", measured())}
    assert float(by_variant["torch_native"]["time_exponent"]) == pytest.approx(1.0)
    plain = by_variant["torch_math"]
    assert float(plain["time_exponent"]) == pytest.approx(2.0)
    assert float(plain["memory_exponent"]) == pytest.approx(2.0, abs=1e-3)
    assert (plain["time_lengths"], by_variant["torch_native"]["memory_exponent"]) == ("256 512 1024 2048", "")
    assert "256 to 2,048" in text("exponents", measured())
    assert text("exponents", results(measured().records[0])) == "No kernel passed at three lengths or more."


def test_many_curves_fold_and_the_first_stays_open() -> None:
    names = [f"v{number}" for number in range(9)]

    def of_curves(count: int) -> list[Block]:
        records = [
            record(name, dataclasses.replace(at(length), name=f"{curve}-{length}", group=f"curve {curve}"), length)
            for curve in range(count) for name in names for length in LENGTHS[:3]
        ]  # fmt: skip
        return tables.find("exponents").blocks(results(*records))

    assert [len(table.rows) for table in every_table(of_curves(2))] == [20]
    first, others = of_curves(3)
    assert isinstance(others, Fold)
    assert others.title == "The same for 2 other curves"
    assert [len(table.rows) for table in every_table([first, others])] == [10, 20]


def test_what_fits_follows_from_measured_bytes() -> None:
    of = {row["tokens"]: row for row in rows("memory", measured())}
    assert [of[str(length)]["fits_on_gb"] for length in LENGTHS[:4]] == ["24"] * 4
    assert of["1024"]["reserved_bytes"] == str(128 * 1024**2)
    assert of["1024"]["model_allocated_bytes"] == str(2 * 2 * 1024**2 * 4 + 1024 * 2 * 64 * 2)
    big = [
        changed(record("torch_math", at(length)), memory=Memory(
            inputs_bytes=10**9, kept_bytes=0, allocated_bytes=10**9, reserved_bytes=needed * 10**9 - 10**9, call_bytes=0
        ))
        for length, needed in zip(LENGTHS, (24, 26, 80, 146, 151), strict=True)
    ]  # fmt: skip
    assert [row["fits_on_gb"] for row in rows("memory", results(*big))] == ["24", "40", "80", "141", ""]
    [table] = every_table(tables.find("memory").blocks(results(*big)))
    [row] = [row.texts() for row in table.rows[1:]]  # type: ignore[union-attr]
    assert row[:6] == ("torch_math", "256", "512", "1,024", "2,048", "4,096")


def test_what_passed_on_a_device_fits_on_a_card_of_its_size() -> None:
    needs = Memory(inputs_bytes=0, kept_bytes=0, allocated_bytes=0, reserved_bytes=85 * 10**9, call_bytes=0)
    passed = changed(record("torch_math", at(4096)), memory=needs)
    for mib, card in ((81_559, "80"), (143_771, "141"), (48_000, "141")):
        of = results(passed, device=Device(kind="cuda", name="a card", memory_bytes=mib * 2**20))
        [row] = rows("memory", of)
        assert row["fits_on_gb"] == card


def test_the_longest_measured_length_that_fits_is_at_least_that_unless_a_longer_one_lacked_memory() -> None:
    small = [changed(record("torch_math", at(length)), memory=memory(length)) for length in LENGTHS[:4]]

    def fits(*more: Record) -> tuple[str, ...]:
        table = every_table(tables.find("memory").blocks(results(*small, *more)))[0]
        [row] = [row.texts() for row in table.rows if isinstance(row, Row)]
        return row[1:5]

    assert fits() == ("≥2,048",) * 4
    out = record("torch_math", at(4096), status=Status.OUT_OF_MEMORY, reason="asked for 128.00 GiB", shortage=LACK)
    assert fits(out) == ("2,048",) * 4
    by_torch = msgspec.structs.replace(LACK, total_bytes=150_109_106_995)  # "139.80 GiB", of an H200
    assert fits(changed(out, shortage=by_torch)) == ("2,048",) * 4
    of_80_gb = changed(out, shortage=Shortage(
        asked_bytes=128 * GIB, free_bytes=9 * GIB, total_bytes=79 * GIB, own_bytes=9 * GIB
    ))  # fmt: skip
    assert fits(of_80_gb) == ("2,048",) * 3 + ("≥2,048",)


def test_a_row_that_ran_out_has_what_was_asked_for_and_what_was_free() -> None:
    [table] = [each for each in every_table(tables.find("memory").blocks(measured())) if "ran out" in each.caption]
    [row] = table.rows
    assert row.texts()[2:] == ("0.3", "128.0", "97.0", "140.0", "23.0")  # type: ignore[union-attr]
    [out] = [row for row in rows("memory", measured()) if row["status"] == "OUT_OF_MEMORY"]
    assert (out["asked_bytes"], out["free_bytes"], out["own_bytes"]) == (str(128 * GIB), str(97 * GIB), str(23 * GIB))
    shown = " ".join(text("memory", measured()).split())
    assert "but not where the one allocation is larger than the whole device" in shown
    assert "a tensor of another workload of the process" in shown
    assert "No row ran out of memory." in text("memory", results(record()))
    assert "No memory was measured" in text("memory", results(record()))


def published(*records: Record) -> list[Table]:
    return every_table(tables.find("lengths_published").blocks(results(*(records or (record(),)))))


def test_published_memory_of_plain_attention_is_that_of_the_model() -> None:
    """Its source states neither batch nor dtype: with batch 8 and float32 the model explains it within 4%."""
    [table] = [each for each in published() if each.caption.startswith("Plain attention")]
    ratios = [row.texts()[1:5:3] for row in table.rows]  # type: ignore[union-attr]
    long = [float(ratio.rstrip("×")) for length, ratio in ratios if length in ("4,096", "8,192")]
    assert len(long) == 8
    assert all(ratio == pytest.approx(1.02, abs=0.02) for ratio in long)
    assert [ratio for length, ratio in ratios if length == "16,384"] == ["OOM"] * 4


def test_ratios_of_ours_stand_beside_theirs_and_no_time_does() -> None:
    workload = sets.by_name()["causal-bf16-d64-8192"]
    ours = [record("triton_flash", workload, 0.5), record("torch_math", workload, 2.0)]
    first = published(*ours)[0]
    cells = {row.texts()[:4]: row.texts()[4:] for row in first.rows}  # type: ignore[union-attr]
    theirs, own, _ = cells["forward", "bfloat16", "64", "8,192"]
    assert "in TF32 triton_flash_tf32 over torch_math_tf32" in " ".join(first.text().split())
    assert theirs == "15.2×"  # 2.19 ms over 0.144 ms
    assert own.startswith("4.00× [")
    assert cells["backward", "bfloat16", "64", "8,192"][1] == "-"
    of = {(row["pass"], row["dtype"], row["head_dim"], row["tokens"], row["our_variant"]): row
          for row in rows("lengths_published", results(*ours))}  # fmt: skip
    assert len(of) == 9 * 3 * 3 * 3  # lengths, widths, passes; bfloat16, float32, and float32 in TF32
    assert of["backward", "float32", "16", "32768", "triton_flash"]["their_speedup"] == ""  # PyTorch had no memory
    assert not any(" ms" in cell for table in published(*ours) for row in table.rows for cell in row.texts())  # type: ignore[union-attr]


def test_exponents_of_published_curves_have_the_judgement_of_the_audit() -> None:
    [table] = [each for each in published() if each.caption.startswith("Exponents")]
    by_curve = {row.texts()[1]: row.texts() for row in table.rows}  # type: ignore[union-attr]
    assert by_curve["memory, standard, standard, attention matrix, memory"][2].startswith("2.0")
    assert "wrong" in by_curve["time per token, standard, forward, time"][3]
    plain = by_curve["naive attention by d_model, pytorch, backward, d 64, time"][2]
    assert 1.5 < float(plain.split()[0]) < 2.2


def test_of_many_curves_the_figure_draws_some_and_its_csv_has_all() -> None:
    names = [f"causal-{dtype}-d{dim}-{length}{suffix}" for dtype in ("bf16", "fp32") for dim in (64, 128)
             for suffix in ("", "-backward", "-training") for length in (128, 256)]  # fmt: skip
    drawing = figure.draw(results(*(record("torch_math", name) for name in names)))
    assert drawing
    assert "4 of 12 curves" in drawing.caption
    assert len(drawing.rows) == 1 + len(names)
    assert "causal-fp32-d64-training" in drawing.svg
    assert "causal-fp32-d128" not in drawing.svg
    few = figure.draw(measured())
    assert few
    assert "curves" not in few.caption
