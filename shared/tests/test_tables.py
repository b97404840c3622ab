"""Tables say what the records say: units, ties, failures, and nothing that is not in them."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from sample_records import REASONS, make_record, of_old, rested

from fluxbench.analysis.ranking import NOT_BELIEVED
from fluxbench.operations import roofline as floor
from fluxbench.operations.workloads import SETS, Workload
from fluxbench.records.schema import Record, Status
from fluxbench.report.tables import tables
from fluxbench.worker import trial as regimes

LENGTHS = SETS["flux1-1024px"]


def line_of(text: str, variant: str) -> str:
    """Return the first line of a table that is about a variant."""
    return next(line for line in text.splitlines() if variant in line.split())


def curve(variant: str, median_ms: float, **rest: object) -> list[Record]:
    return [make_record(variant, workload, median_ms, **rest) for workload in LENGTHS]  # type: ignore[arg-type]


def failing() -> list[Record]:
    return [make_record(f"kernel_{s.value.lower()}", status=s) for s in Status if s is not Status.PASSED]


def test_the_fastest_variant_ranks_first() -> None:
    text = tables.ranking_table([make_record("torch_flash", median_ms=0.8), make_record("torch_cudnn", median_ms=0.4)])
    assert line_of(text, "torch_cudnn").split()[0] == "1"


def test_variants_whose_intervals_overlap_share_a_rank() -> None:
    text = tables.ranking_table([make_record(), make_record("a", median_ms=0.5), make_record("b", median_ms=0.502)])
    assert [line_of(text, name).split()[0] for name in ("a", "b", "torch_flash")] == ["1=", "1=", "3"]


def test_ties_are_said() -> None:
    text = tables.ranking_table([make_record(), make_record("a", median_ms=0.5), make_record("b", median_ms=0.502)])
    assert re.search(r"No measurable difference .*: a = b\.", text)


def test_many_ties_and_many_caps_are_counted_and_not_listed() -> None:
    records = [make_record(f"v{index}", median_ms=0.5) for index in range(12)]
    capped = [
        dataclasses.replace(r, timing=dataclasses.replace(r.timing, precise=False)) for r in records[:10] if r.timing
    ]
    text = " ".join(tables.ranking_table([*capped, *records[10:]]).split())
    assert "=: no measurable difference to others of these" in text
    assert "v3 = v4" not in text
    assert "sustained 10 of 12 variants" in text


def test_a_chain_of_overlaps_is_said_as_two_ties() -> None:
    records = [make_record(name, ratio=ratio) for name, ratio in (("a", 0.5), ("b", 0.504), ("c", 0.508))]
    assert "a = b; b = c." in tables.ranking_table(records)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_what_did_not_pass_has_no_rank_but_a_reason(status: Status) -> None:
    text = tables.ranking_table([make_record(), make_record("other", status=status)])
    assert f"{status.value} everywhere: {REASONS[status]}" in text.split("Did not pass")[1]


def test_one_reason_for_several_variants_is_said_once() -> None:
    records = [record for name in ("a", "b") for record in curve(name, 1, status=Status.UNAVAILABLE)]
    assert tables.ranking_table([make_record(), *records]).count(REASONS[Status.UNAVAILABLE]) == 1


def test_a_variant_that_is_wrong_at_one_length_has_no_rank_at_another() -> None:
    wrong = make_record("flex", LENGTHS[0], status=Status.INCORRECT)
    text = tables.ranking_table([make_record(), make_record("flex", LENGTHS[-1], 0.1), wrong])
    assert "flex" not in text.split("Did not pass")[0]


@pytest.mark.parametrize(
    "reason", ["burst: faster than the device can be: 0.1 ms", "skips work on inputs that it has seen"]
)
def test_a_variant_whose_time_cannot_be_believed_at_one_length_has_no_rank_at_another(reason: str) -> None:
    found_out = make_record("flex", LENGTHS[0], status=Status.ERROR, reason=reason)
    text = tables.ranking_table([make_record(), make_record("flex", LENGTHS[-1], 0.1), found_out])
    ranked, rest = text.split("Did not pass")
    assert "flex" not in ranked
    assert "cannot be believed, has no rank at the others" in " ".join(rest.split())


def test_an_honest_error_at_one_length_leaves_the_rank_at_another() -> None:
    failed = make_record("flex", LENGTHS[0], status=Status.ERROR)
    text = tables.ranking_table([make_record(), make_record("flex", LENGTHS[-1], 0.1), failed])
    assert line_of(text, "flex").split()[0] == "1"
    assert "has no rank" not in text


def test_what_measuring_says_of_such_a_time_is_what_ranking_looks_for() -> None:
    said = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (floor, regimes)]
    assert all(f'"{phrase}' in text for phrase, text in zip(NOT_BELIEVED, said, strict=True))


def test_every_column_of_times_names_its_regime() -> None:
    over, under = tables.ranking_table([make_record()]).splitlines()[3:5]
    assert over.split() == ["sustained"] * 4 + ["burst"] * 2
    assert under.split() == ["rank", "variant", "ratio", "ms", "TFLOP/s", "of", "peak", "ms", "ratio"]


def test_sustained_ranks_whatever_burst_says() -> None:
    records = [
        make_record(),
        rested(make_record("a", median_ms=0.5), 0.7),
        rested(make_record("b", median_ms=0.6), 0.3),
    ]
    text = tables.ranking_table(records)
    assert [line_of(text, name).split()[0] for name in ("a", "b")] == ["1", "2"]


def test_burst_stands_beside_it_with_its_interval() -> None:
    text = tables.ranking_table([make_record(), rested(make_record("a", median_ms=0.5), 0.7)])
    assert line_of(text, "a").endswith("0.7000 ±0.0007  0.7000 ±0.0007")


def test_another_order_from_rest_is_said() -> None:
    records = [
        make_record(),
        rested(make_record("a", median_ms=0.5), 0.45),
        rested(make_record("b", median_ms=0.502), 0.4),
        rested(make_record("c", median_ms=0.7), 0.35),
    ]
    said = " ".join(tables.ranking_table(records).split())
    assert (
        "From rest (burst), b (0.4000 ±0.0004 ms) would come before a (0.4500 ±0.0004 ms); c (0.3500 ±0.0003 ms) would "
        "come before a (0.4500 ±0.0004 ms) and b (0.4000 ±0.0004 ms)."
    ) in said


@pytest.mark.parametrize("burst_ms", [0.45, 0.4496])
def test_the_same_order_from_rest_and_one_within_the_intervals_are_not(burst_ms: float) -> None:
    first, second = rested(make_record("a", median_ms=0.5), 0.45), rested(make_record("b", median_ms=0.502), burst_ms)
    assert "From rest" not in tables.ranking_table([make_record(), first, second])


def test_forms_of_one_kernel_do_not_come_before_each_other() -> None:
    forms = [rested(make_record("a", median_ms=0.5), 0.45), rested(make_record("a_compile_d", median_ms=0.502), 0.4)]
    assert "From rest" not in tables.ranking_table([make_record(), *forms])


@pytest.mark.parametrize("table", [tables.ranking_table, tables.timing_table])
def test_a_variant_that_hit_the_cap_is_marked_and_the_mark_explained(table: Callable[[list[Record]], str]) -> None:
    text = table([make_record(), rested(make_record("a", median_ms=0.5), 0.45, precise=False)])
    assert re.search(
        r"^c: the caps of time and processes came before .*: burst a\.$", text, flags=re.MULTILINE | re.DOTALL
    )
    assert re.search(
        r"^ *1 +a .* ±0.0004 c " if table is tables.ranking_table else r"^a .* c$", text, flags=re.MULTILINE
    )


def capped(found: Record) -> Record:
    assert found.timing
    return dataclasses.replace(found, timing=dataclasses.replace(found.timing, precise=False))


@pytest.mark.parametrize("table", [tables.ranking_table, tables.timing_table])
def test_a_cap_of_every_row_is_said_once(table: Callable[[list[Record]], str]) -> None:
    both = [capped(make_record()), capped(make_record("a", median_ms=0.5))]
    text = table(both)
    assert "of the median): sustained every row." in " ".join(text.split())
    assert not re.search(r"^c:|±\S+ c\b|^ *\dc ", text, flags=re.MULTILINE)
    some = table([make_record(), both[1]])
    assert "of the median): sustained a." in " ".join(some.split())
    assert re.search(r"^ *1c +a " if table is tables.ranking_table else r"^a .* c$", some, flags=re.MULTILINE)


LATE = ("sustained: the host was hardly ahead of the device in 1 of 3 processes: launching is what was timed",)


@pytest.mark.parametrize("table", [tables.ranking_table, tables.timing_table])
def test_a_time_of_launching_is_signed_and_the_sign_explained(table: Callable[[list[Record]], str]) -> None:
    text = table([make_record(), dataclasses.replace(make_record("a", median_ms=0.5), marks=LATE)])
    assert re.search(r"^h: in one process or more the host was hardly ahead of the device,", text, flags=re.MULTILINE)
    assert "launching is what was timed there (sustained), and such a time has no rank: a." in " ".join(text.split())
    assert re.search(r"^ *-h +a " if table is tables.ranking_table else r"^a .* h$", text, flags=re.MULTILINE)
    assert not re.search(r"^torch_flash.* h$|h +torch_flash", text, flags=re.MULTILINE)
    burst = text.partition("; burst, from a device")[2].partition("sustained time over")[0]
    assert not re.search(" h$", burst, flags=re.MULTILINE)


def test_no_cap_no_mark() -> None:
    assert "caps of time" not in tables.ranking_table([make_record(), make_record("a", median_ms=0.5)])


def test_the_ranking_keeps_to_a_line() -> None:
    names = ("torch_efficient_compile_ma", "torch_flash")
    text = tables.ranking_table([make_record(name, median_ms=0.789) for name in names], 989.0)
    assert max(map(len, text.splitlines())) <= 127


@pytest.mark.parametrize(
    "table",
    [tables.ranking_table, tables.timing_table, tables.correctness_table, tables.state_table, tables.method_note],
)
def test_records_without_burst_are_still_shown(table: Callable[[list[Record]], str]) -> None:
    assert table([of_old(make_record()), of_old(make_record("a", median_ms=0.5))])


def test_what_was_not_measured_then_is_a_dash() -> None:
    text = tables.ranking_table([make_record(), of_old(make_record("a", median_ms=0.5))])
    assert line_of(text, "a").split()[-2:] == ["-", "-"]


def test_the_note_says_what_old_records_are() -> None:
    text = " ".join(tables.method_note([make_record(), of_old(make_record("a"))]).split())
    assert "Measured by an older fluxbench (1 of 2 records): what is called sustained are single calls" in text


def test_a_clock_that_nobody_told_is_not_known() -> None:
    assert "SM clock not known" in tables.method_note([dataclasses.replace(make_record(), telemetry=None)])


def test_quantized_variants_are_ranked_apart() -> None:
    records = [make_record(), make_record("fp8", median_ms=0.3, precision_class="quantized")]
    assert line_of(tables.ranking_table(records), "torch_flash").split()[0] == "1"


def test_an_unknown_peak_is_said() -> None:
    assert "peak unknown" in tables.ranking_table([make_record()])


def test_the_share_of_a_known_peak_is_shown() -> None:
    record = make_record(median_ms=1.0)
    peak_tflops = record.workload.flops / 1e9 * 4  # at 1 ms, four times what the record reached
    assert "25.0%" in tables.ranking_table([record], peak_tflops)


def test_a_quantized_kernel_has_no_share_of_the_exact_peak() -> None:
    text = tables.ranking_table([make_record(), make_record("fp8", precision_class="quantized")], 989.0)
    assert "-" in line_of(text, "fp8").split()
    assert "%" not in line_of(text, "fp8")


def test_variants_are_ranked_at_the_longest_text() -> None:
    records = [*curve("torch_flash", 1.0), make_record("a", LENGTHS[0], 0.1), make_record("a", LENGTHS[-1], 2.0)]
    assert line_of(tables.ranking_table(records), "a").split()[0] == "2"


def test_the_timing_table_has_every_variant_and_length() -> None:
    text = tables.timing_table([*curve("torch_flash", 0.8), *curve("flex", 0.6, status=Status.TIMEOUT)])
    assert line_of(text, "flex").split() == ["flex", *["TIMEOUT"] * 6]


def test_the_timing_table_says_times_with_half_their_interval() -> None:
    assert "0.800 ±0.004" in tables.timing_table(curve("torch_flash", 0.8))


def test_the_timing_table_has_both_regimes() -> None:
    text = tables.timing_table([rested(make_record(median_ms=0.8), 0.7)])
    sustained, burst = text.replace("\n", " ").split("; burst, from a device")
    assert "sustained, which ranks" in sustained
    assert "0.800 ±0.004" in sustained
    assert "0.7000 ±0.0007" in burst


def test_the_timing_table_says_what_compiling_cost() -> None:
    text = tables.timing_table([make_record("flex_compile_d", compile_s=61.34, graph_breaks=2)])
    row = [line for line in text.splitlines() if line.startswith("flex_compile_d")][-1]
    assert row.split()[:3] == ["flex_compile_d", "61.3", "2"]


def test_lengths_without_text_are_counted_in_tokens() -> None:
    assert "by tokens" in tables.timing_table([make_record(workload="wan-480p"), make_record(workload="wan-720p")])


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void a::b::kernel<c::bf16, 128>(c::Params)", "kernel<bf16, 128>"),
        ("void at::(anonymous namespace)::softmax<8>(float*, int)", "softmax<8>"),
        ("triton_tem_fused_0", "triton_tem_fused_0"),
    ],
)
def test_kernel_names_lose_what_tells_nothing(name: str, short: str) -> None:
    assert tables.short_kernel(name) == short


def test_long_kernel_names_keep_both_ends() -> None:
    assert re.fullmatch(
        r"cudnn_generated.*….*kernel0_0", tables.short_kernel("cudnn_generated" + "x" * 99 + "kernel0_0")
    )


def test_the_correctness_table_has_a_row_per_variant_and_workload() -> None:
    text = tables.correctness_table([*curve("torch_flash", 0.8), *failing()])
    assert len(re.findall(r"^  flux1-1024px-t\d+ ", text, flags=re.MULTILINE)) == 6 + 7


def with_errors(by_inputs: dict[str, float | None]) -> Record:
    record = make_record()
    assert record.correctness
    return dataclasses.replace(record, correctness=dataclasses.replace(record.correctness, rel_l2_by_inputs=by_inputs))


@pytest.mark.parametrize(
    ("by_inputs", "shown"),
    [
        ({"normal": 0.0031, "flux": 0.003}, ["3.10e-03", "3.00e-03"]),
        ({"flux": None}, ["-", "not", "finite"]),
        ({"<b>": 0.5}, ["-", "-"]),
        ({}, ["-", "-"]),
    ],
)
def test_the_correctness_table_has_the_error_on_both_kinds_of_inputs(
    by_inputs: dict[str, float | None], shown: list[str]
) -> None:
    text = tables.correctness_table([with_errors(by_inputs)])
    row = line_of(text, "flux1-1024px-t512").split()
    assert row[1:] == [
        *shown,
        "3.00e-03",
        "6.10e-03",
        "49%",
        "1.10e-02",
        "4.00e-04",
        "3.10e-07",
        "0.9999960",
        "0",
        "PASSED",
    ]
    assert "<b>" not in text
    assert max(map(len, text.splitlines())) <= 127


def test_the_csv_has_the_error_on_both_kinds_of_inputs(tmp_path: Path) -> None:
    tables.write_csv([with_errors({"normal": 0.1, "flux": 0.2}), of_old(make_record("a"))], tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(encoding="utf-8") as file:
        found = [(row["rel_l2_normal"], row["rel_l2_flux"]) for row in csv.DictReader(file)]
    assert found == [("0.1", "0.2"), ("", "")]


def test_the_correctness_table_says_why_something_did_not_pass() -> None:
    text = tables.correctness_table(failing())
    assert all(f"{status.value}: {reason}" in text for status, reason in REASONS.items())


def test_a_record_measured_again_replaces_the_older_one() -> None:
    old = make_record(median_ms=5.0, measured_at="2026-01-01T00:00:00Z")
    text = tables.timing_table([make_record(median_ms=0.8, measured_at="2026-01-02T00:00:00Z"), old])
    assert "5.00" not in text


def test_the_answer_names_fastest_reference_runner_up_and_device() -> None:
    records = [
        *curve("torch_flash", 0.8, reference_ms=0.8),
        *curve("torch_cudnn", 0.4, reference_ms=0.8),
        *curve("flex", 0.6, reference_ms=0.8),
    ]
    text = answered(records, "NVIDIA H200")
    assert re.fullmatch(
        r"On NVIDIA H200 \(driver 580\.10\), at flux1-1024px with 4,608 tokens .*, torch_cudnn is the fastest exact "
        r"kernel under sustained load, unbeaten at all 6 lengths "
        r"\(128 to 512 text tokens\): 0\.400 ms \[0\.398, 0\.402\] \(0\.3600 ms \[0\.3596, 0\.3604\] from rest\), "
        r"2\.00× \[1\.99, 2\.01\] as fast as torch_flash and "
        r"1\.50× \[1\.49, 1\.52\] as fast as the runner-up flex\.",
        text,
    )


def answered(records: Sequence[Record], device: str, notes: Mapping[str, str] | None = None) -> str:
    """Return the answer as one paragraph."""
    return " ".join(tables.answer(records, device, notes))


def test_the_answer_says_when_there_is_no_difference() -> None:
    text = answered([make_record(), make_record("a", median_ms=0.5), make_record("b", median_ms=0.501)], "X")
    assert "no measurable difference between a and b" in text


def test_the_answer_says_when_the_runner_up_is_tied() -> None:
    records = [make_record(name, median_ms=ms) for name, ms in (("a", 0.4), ("b", 0.6), ("c", 0.601), ("d", 0.9))]
    assert "as fast as the runner-up b, level with c." in answered(records, "X")


def level_at_the_longest(*others: Record) -> list[Record]:
    """Return records of which `a` is unbeaten at all lengths and what is level with it at the longest at that one."""
    beaten = [make_record(other.variant, workload, 0.7) for other in others for workload in LENGTHS[:-1]]
    return [*curve("torch_flash", 1.0), *curve("a", 0.5), *others, *beaten]


def test_what_is_level_at_the_longest_and_beaten_elsewhere_is_not_among_the_fastest() -> None:
    text = answered([*level_at_the_longest(make_record("b", median_ms=0.499)), *curve("c", 0.501)], "X")
    assert (
        "no measurable difference between a and c, the fastest exact kernels under sustained load, unbeaten at all 6 "
        "lengths (128 to 512 text tokens): a takes 0.500 ms"
    ) in text
    assert text.endswith(". Level with a at this length, but not at all of them: b (beaten at 5 lengths).")


def test_one_that_is_unbeaten_everywhere_goes_before_faster_medians_that_are_not() -> None:
    text = answered(level_at_the_longest(make_record("b", median_ms=0.499)), "X")
    assert "no exact kernel is measurably faster under sustained load than a, at any of 6 lengths (128 to 512 " in text
    assert "no measurable difference between" not in text


def test_a_leader_without_a_time_at_every_length_is_not_called_unbeaten_there() -> None:
    failed = [make_record("b", workload, status=Status.ERROR) for workload in LENGTHS[:-1]]
    text = answered([*curve("torch_flash", 1), *curve("a", 0.5), make_record("b", median_ms=0.499), *failed], "X")
    assert text.endswith("Level with a at this length, but not at all of them: b (without a place at 5 lengths).")
    alone = answered([*curve("torch_flash", 1), make_record("b", median_ms=0.5), *failed], "X")
    assert alone.endswith(". Of 6 lengths (128 to 512 text tokens), b is without a place at 5 lengths.")


def launching(record: Record, rested: float = 1.0) -> Record:
    """Return a record whose sustained time is of launching, and so as wide; from rest it is `rested` times as long."""
    assert record.timing
    assert record.burst
    wide = (record.timing.ratio / 3, record.timing.ratio * 3)
    low, high = record.burst.ratio_ci95
    burst = dataclasses.replace(
        record.burst, ratio=rested * record.burst.ratio, ratio_ci95=(rested * low, rested * high)
    )
    timing = dataclasses.replace(record.timing, ratio_ci95=wide)
    return dataclasses.replace(record, marks=LATE, timing=timing, burst=burst)


def test_a_time_of_launching_is_level_with_nothing() -> None:
    others = [*curve("torch_flash", 1.0), *curve("a", 0.5)]
    late = [launching(record) for record in curve("b", 0.6)]
    text = answered([*others, *late], "X")
    assert " a is the fastest exact kernel under sustained load, unbeaten at all 6 lengths" in text
    assert "no measurable difference" not in text
    assert not re.search(r"\bb\b", text)
    lines = [line.split()[:2] for line in tables.ranking_table([*others, *late]).splitlines()]
    at = lines.index(["1", "a"])
    assert lines[at : at + 3] == [["1", "a"], ["-h", "b"], ["2", "torch_flash"]]


def test_the_answer_names_what_is_faster_from_rest_and_has_no_place() -> None:
    late = [launching(record, rested=0.5) for record in curve("b", 0.6)]
    text = answered([*curve("torch_flash", 1.0), *curve("a", 0.5), *late], "X")
    assert text.endswith(". Faster from rest, but launching was too slow here to place under sustained load: b.")
    assert " a is the fastest exact kernel that could be placed under sustained load: 0.500 ms" in text
    late = [launching(record, rested=0.5) for record in curve("b", 0.6, precision_class="quantized")]
    others = [*curve("torch_flash", 1.0), *curve("c", 0.7, precision_class="quantized")]
    text = answered([*others, *late], "X")
    assert "torch_flash (the reference) is the fastest exact kernel under sustained load, unbeaten at all" in text
    assert "at looser error budgets, the quantized c" in text
    assert text.count("unbeaten") == 1
    assert text.endswith(" load: b.")


def test_a_form_without_a_rank_is_among_those_that_would_come_first_from_rest() -> None:
    late = launching(make_record("a_compile_d", median_ms=0.6), rested=0.5)
    text = tables.ranking_table([make_record(), make_record("a", median_ms=0.5), late])
    assert re.search(r"From rest \(burst\), a_compile_d \([^)]*\) would come before a \(", " ".join(text.split()))


def test_a_place_at_the_longest_alone_is_said() -> None:
    b = curve("b", 0.499)
    late = [*map(launching, b[:-1]), b[-1]]
    text = answered([*curve("torch_flash", 1.0), *curve("a", 0.5), *late], "X")
    assert text.endswith("but not at all of them: b (without a place at 5 lengths).")


def test_where_launching_is_too_slow_for_all_they_are_ranked() -> None:
    found = [launching(record) for record in (make_record(), make_record("a", median_ms=0.1))]
    lines = [line.split()[:2] for line in tables.ranking_table(found).splitlines()]
    at = lines.index(["1h", "a"])
    assert lines[at + 1] == ["2h", "torch_flash"]
    assert "to place" not in answered(found, "X")


def test_the_form_of_a_kernel_that_is_unbeaten_everywhere_is_named() -> None:
    forms = [*level_at_the_longest(make_record("flex", median_ms=0.5))[:-5], *curve("flex_compile_d", 0.5)]
    slow = [make_record("flex", workload, 0.7) for workload in LENGTHS[:-1]]
    assert "between a and flex_compile_d, the fastest" in answered([*forms, *slow], "X")


def test_the_runner_up_is_the_fastest_median_of_those_measurably_slower() -> None:
    noisy = make_record("noisy", median_ms=0.7, interval=0.25)  # ranks before b, since less is measurably faster
    records = [make_record(), make_record("a", median_ms=0.5), make_record("b", median_ms=0.6), noisy]
    assert "as fast as the runner-up b, level with noisy." in answered(records, "X")


def test_what_is_not_measurably_slower_than_the_first_is_no_runner_up() -> None:
    wide = make_record("a", median_ms=0.5, interval=0.1)
    narrow, beaten = make_record("b", median_ms=0.51), make_record("c", median_ms=0.53)  # by b, and level with a
    assert "no other kernel is measurably slower" in answered([wide, narrow, beaten], "X")


def test_ties_of_quantized_kernels_are_said_with_their_errors() -> None:
    quantized = [make_record(name, median_ms=0.3, precision_class="quantized", interval=0.1) for name in ("p8", "q8")]
    text = answered([make_record(), *quantized], "X")
    assert (
        "there is no measurable difference between p8 (relative L2 error 0.3%) and q8 (relative L2 error 0.3%), the "
        "fastest quantized kernels: p8 takes 0.300 ms"
    ) in text


def test_the_ranking_says_that_each_quantized_kernel_has_a_budget_of_its_own() -> None:
    said = "Each quantized kernel has an error budget of its own."
    assert said not in tables.ranking_table([make_record()])
    assert said in tables.ranking_table([make_record(), make_record("fp8", precision_class="quantized")])


def test_the_ranking_says_that_a_wide_interval_can_rank_first() -> None:
    text = " ".join(tables.ranking_table([make_record()]).split())
    assert "measurably faster, so a wide interval can rank before a faster median." in text


def test_an_exception_without_a_message_is_said_so() -> None:
    silent = make_record("a", status=Status.ERROR, reason="InternalTorchDynamoError: NotImplementedError:")
    for text in (tables.ranking_table([make_record(), silent]), tables.correctness_table([silent])):
        assert "InternalTorchDynamoError: NotImplementedError (no message)" in text


def test_the_correctness_table_says_which_rows_compare() -> None:
    text = " ".join(tables.correctness_table([make_record()]).split())
    assert "abs max, mean abs and MSE compare only between rows of the same kind" in text


def test_the_answer_does_not_count_two_forms_of_a_kernel_as_rivals() -> None:
    forms = [make_record("flex", median_ms=0.5), make_record("flex_compile_d", median_ms=0.499)]
    assert "flex is the fastest exact kernel" in answered([make_record(), *forms], "X")


def test_the_answer_says_so_where_the_reference_is_fastest() -> None:
    text = answered([make_record(), make_record("a", median_ms=1.5)], "X")
    assert "torch_flash (the reference) is the fastest" in text


def test_a_faster_quantized_kernel_is_said_apart_from_the_exact_one() -> None:
    records = [
        make_record(),
        make_record("a", median_ms=0.5),
        make_record("fp8", median_ms=0.3, precision_class="quantized"),
    ]
    assert re.search(
        r"a is the fastest exact kernel.*\. .*the quantized fp8 \(relative L2 error 0\.3%\) is faster still: ",
        answered(records, "X"),
    )


@pytest.mark.parametrize(
    ("median_ms", "said"),
    [(1.3, "0.769× [0.765, 0.773] as fast as torch_flash."), (1.0, "no measurable difference to torch_flash.")],
)
def test_a_quantized_kernel_that_is_not_faster_is_named_apart_too(median_ms: float, said: str) -> None:
    records = [make_record(), make_record("fp8", median_ms=median_ms, precision_class="quantized")]
    text = answered(records, "X")
    assert (
        ". Apart from these, at looser error budgets, the fastest quantized kernel is fp8 (relative L2 error 0.3%): "
        in text
    )
    assert text.endswith(said)


def test_the_answer_says_what_must_be_known_of_the_kernels_that_it_names() -> None:
    notes = {"flash_attn_3": "a third party's rebuild", "flash_attn_3_fp8": "of it too", "te_fused": "not here"}
    records = [make_record(), make_record("flash_attn_3_compile_d", median_ms=0.4)]
    text = answered(records, "X", notes)
    assert text.endswith(". Of flash_attn_3: a third party's rebuild.")


def test_each_class_of_precision_and_the_notes_have_a_paragraph_of_the_answer() -> None:
    late = launching(make_record("b", median_ms=0.6), rested=0.5)
    records = [make_record(), make_record("a", median_ms=0.4), late, make_record("q8", precision_class="quantized")]
    paragraphs = tables.answer(records, "X", {"a": "a rebuild"})
    assert [" ".join(paragraph.split()[:2]) for paragraph in paragraphs] == [
        "On X",
        "Apart from",
        "Faster from",
        "Of a:",
    ]


def test_one_note_on_two_kernels_is_said_once() -> None:
    text = answered([make_record("a"), make_record("b")], "X", {"a": "a rebuild", "b": "a rebuild"})
    assert text.endswith(". Of a and b: a rebuild.")


def test_the_answer_says_why_nothing_passed() -> None:
    text = answered([make_record(status=Status.UNSUPPORTED)], "X")
    assert "no kernel passed" in text
    assert REASONS[Status.UNSUPPORTED] in text


def test_the_answer_covers_each_model() -> None:
    text = answered([make_record(), make_record(workload="wan-720p", median_ms=80)], "X")
    assert "at flux1" in text
    assert ". At wan" in text


def test_workloads_of_other_heads_are_not_one_curve() -> None:
    other = Workload(name="flux1-1024px-t512", seq_len=4608, text_tokens=512, heads=12)
    assert tables.ranking_table([make_record(), make_record(workload=other)]).count("Ranking at") == 2


@pytest.mark.parametrize(
    "table",
    [tables.ranking_table, tables.timing_table, tables.correctness_table, tables.state_table, tables.method_note],
)
def test_no_records_is_said(table: Callable[[list[Record]], str]) -> None:
    assert table([]).strip()


def test_the_method_note_says_how_when_and_with_what() -> None:
    text = " ".join(tables.method_note([make_record()]).split())
    wanted = (
        "Sustained, which ranks",
        "Burst: single calls",
        "SM clock 1,755 MHz, power 640 W",
        "SM clock 1,980 MHz, power 150 W",
        "10 samples",
        "5 fresh processes",
        "the bootstrap's variance of the logarithm, its part between processes shared by all lengths of a variant, "
        "widened with Student's t",
        "2026-01-31",
        "driver 580.10",
        "torch 2.9.0",
    )
    assert all(word in text for word in wanted)


def test_the_csv_has_a_row_per_record_and_no_samples(tmp_path: Path) -> None:
    tables.write_csv([make_record(median_ms=0.8), *failing()], tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == [status.value for status in Status]
    assert "samples_ms" not in rows[0]
    assert (rows[0]["processes"], rows[1]["median_ms"]) == ("5", "")


def test_the_csv_has_both_regimes_and_what_is_beside_them(tmp_path: Path) -> None:
    record = dataclasses.replace(rested(make_record(median_ms=0.8), 0.7, precise=False), marks=("hot", "cold"))
    tables.write_csv([record], tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    wanted = {
        **{"regime": "sustained", "median_ms": "0.8", "burst_median_ms": "0.7", "burst_ratio": "1.0"},
        **{"burst_precise": "False", "burst_sm_clock_mhz": "1980", "burst_samples": "10", "burst_processes": "5"},
        **{"energy_mj": "250", "energy_ci95_low_mj": "247", "energy_ci95_high_mj": "253", "launch_ms": "0.06"},
        **{"clock_difference": "0.0", "device_s": "1.1", "marks": "hot; cold"},
    }
    assert {name: row[name].removesuffix(".0") for name in wanted} == {
        name: value.removesuffix(".0") for name, value in wanted.items()
    }


def test_several_texts_beside_one_image_are_a_table_of_their_own() -> None:
    records = [make_record(workload=workload) for size in ("flux1-512px", "flux1-1024px") for workload in SETS[size]]
    assert tables.ranking_table(records).count("Ranking at") == 2


def test_one_text_at_several_image_sizes_is_one_curve() -> None:
    records = [make_record(workload=workload) for size in (512, 1024) for workload in SETS[f"flux2-{size}px"]]
    assert re.search(r"^tokens +1,536 +4,608$", tables.timing_table(records), flags=re.MULTILINE)
