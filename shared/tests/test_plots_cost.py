"""The figures of what a kernel costs beside its time: its error, its energy, and what a call is spent on."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from sample_records import launched_late, make_record, of_old
from test_plots import SMALL, draw, plotted, told, words

from fluxbench.records.schema import Record, Status
from fluxbench.report.figures import figures as plots
from fluxbench.report.figures import frontier as plots_frontier


def apart(record: Record, **parts: float) -> Record:
    """Return a record whose call the profiler took apart, in ms."""
    assert record.second_clock
    return dataclasses.replace(record, second_clock=dataclasses.replace(record.second_clock, parts_ms=parts))


def erring(record: Record, rel_l2: float) -> Record:
    assert record.correctness
    return dataclasses.replace(record, correctness=dataclasses.replace(record.correctness, rel_l2=rel_l2))


def test_on_the_frontier_is_what_no_faster_kernel_matches_in_error() -> None:
    fast, exact, worse, slow = (
        erring(make_record(name, median_ms=ms), error)
        for name, ms, error in (("fast", 0.2, 0.05), ("exact", 0.4, 0.002), ("worse", 0.5, 0.003), ("slow", 5, 0.001))
    )
    alike = erring(make_record("alike", median_ms=0.6), 0.00195)  # by 2.5% less than one that is faster
    found = plots_frontier.frontier([slow, worse, exact, fast, alike])
    assert [record.variant for record in found] == ["fast", "exact", "slow"]


def test_what_is_not_measurably_faster_than_one_that_errs_less_is_not_on_the_frontier() -> None:
    noisy = erring(make_record("noisy", median_ms=0.35, interval=0.2), 0.05)
    exact = erring(make_record("exact", median_ms=0.4), 0.002)
    fast = erring(make_record("fast", median_ms=0.2), 0.05)
    assert plots_frontier.frontier([noisy, exact]) == [exact]
    assert plots_frontier.frontier([noisy, exact, fast]) == [fast, exact]


def test_the_ratios_say_that_each_quantized_kernel_has_a_budget_of_its_own(tmp_path: Path) -> None:
    its = [make_record(), make_record("flash_attn_3_fp8", median_ms=0.3, precision_class="quantized")]
    assert "looser error budgets, each its own" in " ".join(words(draw(plots.ranking, its, tmp_path)))


def test_what_is_level_in_time_and_in_error_is_on_the_frontier() -> None:
    level = [erring(make_record(n, median_ms=ms), e) for n, ms, e in (("a", 0.4, 0.002), ("b", 0.402, 0.00195))]
    assert plots_frontier.frontier(level) == level


def test_a_time_of_launching_is_not_on_the_frontier_and_beats_nothing_there(tmp_path: Path) -> None:
    late = launched_late(make_record("late", median_ms=0.2))
    exact, slower = make_record("exact", median_ms=0.4), make_record("late_compile_d", median_ms=0.6)
    assert plots_frontier.frontier([late, exact]) == [exact]
    svg = draw(plots.frontier, [late, exact, slower], tmp_path)
    assert [text.split(":")[0] for text in told(svg)] == ["exact", "late_compile_d"]


def test_the_frontier_shows_a_kernel_once_in_its_fastest_form_and_the_csv_every_form(tmp_path: Path) -> None:
    svg = draw(plots.frontier, SMALL, tmp_path)
    assert [text.split(":")[0] for text in told(svg)] == ["torch_cudnn", "torch_flash"]
    assert len(plotted(tmp_path / "figure.csv")) == 3
    assert [row["on_frontier"] for row in plotted(tmp_path / "figure.csv")] == ["True", "False", "False"]


@pytest.mark.parametrize(("second", "drawn"), [(0.06, True), (0.12, False)])
def test_a_budget_is_drawn_where_all_kernels_of_a_class_have_it(second: float, drawn: bool, tmp_path: Path) -> None:
    its = [make_record()]
    for name, budget in (("flash_attn_3_fp8", 0.06), ("cudnn_frontend_fp8", second)):
        record = erring(make_record(name, median_ms=0.3), 0.05)
        assert record.correctness
        right = dataclasses.replace(record.correctness, precision_class="quantized", budget_rel_l2=budget)
        its.append(dataclasses.replace(record, correctness=right))
    found = words(draw(plots.frontier, its, tmp_path))
    assert "budget, exact" in found
    assert ("budget, quantized" in found) == drawn


def test_what_has_no_energy_is_named_and_not_drawn(tmp_path: Path) -> None:
    unknown = dataclasses.replace(make_record("torch_cudnn", median_ms=0.4), energy_mj=None, energy_ci95_mj=None)
    found = words(draw(plots.energy, [make_record(), unknown], tmp_path))
    assert "Not known of torch_cudnn." in found
    assert "250 ±3 mJ" in found
    assert [row["energy_mj"] for row in plotted(tmp_path / "figure.csv")] == ["", "250.0"]
    assert any("Not known" in text for text in words(draw(plots.energy, [unknown], tmp_path)))


def test_the_energy_of_what_was_launched_late_comes_last(tmp_path: Path) -> None:
    late = launched_late(dataclasses.replace(make_record("late"), energy_mj=100.0, energy_ci95_mj=(99.0, 101.0)))
    svg = draw(plots.energy, [late, make_record()], tmp_path)
    assert [text.split(":")[0] for text in told(svg)] == ["torch_flash", "late h"]


def test_a_call_is_split_by_what_its_kernels_do(tmp_path: Path) -> None:
    records = [
        apart(make_record("torch_flash_copy"), attention=0.6, copies=0.27, other=0.003),
        apart(make_record("fp8", median_ms=0.5, precision_class="quantized"), attention=0.3, quantization=0.15),
        make_record(),
    ]
    svg = draw(plots.parts, records, tmp_path)
    assert told(svg) == [
        "fp8, attention: 0.300 ms of 0.450 ms, 66.7%, burst",
        "fp8, quantization: 0.150 ms of 0.450 ms, 33.3%, burst",
        "torch_flash_copy, attention: 0.600 ms of 0.900 ms, 66.7%, burst",
        "torch_flash_copy, copies: 0.270 ms of 0.900 ms, 30.0%, burst",
        "torch_flash_copy, other: 0.00300 ms of 0.900 ms, 0.3%, burst",
    ]
    assert {"quantization 0.15", "copies 0.27", "Not taken apart: torch_flash."} <= set(words(svg))
    assert {row["variant"]: row["copies_ms"] for row in plotted(tmp_path / "figure.csv")} == {
        "torch_flash_copy": "0.27",
        "fp8": "0.0",
        "torch_flash": "",
    }


@pytest.mark.parametrize(
    "records", [[], [make_record(status=Status.CRASHED)], [make_record()], [of_old(make_record())]]
)
def test_calls_that_were_not_taken_apart_are_said_to_be_so(records: list[Record], tmp_path: Path) -> None:
    assert re.search("Nothing passed|Not known", " ".join(words(draw(plots.parts, records, tmp_path))))
