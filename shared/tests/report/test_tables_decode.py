"""Decoding: bandwidth and its share of the device's own copy rate, what pages cost, and tokens a second of a model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sample_records import PARTLY_REPLAYED, changed, record, results
from tabled import cells, rows_of, table_of, tables_of, words

from fluxbench.analysis.decode import caches, over, share_of_copy, tokens_per_second
from fluxbench.operations import sets
from fluxbench.records.schema import Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.results import Results
from fluxbench.report.tables import decode, decode_model, decode_pages

LONG, SHORT = "llama3-8b-decode-b128-32768", "llama3-8b-decode-512"
P16, P256 = "llama3-8b-decode-p16-b128-32768", "llama3-8b-decode-p256-b128-32768"
MODEL, TOO_LARGE = "llama3-8b-decode-model-b128-4096", "llama3-8b-decode-model-b128-32768"
RATES = {"copy_gb_s": 4000.0, "copy_gb_s_low": 3900.0, "copy_gb_s_high": 4100.0}
GB = sets.by_name()[LONG].cost.min_bytes / 1e9


def burst(variant: str, workload: str, ms: float, **fields: Any) -> Record:
    """Return a record in burst alone, whose interval reaches 1% to either side."""
    return record(variant, workload, ms, burst_ms=ms, regimes=("burst",), burst_ci=0.01, **fields)


def of(*records: Record, **rates: float) -> Results:
    return results(*records, study="decode", rates={**RATES, **rates})


def test_a_share_of_the_copy_rate_has_the_interval_of_both() -> None:
    one = burst("torch_flash", LONG, GB / 3.6)  # 3,600 GB/s
    share = share_of_copy(one, RATES)
    assert share is not None
    assert share.value == pytest.approx(0.9)
    assert (share.low, share.high) == pytest.approx((3600 / 1.01 / 4100, 3600 / 0.99 / 3900))
    alone = share_of_copy(one, {"copy_gb_s": 4000.0})
    assert alone is not None
    assert alone.high == pytest.approx(0.9 / 0.99)
    assert share_of_copy(one, {}) is None


def test_each_batch_and_length_has_its_fastest_kernel_or_the_reason_why_there_is_none() -> None:
    failed = {"status": Status.OUT_OF_MEMORY, "reason": "its inputs do not fit: no memory"}
    found = of(
        burst("torch_flash", LONG, GB / 2.4), burst("triton_decode", LONG, GB / 3.6),
        burst("torch_math", SHORT, 0.1, **failed), burst("flex", SHORT, 0.1, status=Status.UNSUPPORTED, reason="no"),
        burst("torch_flash", SHORT, 0.1, **failed), burst("torch_flash", P16, 1.0),
    )  # fmt: skip
    table = tables_of(decode.blocks(found))[0]
    assert [row[:3] for row in rows_of(table)] == [("1", "512", "0.00211"), ("128", "32,768", "17.2")]
    first, second = rows_of(table)
    assert first[3] == "OUT_OF_MEMORY: its inputs do not fit: no memory"
    assert second[3] == "triton_decode"
    assert second[4:] == ("4.77 ±0.05", "3,600", "90.0% [86.9, 93.2]", f"{3600 / 4800:.1%}")
    of_batch = tables_of(decode.blocks(found))[2]
    assert [row[0] for row in rows_of(of_batch)] == ["triton_decode", "torch_flash"]
    assert cells(of_batch, "torch_flash")["32,768 of copy"] == "60.0%"
    csv = decode.rows(found)
    line = dict(zip(csv[0], next(each for each in csv if each[0] == "triton_decode"), strict=True))
    assert (line["batch"], line["cached_tokens"], line["page_size"], line["status"]) == (128, 32768, 0, "PASSED")
    assert line["of_data_sheet"] == pytest.approx(0.75)
    assert [each[5] for each in csv if each[4] == "UNSUPPORTED"] == ["no"]
    assert len(csv) == 1 + 6


def test_a_kernel_on_pages_stands_over_itself_on_a_contiguous_cache() -> None:
    found = of(
        burst("triton_decode", LONG, 4.0), burst("triton_decode", P16, 5.0), burst("triton_decode", P256, 4.0),
        burst("torch_flash", LONG, 5.0), burst("torch_flash", P16, 20.0),
        burst("torch_flash", P256, 1.0, status=Status.OUT_OF_MEMORY),
        burst("flash_attn_2_kvcache", P16, 1.0, status=Status.UNSUPPORTED), burst("torch_flash", SHORT, 1.0),
    )  # fmt: skip
    [table] = tables_of(decode_pages.blocks(found))
    assert [row[0] for row in rows_of(table)] == ["triton_decode", "torch_flash"]
    assert list(cells(table, "triton_decode").values())[1:] == [
        "4.00 ±0.04", "5.00 ±0.05", "1.25× [1.23, 1.27]", "4.00 ±0.04", "1.00× [0.99, 1.01]",
    ]  # fmt: skip
    assert list(cells(table, "torch_flash").values())[-2:] == ["OUT_OF_MEMORY", "-"]
    ratio = over(burst("a", P16, 5.0), burst("a", LONG, 4.0))
    assert decode_pages.rows(found)[1] == ("triton_decode", 128, 32768, 16, 1.25, ratio.low, ratio.high)
    assert "No cache in pages" in words(decode_pages.blocks(of(burst("torch_flash", LONG, 1.0))))


def test_a_model_s_step_gives_tokens_a_second_or_says_what_does_not_fit() -> None:
    reason = {"status": Status.OUT_OF_MEMORY, "reason": "its inputs do not fit"}
    found = of(
        burst("torch_flash", MODEL, 40.0), burst("triton_decode", MODEL, 32.0),
        *(burst(name, TOO_LARGE, 1.0, **reason) for name in ("torch_flash", "triton_decode")),
    )  # fmt: skip
    table = table_of(decode_model.blocks(found))
    assert rows_of(table)[0] == ("triton_decode", "32.0 ±0.3", "4,000 [3,960, 4,040]")
    assert rows_of(table)[-1][0] == "torch_flash, triton_decode: OUT_OF_MEMORY: its inputs do not fit"
    assert "batch 128, 4,096 cached tokens: weights 15.0 GB, cache 68.7 GB" in words([table])
    assert "cache 550 GB" in words([table])
    assert tokens_per_second(burst("torch_flash", MODEL, 40.0)).value == pytest.approx(3200)
    graph = Flag(kind=FlagKind.REPLAYED, regime="burst", value=45.0)
    [table] = tables_of(decode_model.blocks(of(burst("torch_flash", MODEL, 40.0, flags=(graph,)))))
    assert rows_of(table)[0] == ("torch_flash", "40.0 ±0.4", "3,200 [3,168, 3,232]", "45.0")
    assert "as servers replay it" in words([table])
    csv = decode_model.rows(found)
    assert csv[1][:3] == ("torch_flash", 128, 4096)
    assert [line[5] for line in csv[1:]] == ["PASSED", "PASSED", "OUT_OF_MEMORY", "OUT_OF_MEMORY"]


def test_caches_are_by_batch_and_tokens_and_a_page_without_them_says_so() -> None:
    found = caches([burst("torch_flash", name, 1.0) for name in (LONG, P16, P256, SHORT, MODEL)])
    assert [(cache.batch, cache.tokens, sorted(cache.at)) for cache in found] == [
        (1, 512, [0]), (128, 32768, [0, 16, 256]),
    ]  # fmt: skip
    assert found[0].find("torch_flash", 16) is None
    for table, sentence, of_other in (
        (decode, "contiguous cache was measured", MODEL),
        (decode_model, "No step of a whole model", LONG),
    ):
        assert sentence in words(table.blocks(of(burst("torch_flash", of_other, 1.0))))


def test_steps_that_were_replayed_in_some_processes_alone_have_no_time_and_the_page_says_why() -> None:
    found = of(burst("torch_flash", MODEL, 40.0, flags=PARTLY_REPLAYED[:1]),
               burst("torch_native", MODEL, 32.0, flags=PARTLY_REPLAYED))  # fmt: skip
    shown = decode_model.blocks(found)
    first, second = rows_of(table_of(shown))
    assert first[0] == "torch_flash"
    assert second == (
        "torch_native: no time: a CUDA graph was replayed in 4 of 5 processes, in the others the host launched calls "
        "(a replay returns another logits than a call)", "-", "-", "-",
    )  # fmt: skip
    said = words(shown)
    assert "In 1 of 2 rows a process or more had no CUDA graph: a replay returns another logits than a call." in said
    assert "1 of these have no time" in said
    assert "by over 1% (relative L2)" in said
    line = dict(zip(*(decode_model.rows(found)[place] for place in (0, 2)), strict=True))
    assert (line["variant"], line["status"], line["step_ms"], line["tokens_per_s_high"]) == (
        "torch_native", "PASSED", None, None,
    )  # fmt: skip
    assert str(line["reason"]).startswith("no time: ")
    assert "CUDA graph:" not in words(decode_model.blocks(of(burst("torch_flash", MODEL, 40.0))))


def test_an_interval_that_no_bandwidth_can_reach_is_said_and_one_that_says_nothing_has_no_ends() -> None:
    def shown(ci: float) -> str:
        one = record("torch_flash", LONG, burst_ms=GB / 4.0, regimes=("burst",), burst_ci=ci)
        return words(decode.blocks(of(one)))

    assert "reaches over the data sheet's" not in shown(0.01)
    assert "In 1 row the interval reaches over the data sheet's 4,800 GB/s" in shown(0.2)
    step = burst("torch_flash", MODEL, 40.0)
    timing = msgspec.structs.replace(step.timings["burst"], ci95_ms=(2.0, 800.0))
    [header, line] = decode_model.rows(of(changed(step, timings={"burst": timing})))
    row = dict(zip(header, line, strict=True))
    assert row["tokens_per_s"] == pytest.approx(3200)
    assert (row["tokens_per_s_low"], row["tokens_per_s_high"]) == (None, None)


def test_the_fastest_kernel_says_that_another_may_be_as_fast() -> None:
    names = [
        rows_of(tables_of(decode.blocks(of(burst("torch_flash", LONG, 5.0), burst("flex", LONG, ms))))[0])[0][3]
        for ms in (4.99, 3.0)
    ]
    assert names[0] in ("flex =", "torch_flash =")
    assert names[1] == "flex"


def test_a_kernel_that_is_too_uncertain_for_a_rank_is_not_named_the_fastest() -> None:
    wide = record("flex", LONG, burst_ms=GB / 2.6, regimes=("burst",), burst_ci=0.5)
    [row] = rows_of(tables_of(decode.blocks(of(wide, burst("torch_flash", LONG, GB / 2.4))))[0])
    assert row[3] == "torch_flash"
    [row] = rows_of(tables_of(decode.blocks(of(wide)))[0])
    assert row[3].startswith("too uncertain for a rank")
