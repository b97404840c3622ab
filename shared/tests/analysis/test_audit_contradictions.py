"""Figures of a table that cannot all be right, planted one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from audits import CONDITIONAL, HEADER, NOT_STATED, ROW, audited, found, judgements, only_sentence, tidy

from fluxbench.analysis.audit.finding import Judgement, Kind
from fluxbench.report.audit.text import text
from fluxbench.report.audit.words import sentence


def test_times_and_rates_that_do_not_belong_together_are_contradictory(tmp_path: Path) -> None:
    table = tidy(tmp_path, {"value": 0.5}, {"value": 522, "unit": "TFLOP/s"}, {"value": 700, "unit": "TFLOP/s"})
    assert judgements(table) == ["fine", "fine", "contradictory"]
    assert only_sentence(table) == "700 TFLOP/s, but its time of 0.500 ms for 2.61e+11 FLOP is 522 TFLOP/s"


@pytest.mark.parametrize(
    ("passes", "tflops", "explains"),
    [
        ("forward", 522 * 2.5, "; counting backward would explain it"),
        ("backward", 522 * 1.4, "; counting forward+backward would explain it"),
        ("backward", 522 / 2.5, "; counting forward would explain it"),
    ],
)
def test_planted_the_rate_of_the_wrong_pass_is_found(tmp_path: Path, passes: str, tflops: float, explains: str) -> None:
    ms = 0.5 if passes == "forward" else 1.25
    row = f"A100,x,{passes},bf16,1,4608,24,24,128,{6 * ms},{tflops / 6:.2f},False"
    header = HEADER.replace("value,unit", "ms,tflops,causal")
    table = audited(tmp_path, row, header=header)
    assert found(table, Kind.TIME_AND_RATE)
    [finding] = [finding for finding in table.rows[0].findings if finding.kind is Kind.TIME_AND_RATE]
    assert sentence(finding).endswith(explains)


def test_planted_microseconds_that_are_called_milliseconds_are_found(tmp_path: Path) -> None:
    table = audited(tmp_path, f"{ROW},407,ms", f"{ROW},40.7,ms")
    assert judgements(table) == ["implausible", "fine"]
    assert only_sentence(table).endswith("float32 needs; a time in microseconds would explain it")
    beside = tidy(tmp_path, {"value": 407.0}, {"value": 641, "unit": "TFLOP/s"})
    assert sentence(found(beside, Kind.TIME_AND_RATE)[0].findings[-1]).endswith("; a factor of 1,000 would explain it")


def test_a_short_call_of_one_head_may_be_slow_as_most_of_the_card_idles(tmp_path: Path) -> None:
    one, many = (f"H200,x,backward,float32,1,2048,{heads},{heads},64,{1.3 * heads},ms" for heads in (1, 24))
    assert judgements(audited(tmp_path, one, many)) == ["fine", "implausible"]


def test_planted_a_causal_row_without_its_mark_is_found_and_says_what_explains_it(tmp_path: Path) -> None:
    assert only_sentence(audited(tmp_path, f"{ROW},0.23,ms")).endswith(NOT_STATED)


@pytest.mark.parametrize(("first", "second", "expected"), [("2.50", "1.25", "fine"), ("1.25", "2.50", "contradictory")])
def test_planted_swapped_speedups_are_found(tmp_path: Path, first: str, second: str, expected: str) -> None:
    times: list[dict[str, object]] = [
        {"implementation": name, "value": value} for name, value in (("base", 2.0), ("fast", 0.8), ("slow", 1.6))
    ]
    speedups: list[dict[str, object]] = [
        {"implementation": name, "over": "base", "value": value, "unit": "x"}
        for name, value in (("fast", first), ("slow", second))
    ]
    assert judgements(tidy(tmp_path, *times, *speedups)) == ["fine"] * 3 + [expected] * 2


@pytest.mark.parametrize(
    ("value", "unit", "judgement", "binary"),
    [
        ("17.2", "GB", "fine", False),
        ("16.0", "GiB", "fine", False),
        ("16.0", "GB", "fine", True),  # planted: GB for GiB, which the text names
        ("17.2", "GiB", "contradictory", False),  # planted: GiB for GB
        ("8.6", "GB", CONDITIONAL, False),  # of elements of 8 bits
    ],
)
def test_planted_powers_of_two_for_powers_of_ten_are_found_or_named(
    tmp_path: Path, value: str, unit: str, judgement: str, binary: bool
) -> None:
    cache = {"component": "kv cache", "batch": 64, "seq_len": 32768, "heads": 32, "kv_heads": 32, "head_dim": 64}
    table = tidy(tmp_path, {**cache, "value": value, "unit": unit})
    assert (judgements(table), table.rows[0].binary) == ([judgement], binary)
    assert ("only as powers of two" in text(table)) == binary


def test_a_total_shorter_than_its_parts_is_contradictory(tmp_path: Path) -> None:
    passes = [("forward", 1.0), ("backward", 2.5), ("forward+backward", 3.2)]
    rows: list[dict[str, object]] = [{"pass": name, "value": value} for name, value in passes]
    assert judgements(tidy(tmp_path, *rows)) == ["fine"] * 3
    rows[2]["value"] = 2.3
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.TOTAL_UNDER_PART)] == [4]
    rows[2]["value"] = 2.54
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.TOTAL_UNDER_SUM)] == [4]
    rows[1]["value"] = 0.8
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.BACKWARD_SHORTER)] == [3]


def test_growth_per_token_beyond_the_length_is_contradictory(tmp_path: Path) -> None:
    def rows(power: float) -> list[dict[str, object]]:
        return [{"seq_len": n, "value": f"{(n / 1024) ** power:.4g}", "per": "token"} for n in (1024, 2048, 4096)]

    assert judgements(tidy(tmp_path, *rows(1.0))) == ["fine"] * 3
    assert {row.judgement for row in found(tidy(tmp_path, *rows(2.0)), Kind.PER_TOKEN_GROWTH)} == {
        Judgement.CONTRADICTORY
    }


@pytest.mark.parametrize(("tokens_per_s", "judgement"), [(151, "fine"), (201, CONDITIONAL)])
def test_generation_cannot_read_its_weights_faster_than_the_memory(
    tmp_path: Path, tokens_per_s: int, judgement: str
) -> None:
    row: dict[str, object] = {"model": "Llama 2 7B", "pass": "generation", "value": tokens_per_s, "unit": "tokens/s"}
    assert judgements(tidy(tmp_path, row, gpu="A100-80GB")) == [judgement]
