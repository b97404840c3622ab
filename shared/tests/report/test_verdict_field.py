"""Among which kernels a verdict is, where there is none, at which lengths it does not hold, and its gain by ratios."""

from __future__ import annotations

import msgspec
import pytest
from sample_records import changed, record, results
from verdicts import said

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import SUSTAINED, Flag, KernelShare, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report import verdict, verdict_words
from fluxbench.report.blocks import Chart
from fluxbench.report.tables import ranking

LENGTHS = sets.sets()["flux1-1024px"]
DEFAULT = record("torch_native")


def shown_of(*records: Record) -> list[str]:
    return [block.text() for block in verdict.blocks(records, "X")]


def test_where_the_first_is_not_measurably_faster_than_the_baseline_none_is_named_the_fastest() -> None:
    wide = [DEFAULT, record("a", sustained_ms=0.88, ci=0.3), record("c", sustained_ms=0.9, ci=0.3)]
    assert said(*wide) == (
        "Of 3 exact kernels measured here none is measurably faster than PyTorch's default. "
        "a and c may be faster or slower: too uncertain to tell."
    )
    assert not any("Use a" in block.text() or "Use c" in block.text() for block in verdict.blocks(wide, "X"))
    beside = [record("torch_flash", ci=0.3), record("torch_cudnn", sustained_ms=1.3, ci=0.3)]
    assert "candidates are FlashAttention-2 (SDPA) and cuDNN (SDPA)." in said(*beside)
    assert "The device waits" not in said(*beside)
    assert not any(isinstance(block, Chart) for block in verdict.blocks(beside, "X"))
    assert any(isinstance(block, Chart) for block in verdict.blocks([DEFAULT, record("a", sustained_ms=0.8)], "X"))
    launched = [changed(one, launch_ms=1.0, cupti=None) for one in beside]
    assert said(*launched).endswith(" The device waits for the host in some of these calls.")


def test_a_kernel_that_is_behind_a_beaten_one_by_its_own_time_does_not_tie_with_the_first() -> None:
    first, beaten = record("flash_attn_4", sustained_ms=0.95, ci=0.002), record("flex", sustained_ms=0.98, ci=0.002)
    wide = record("triton_flash", sustained_ms=0.985, ci=0.05)
    assert said(DEFAULT, first, wide).startswith("FlashAttention-4 and Triton (fluxbench) tie as fastest of 3")
    assert said(DEFAULT, first, beaten, wide) == (
        "FlashAttention-4 is the fastest of 4 exact kernels measured here: 5% faster than PyTorch's default. "
        "Triton (fluxbench) may be as fast: too uncertain to tell."
    )


def test_what_may_be_far_faster_or_slower_than_a_default_that_nothing_beats_does_not_tie_with_it() -> None:
    far = [record("torch_native", ci=0.2), record("flex", sustained_ms=0.95, ci=0.2)]
    assert said(*far) == (
        "Of 2 exact kernels measured here none is measurably faster than PyTorch's default. "
        "FlexAttention may be faster or slower: too uncertain to tell."
    )
    near = [record("torch_native", ci=0.02), record("flex", sustained_ms=0.99, ci=0.02)]
    assert said(*near).endswith("default. FlexAttention ties with it.")


def test_where_one_kernel_alone_was_compiled_the_first_of_the_others_is_named_too() -> None:
    compiled = record("torch_native_compile_d", sustained_ms=0.7)
    assert said(DEFAULT, compiled, record("triton_flash", sustained_ms=0.9)).endswith(
        ": 43% faster than PyTorch's default. No other kernel was measured compiled; of those not compiled Triton "
        "(fluxbench) comes first, 11% faster."
    )
    assert said(DEFAULT, compiled, record("triton_flash", sustained_ms=1.1)).endswith(
        " No other kernel was measured compiled; of those not compiled none is measurably faster."
    )
    layer = [record(name, "llama3-8b-layer", ms) for name, ms in (("torch_native", 1.0), ("triton_flash", 0.9))]
    assert said(*layer, record("torch_native_compile_d", "llama3-8b-layer", 0.7)).endswith(
        " comes first, 11% faster. Compiling a layer also fuses its norms and rotary embedding."
    )
    both = record("triton_flash_compile_d", sustained_ms=0.9)
    for others in ([both], [record("triton_flash", sustained_ms=0.6)], []):
        assert "compiled; of those" not in said(DEFAULT, compiled, *others)


def test_nothing_is_level_with_a_default_whose_own_time_is_hardly_known() -> None:
    unknown = record("torch_native", ci=0.5)
    found = said(unknown, record("a", sustained_ms=1.2), record("c", sustained_ms=1.3))
    assert found.startswith(
        "Too uncertain to tell which of 3 exact kernels measured here is the fastest: candidates are"
    )
    assert "PyTorch default (SDPA)" in found


def test_one_whose_interval_is_wide_is_not_named_before_one_that_is_measured_well() -> None:
    known = [DEFAULT, record("a", sustained_ms=0.88, ci=0.3), record("c", sustained_ms=0.9)]
    assert said(*known) == (
        "c is the fastest of 3 exact kernels measured here: 11% faster than PyTorch's default. "
        "a may be as fast: too uncertain to tell."
    )


def test_one_that_is_faster_than_all_however_uncertain_by_how_much_is_named_and_not_said_to_tie() -> None:
    first = "a is the fastest of 3 exact kernels measured here"
    unsure = f"{first}; how much faster than PyTorch's default is too uncertain to tell."
    assert said(DEFAULT, record("c"), record("a", sustained_ms=0.3, ci=0.3)) == unsure
    assert said(DEFAULT, record("c"), record("a", sustained_ms=0.3, ci=0.01)).startswith(f"{first}: 3.3 times as fast")


def test_of_kernels_that_tie_the_gain_is_said_of_those_of_which_it_is_known() -> None:
    tie = [DEFAULT, record("a", sustained_ms=0.95), record("c", sustained_ms=0.97, ci=0.05)]
    assert said(*tie) == (
        "a and c tie as fastest of 3 exact kernels measured here: a is 5% faster than PyTorch's default; of c that is "
        "too uncertain to tell."
    )


def test_kernels_that_tie_with_a_reference_that_stands_in_have_no_gain_over_it() -> None:
    assert said(record(), record("torch_cudnn", sustained_ms=0.999)).endswith(
        " tie as fastest of 2 exact kernels measured here. PyTorch's default was not measured here."
    )


def test_where_one_exact_kernel_alone_is_tried_there_is_no_choice_and_none_is_advised() -> None:
    rounded = record("torch_eager", sustained_ms=0.5, precision_class="rounded")
    assert said(record(), rounded).startswith(
        "No choice of kernels: FlashAttention-2 (SDPA) is the only exact one that is measured at this workload. Eager"
    )
    for alone in (record(), record("torch_math"), DEFAULT):
        assert not [text for text in shown_of(alone) if text.startswith(("Use ", "How to"))]


def test_one_of_several_that_were_tried_is_the_only_one_with_a_time() -> None:
    failed = record("flash_attn_3", status=Status.CRASHED)
    assert said(record(), failed) == "FlashAttention-2 (SDPA) is the only exact kernel with a time."
    assert said(DEFAULT, failed) == "PyTorch's default is the only exact kernel with a time."
    assert any(text.startswith("Use FlashAttention-2") for text in shown_of(record(), failed))


def test_a_library_of_which_nothing_is_available_is_named_with_the_reason_below_the_verdict() -> None:
    def unavailable(name: str, reason: str) -> Record:
        return record(name, status=Status.UNAVAILABLE, reason=reason)

    third = unavailable("flash_attn_3", "fa3_fwd_interface has no backward pass; install flash_attn_interface")
    quantized = unavailable("flash_attn_3_fp8", "fa3_fwd_interface has no backward pass")
    _, missing, *_ = shown_of(DEFAULT, record(), third, quantized)
    assert missing == "FlashAttention-3 has no time here: fa3_fwd_interface has no backward pass."
    unsupported = record("flash_attn_4", status=Status.UNSUPPORTED)
    in_another_way = unavailable("torch_fa3", "torch's FA3 takes flash-attn-3: install it")
    for others in ([unsupported], [record("flash_attn_3", sustained_ms=0.8), in_another_way]):
        assert not any("no time here" in text for text in shown_of(DEFAULT, record(), *others))
    refused = unavailable("xformers", f"the library refuses its backend: it {'is not usable ' * 9}")
    assert "xFormers has no time here: the library refuses its backend." in shown_of(DEFAULT, record(), refused)
    several = [third, *(unavailable(name, "no wheel") for name in ("xformers", "flash_attn_2", "flashinfer"))]
    assert "FlashAttention-3, xFormers and 2 others have no time here; the table of what did not pass says why." in (
        shown_of(DEFAULT, record(), *several)
    )


def test_of_one_kernel_in_several_forms_the_verdict_is_among_these() -> None:
    compiled = record("torch_flash_compile_d", sustained_ms=0.5)
    assert said(record(), compiled).startswith(
        "FlashAttention-2 (SDPA), compiled is the fastest of 2 exact forms measured here: 2.0 times as fast as"
    )


def test_a_choice_that_is_slower_than_the_default_at_other_lengths_says_at_how_many() -> None:
    default = [record("torch_native", workload) for workload in LENGTHS]
    late = [record("torch_cudnn", workload, 1.5 if workload in LENGTHS[:2] else 0.8) for workload in LENGTHS]
    assert said(*default, *late) == (
        "cuDNN (SDPA) is the faster of 2 exact kernels measured here at 512 text tokens: 25% faster than PyTorch's "
        "default. At 2 of the 6 lengths cuDNN (SDPA) is measurably slower than PyTorch's default."
    )
    assert any(text.startswith("Use cuDNN (SDPA) at 512 text tokens:") for text in shown_of(*default, *late))
    third = [record("flash_attn_3", LENGTHS[2], 0.7)]
    assert said(*default, *late, *third).endswith(
        " At 3 of the 6 lengths another exact kernel or form is faster than cuDNN (SDPA). "
        "FlashAttention-3 was not measured at 512 text tokens."
    )
    lacking = [record("torch_cudnn", LENGTHS[0], status=Status.OUT_OF_MEMORY), *late[1:]]
    assert " At 1 of the 6 lengths cuDNN (SDPA) ran out of memory." in said(*default, *lacking)


def test_a_gain_that_is_not_there_at_all_sizes_has_its_size_and_the_number_of_the_others() -> None:
    def pair(ms: float, workload: Workload) -> list[Record]:
        return [record("torch_native", workload), record("gluon_flash", workload, ms)]

    steps = sets.sets()["flux1-steps"]
    gained = [each for workload in steps for each in pair(1.0 if workload.x == 1024 else 0.95, workload)]
    assert said(*gained) == (
        "Gluon (fluxbench) is the faster of 2 exact kernels measured here at 2,048 px: 5% faster than PyTorch's "
        "default. At 1 of the 5 sizes no exact kernel is measurably faster."
    )
    only_before = [each for workload in LENGTHS for each in pair(1.0 if workload is LENGTHS[-1] else 0.9, workload)]
    assert said(*only_before).startswith("Of 2 exact kernels measured here at 512 text tokens none is measurably")
    for ms in (0.9, 1.0):
        everywhere = said(*(each for workload in LENGTHS for each in pair(ms, workload)))
        assert "text tokens" not in everywhere
        assert " lengths " not in everywhere


def test_the_gain_over_the_default_is_the_ratio_in_the_same_processes_where_that_is_the_reference() -> None:
    """Its own cell's default took 1.1 ms, that of another cell 1.0."""
    ratio = msgspec.structs.replace(
        record("flash_attn_3", sustained_ms=0.8).timings[SUSTAINED],
        reference_variant="torch_native", ratio=0.8 / 1.1, ratio_ci95=(0.72, 0.735),
    )  # fmt: skip
    fast = changed(record("flash_attn_3", sustained_ms=0.8), timings={SUSTAINED: ratio})
    [group] = groups([DEFAULT, fast])
    speedup = analysis.of(group).exact[0].speedup
    assert speedup
    assert (speedup.value, speedup.low, speedup.high) == pytest.approx((1.375, 1 / 0.735, 1 / 0.72))
    assert "38% faster than PyTorch's default" in verdict_words.sentence(analysis.of(group))
    [open_table, _] = [block for block in ranking.blocks(results(DEFAULT, fast)) if "Ranking at" in block.text()]
    assert "1.375× [1.361, 1.389]" in open_table.text() or "1.38× [1.36, 1.39]" in open_table.text()


def test_a_gain_whose_ratio_in_the_same_processes_may_be_none_is_not_told() -> None:
    default, third = (
        [record(name, each, ms) for each in LENGTHS] for name, ms in (("torch_native", 1), ("triton", 0.97))
    )
    ratio = msgspec.structs.replace(
        third[-1].timings[SUSTAINED], reference_variant="torch_native", ratio=0.99, ratio_ci95=(0.97, 1.01)
    )
    third[-1] = changed(third[-1], timings={SUSTAINED: ratio})
    assert said(*default, *third) == (
        "Of 2 exact kernels measured here at 512 text tokens none is measurably faster than PyTorch's default. "
        "triton ties with it. At 5 of the 6 lengths another exact kernel or form is faster than PyTorch default (SDPA)."
    )


def test_gains_that_round_apart_have_a_decimal_where_they_are_within_one_percent() -> None:
    def pair(one: float, other: float) -> str:
        return said(DEFAULT, record("v0", sustained_ms=1 / one, ci=0.02), record("v1", sustained_ms=1 / other, ci=0.02))

    assert "25.4 to 25.5% faster than" in pair(1.2551, 1.2541)
    assert ": 25% faster than" in pair(1.2524, 1.2541)
    assert "24 to 26% faster than" in pair(1.2551, 1.2449)


def test_the_caption_says_where_cuda_graphs_were_replayed() -> None:
    replayed = [Flag(kind=FlagKind.REPLAYED, regime="sustained", value=1.1)]
    graphs = [record("torch_native", flags=replayed), record("flash_attn_3", sustained_ms=0.8, flags=replayed)]
    captions = [verdict_words.caption(analysis.of(groups(each)[0]), "H200") for each in (graphs, [DEFAULT, graphs[1]])]
    assert "under sustained load, replayed as CUDA graphs, 95%" in captions[0]
    assert "under sustained load, 95%" in captions[1]


def test_a_default_that_gathers_the_pages_of_a_cache_within_its_call_says_so_beside_the_gain() -> None:
    paged = "llama3-8b-decode-p16-131072"
    kernels = [KernelShare(name=part, share=ms, part=part) for part, ms in (("gathering", 0.69), ("attention", 0.31))]
    reads_pages = record("flashinfer", paged, 0.4)
    assert said(record("torch_native", paged, kernels=kernels), reads_pages).endswith(
        "2.5 times as fast as PyTorch's default, which first gathers the pages (69% of its device time)."
    )
    assert said(record("torch_native", paged), reads_pages).endswith("2.5 times as fast as PyTorch's default.")
