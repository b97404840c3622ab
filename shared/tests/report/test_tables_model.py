"""Tables of a model's step: gains over the default of the same form, what attention leaves, and the step's parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sample_records import CPU, changed, record, results
from tabled import cells, heads, rows_of, table_of, words

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Cupti, Flag, KernelShare, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report import verdict_words
from fluxbench.report.tables import model, model_parts

STEP, LARGE = sets.by_name()["flux1-1024px-step"], sets.by_name()["flux1-2048px-step"]
WAN = sets.by_name()["wan-480p-block"]
PARTS = {"attention": 0.2, "products": 0.6, "norms": 0.1, "copies": 0.1}  # shares of a step


def step(variant: str, ms: float, workload: Workload = STEP, **fields: Any) -> Record:
    cupti = Cupti(events_ms=ms, kernels_ms=ms, span_ms=ms, parts_ms={part: share * ms for part, share in PARTS.items()})
    return record(variant, workload, ms, ci=0.0005, reference_ms=160.0, cupti=cupti, **fields)


def fastest(*records: Record) -> list[dict[str, str]]:
    """Return the rows of the open table, by heading."""
    table = table_of(model.blocks(results(*records)), "The fastest kernel of each step")
    return [dict(zip(heads(table), row, strict=True)) for row in rows_of(table)]


EAGER = [step("torch_native", 160.0), step("torch_cudnn", 168.0), step("flash_attn_4", 152.0)]
BLOCKS = [step("torch_native_blocks", 100.0), step("flash_attn_4_blocks", 90.0), step("torch_math_blocks", 140.0)]


def test_a_gain_is_over_the_default_of_the_same_form_in_ms_percent_and_28_steps() -> None:
    table = table_of(model.blocks(results(*EAGER, *BLOCKS)), "24 heads of 128, 4,096")
    found = {row[0]: row for row in rows_of(table)}
    assert list(found) == [
        "flash_attn_4", "torch_native", "torch_cudnn",
        "flash_attn_4_blocks", "torch_native_blocks", "torch_math_blocks",
    ]  # fmt: skip
    assert found["torch_native"][2:] == found["torch_native_blocks"][2:] == ("-", "-", "-")
    assert (found["flash_attn_4"][2], found["flash_attn_4"][3][:3]) == ("8.00", "5.0")
    _, _, gain_ms, share, image_s = found["flash_attn_4_blocks"]
    assert (gain_ms, share[:4], image_s) == ("10.0", "10.0", "0.280")
    assert float(share.split("[")[1].split(",")[0]) < 10.0 < float(share.split(", ")[1].rstrip("]%"))
    assert found["torch_cudnn"][2] == "-8.00"


def test_a_time_beside_a_gain_is_the_default_s_less_the_gain_whatever_the_device_was_like_in_its_own_processes() -> (
    None
):
    """As the gain is by ratios to the default beside a kernel where these are steadier than times."""
    drift, own = (0.97, 0.99, 1.0, 1.02, 1.04), step("flash_attn_4", 162.0)  # of a cell with a slower device

    def drifting(of: Record, ms: float, beside_ms: float) -> Record:
        parts = {"samples_ms": ms, "reference_ms": beside_ms}
        samples = {name: tuple((factor * value,) * 2 for factor in drift) for name, value in parts.items()}
        timing = msgspec.structs.replace(of.timings["sustained"], **samples, reference_variant="torch_native")
        return changed(of, timings={"sustained": timing})

    found = [drifting(step("torch_native", 160.0), 160.0, 160.0), drifting(own, 162.0, 165.0)]
    table = table_of(model.blocks(results(*found)), "24 heads of 128, 4,096")
    assert [row[:3] for row in rows_of(table)] == [
        ("flash_attn_4", "157", "2.91"),  # 160 less 160 times 3 of 165
        ("torch_native", "160.00 ±0.08", "-"),
    ]
    assert "Beside a gain, a step's time is the default's less that gain." in table.notes[0]
    header, *lines = model.rows(results(*found))
    assert [line[header.index("ms")] for line in lines] == [160.0, 162.0]


def test_each_step_has_its_fastest_kernel_with_its_gain_beside_attention_s_share_of_the_default() -> None:
    default, compiled = fastest(*EAGER, *BLOCKS)
    assert default == {
        "step": STEP.name, "model": "not compiled", "fastest": "flash_attn_4", "gain": "5.00% [4.95, 5.05]",
        "attention's share": "20.0%", "default ms": "160.00 ±0.08", "gain ms": "8.00",
    }  # fmt: skip
    assert list(default)[2:5] == ["fastest", "gain", "attention's share"]
    # The form of the model stands beside the kernel, whose name does not say it again.
    assert (compiled["model"], compiled["fastest"]) == ("repeated blocks compiled", "flash_attn_4")


def test_attention_s_share_is_by_the_profiler_of_a_graph_of_its_kernels_time() -> None:
    """A graph does not wait for the host, as the profiled step does; a launched one does."""
    waits = Cupti(events_ms=210.0, kernels_ms=160.0, span_ms=200.0, parts_ms={"attention": 32.0, "products": 128.0})
    graph = changed(step("torch_native", 160.0, **replayed(200.0)), cupti=waits)
    launched = changed(EAGER[0], cupti=waits)
    assert [fastest(each)[0]["attention's share"] for each in (graph, launched)] == ["20.0%", "16.0%"]


def test_a_form_with_one_kernel_compares_nothing_and_ties_are_marked_as_in_the_verdict() -> None:
    whole = step("torch_native_compile_d", 99.0)
    close = step("flash_attn_3_blocks", 90.01)
    blocks, compiled = fastest(*BLOCKS, close, whole)
    assert blocks["fastest"] == "flash_attn_4 ="
    assert (compiled["model"], compiled["fastest"], compiled["gain"]) == ("compiled whole", "-", "-")
    said = words(model.blocks(results(*BLOCKS, close))[:1])
    assert "FlashAttention-3 is not measurably slower." in said


def replayed(ms: float) -> dict[str, Any]:
    return {"launch_ms": ms, "flags": [Flag(kind=FlagKind.REPLAYED, regime="sustained", value=ms)]}


def test_steps_as_cuda_graphs_have_gains_and_their_time_as_the_host_launches_it_beside_them() -> None:
    timed = [step("torch_native", 40.0, **replayed(90.0)), step("flash_attn_4", 36.0, **replayed(91.0))]
    found = model.blocks(results(*timed))
    table = table_of(found, "24 heads of 128, 4,096")
    rows = {row[0]: row for row in rows_of(table)}
    assert (rows["torch_native"][2], rows["flash_attn_4"][2:4]) == ("90.0", ("91.0", "4.00"))
    assert "without CUDA graphs a faster kernel gains less" in words([table_of(found, "The fastest")])
    assert "Launching decides" not in words(found)
    assert "replayed as a CUDA graph: " in words(found[:1])
    header, *csv = model.rows(results(*timed))
    assert [line[header.index("launched_ms")] for line in csv] == [90.0, 91.0]


def test_a_launched_step_has_no_gain_over_a_replayed_one() -> None:
    timed = [step("torch_native", 40.0, **replayed(41.0)), step("flash_attn_4", 36.0, launch_ms=5.0)]
    table = table_of(model.blocks(results(*timed)), "24 heads of 128, 4,096")
    rows = {row[0]: row[2:] for row in rows_of(table)}
    assert rows["flash_attn_4"] == ("-", "-", "-", "-")
    assert "no CUDA graph of the step could be captured" in words([table])
    assert "Launching decides" not in words([table])
    assert fastest(*timed)[0]["fastest"] == "none measurably"


def test_steps_that_the_host_launches_have_no_gain_where_launching_takes_as_long() -> None:
    timed = [step("torch_native", 40.0, launch_ms=39.0), step("flash_attn_4", 36.0, launch_ms=20.0)]
    timed = [changed(each, cupti=None) for each in timed]
    [row] = fastest(*timed)
    assert (row["fastest"], row["gain"], row["gain ms"]) == ("launching decides", "-", "-")
    assert "as launched" not in words(model.blocks(results(*timed)))
    waiting = Cupti(events_ms=36.0, kernels_ms=20.0, span_ms=36.0)  # in burst the step takes 32.4 ms
    timed = [step("torch_native", 40.0), changed(step("flash_attn_4", 36.0), cupti=waiting)]
    [row] = fastest(*timed)
    assert (row["fastest"], row["gain"], row["gain ms"]) == ("launching decides", "-", "-")
    assert row["attention's share"] == "-"  # it is not what a kernel could gain


def test_a_kernel_that_may_gain_nothing_is_not_named_the_fastest() -> None:
    tied = step("flash_attn_4", 159.9)
    [row] = fastest(EAGER[0], tied)
    assert (row["fastest"], row["gain"], row["gain ms"]) == ("none measurably", "-", "-")
    table = table_of(model.blocks(results(EAGER[0], tied)), "The fastest kernel of each step")
    assert "none is measurably faster than the default" in words([table])
    assert fastest(EAGER[0], EAGER[1])[0]["fastest"] == "torch_native"  # the default itself
    # It takes least, by less than is known.
    assert fastest(EAGER[0], step("torch_cudnn", 160.02))[0]["fastest"] == "none measurably"


def test_a_step_that_the_host_launches_about_as_slowly_says_nothing_of_a_kernel() -> None:
    slow = [changed(EAGER[0], launch_ms=150.0, cupti=None), EAGER[2]]
    [row] = fastest(*slow)
    assert (row["fastest"], row["gain"], row["gain ms"]) == ("launching decides", "-", "-")
    every = table_of(model.blocks(results(*slow)), "24 heads of 128, 4,096")
    assert cells(every, "flash_attn_4")["gain"] == "-"
    assert "what else the host does" in words([every])
    by_name = {row[1]: row for row in model.rows(results(*slow))}
    assert by_name["flash_attn_4"][-6:] == (None,) * 6


def test_the_lead_is_of_the_largest_step_of_the_most_compiled_form() -> None:
    larger = [step("torch_native_blocks", 400.0, LARGE), step("flash_attn_4_blocks", 300.0, LARGE)]
    said = words(model.blocks(results(*EAGER, *BLOCKS, *larger))[:1])
    assert "16,384 + 512 text tokens" in said
    assert (
        "FlashAttention-4 takes 25.0% off a step with diffusers' default, 100 of 400 ms, and 2.80 s off an image"
        in said
    )
    assert "Attention is 20.0% of that step: about the most that a kernel can gain." in said
    tied = words(model.blocks(results(BLOCKS[0], step("flash_attn_4_blocks", 100.0)))[:1])
    assert "no kernel is measurably faster than diffusers' default. Attention is 20.0% of that step" in tied


def test_the_verdict_s_gain_is_over_the_default_of_the_same_form() -> None:
    [group] = groups([*EAGER, *BLOCKS])
    said = verdict_words.sentence(analysis.of(group))
    assert said.startswith("FlashAttention-4, blocks compiled is the fastest of")
    assert "11% faster than PyTorch default (SDPA), blocks compiled." in said
    [level] = groups([*EAGER, BLOCKS[0], step("flash_attn_4_blocks", 99.99)])
    assert "none is measurably faster than PyTorch default (SDPA), blocks compiled" in verdict_words.sentence(
        analysis.of(level)
    )


def test_a_wrong_kernel_has_no_gain_and_a_missing_one_has_its_reason() -> None:
    wrong = step("flash_attn_3_blocks", 50.0, status=Status.INCORRECT)
    missing = record("xformers", STEP, status=Status.UNAVAILABLE, reason="diffusers refuses its backend")
    shown = model.blocks(results(*BLOCKS, wrong, missing))
    assert fastest(*BLOCKS, wrong, missing)[0]["fastest"] == "flash_attn_4"
    assert "flash_attn_3_blocks" not in words([table_of(shown, "FLUX.1")])
    assert "diffusers refuses its backend" in words(shown)


def test_a_block_alone_makes_no_image() -> None:
    of_wan = [step("torch_native", 10.0, WAN), step("flash_attn_4", 9.0, WAN)]
    assert (
        cells(table_of(model.blocks(results(*of_wan)), "Wan 2.1, 1 block"), "flash_attn_4")["gain of 28 steps, s"]
        == "-"
    )


def test_without_the_default_nothing_is_compared() -> None:
    shown = model.blocks(results(EAGER[1], EAGER[2]))
    assert "diffusers' default has no time" in words(shown)
    assert rows_of(table_of(shown, "The fastest")) == []


def test_the_csv_has_a_row_for_every_record() -> None:
    failed = record("xformers", STEP, status=Status.ERROR)
    header, *found = model.rows(results(*BLOCKS, failed))
    by_name = {row[1]: dict(zip(header, row, strict=True)) for row in found}
    row = by_name["flash_attn_4_blocks"]
    assert (row["form"], row["attention_share"]) == ("blocks", 0.2)
    assert row["gain_ms"] == pytest.approx(10.0)
    assert row["gain_share_low"] < row["gain_share"] < row["gain_share_high"]  # type: ignore[operator]
    assert (by_name["xformers"]["status"], by_name["xformers"]["ms"]) == ("ERROR", None)


def test_parts_are_of_whole_models_with_the_default_and_the_fastest_before_and_after_compiling() -> None:
    of_block = step("torch_native", 10.0, WAN)
    table = table_of(model_parts.blocks(results(*EAGER, *BLOCKS, of_block)))
    assert [row[:2] for row in rows_of(table)] == [
        ("not compiled", "torch_native"), ("not compiled", "flash_attn_4"),
        ("repeated blocks compiled", "torch_native_blocks"), ("repeated blocks compiled", "flash_attn_4_blocks"),
    ]  # fmt: skip
    row = cells(table, "torch_native")
    assert row["without a kernel, ms"] == "0.00 (0%)"
    assert (row["attention ms"], row["matrix products ms"], row["rotary embedding ms"]) == (
        "32.0 (20%)",
        "96.0 (60%)",
        "-",
    )
    operators = [
        ("aten::addmm", 0.5),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 0.25),
        ("aten::gelu", 0.25),
    ]
    on_cpu = record(
        "torch_native", STEP, cupti=Cupti(events_ms=200.0, kernels_ms=200.0, span_ms=200.0),
        kernels=tuple(KernelShare(name=name, share=share) for name, share in operators),
    )  # fmt: skip
    row = cells(table_of(model_parts.blocks(results(on_cpu, device=CPU))), "torch_native")
    assert "without a kernel, ms" not in row
    assert (row["attention ms"], row["matrix products ms"], row["rest ms"]) == ("50.0 (25%)", "100 (50%)", "50.0 (25%)")


def test_a_step_that_the_host_launches_too_slowly_is_without_a_kernel_for_the_rest() -> None:
    seen = Cupti(events_ms=80.0, kernels_ms=60.0, span_ms=80.0, parts_ms={"attention": 20.0, "products": 40.0})
    late = record("torch_native", STEP, 80.0, cupti=seen)
    row = cells(table_of(model_parts.blocks(results(late))), "torch_native")
    assert (row["profiled step ms"], row["without a kernel, ms"]) == ("80.0", "20.0 (25%)")
    header, row_of_csv = model_parts.rows(results(late))
    assert dict(zip(header, row_of_csv, strict=True))["without_kernel_ms"] == 20.0
