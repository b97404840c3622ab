"""FlashAttention's versions: each beside the guide's figure, speeds within one source; the first has its reason."""

from __future__ import annotations

import dataclasses

import pytest
from sample_records import changed, record, results
from tabled import cells, rows_of, table_of, words

from fluxbench.operations import sets
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.tables import versions

LONG, SHORT = "speed-guide-8192", "speed-guide-512"


def of(variant: str, ms: float, workload: str = LONG, **fields: object) -> Record:
    return changed(record(variant, workload, ms, **fields), peak_memory_bytes=64 << 20)  # type: ignore[arg-type]


def test_each_version_has_its_rate_its_share_and_the_guide_s_figure() -> None:
    found = results(
        of("torch_flash", 6.0), of("flash_attn_2", 5.5), of("flash_attn_3", 3.0),
        of("flash_attn_3_fp8", 2.0, precision_class="quantized"), of("flash_attn_2", 0.1, SHORT),
        of("torch_math", 1.0, status=Status.OUT_OF_MEMORY, reason="too much"),
    )  # fmt: skip
    blocks = versions.blocks(found)
    table = table_of(blocks, "8,192 tokens")
    assert [row[0] for row in rows_of(table)] == [
        "flash_attn_3", "flash_attn_2", "torch_flash", "torch_math", "flash_attn_3_fp8",
    ]  # fmt: skip
    rate = 4 * 8 * 32 * 8192**2 * 64 / 3.0 / 1e9  # 1,466 TFLOP/s: made up
    third = cells(table, "flash_attn_3")
    assert (third["TFLOP/s"], third["of peak"]) == (f"{rate:,.0f}", f"{rate / 989.4:.1%}")
    assert cells(table, "flash_attn_3_fp8")["of peak"] == f"{1.5 * rate / 1978.9:.1%}"
    assert third["ours over flash_attn_2"].startswith("1.83×")
    assert third["guide ms"].startswith("27.1")
    assert third["guide over its FA-2"] == f"{47.8 / 27.1:.2f}×"
    assert third["peak memory MiB"] == "64"
    assert [cells(table, "flash_attn_2")[name] for name in ("ours over flash_attn_2", "guide over its FA-2")] == [
        "1×",
        "1.00×",
    ]
    assert cells(table, "torch_flash")["guide ms"] == "-"
    assert cells(table, "torch_math")["ms"] == "OUT_OF_MEMORY"
    assert cells(table, "torch_math")["guide ms"].startswith("151.4")
    assert "FlashAttention-1: not measured. Its last release" in words(blocks)
    assert "The audit finds nothing wrong with these times of the guide" in words(blocks)
    assert rows_of(table_of(blocks, "512 tokens"))[0][0] == "flash_attn_2"
    csv = versions.rows(found)
    line = dict(zip(csv[0], next(each for each in csv if each[0] == "flash_attn_3"), strict=True))
    assert line["guide_over_flash_attn_2"] == pytest.approx(47.8 / 27.1)
    assert line["over_flash_attn_2"] == pytest.approx(5.5 / 3.0, rel=1e-3)


def test_without_a_time_of_flash_attention_2_nothing_is_compared_with_it() -> None:
    refused = of("flash_attn_2", 1.0, status=Status.UNSUPPORTED, reason="needs a GPU")
    table = table_of(versions.blocks(results(of("flash_attn_3", 1.0), refused)), "8,192 tokens")
    assert {cells(table, name)["ours over flash_attn_2"] for name in ("flash_attn_2", "flash_attn_3")} == {"-"}


def test_the_guide_has_a_figure_at_each_of_its_lengths_and_at_no_other_shape() -> None:
    named = sets.named(["speed-guide"])
    assert [each.x for each in named] == [512, 1024, 2048, 4096, 8192]
    assert {(each.shape["batch"], each.shape["heads"], each.shape["head_dim_qk"]) for each in named} == {(8, 32, 64)}
    assert not any(each.shape["causal"] for each in named)
    one = of("flash_attn_2", 1.0)
    other = dataclasses.replace(one.workload, name="other", shape={**one.workload.shape, "batch": 4})
    table = table_of(versions.blocks(results(of("flash_attn_2", 1.0, other))), "batch 4")  # type: ignore[arg-type]
    assert cells(table, "flash_attn_2")["guide ms"] == "-"
