"""The verdict: the fastest exact kernels, their gain over PyTorch's default, the fastest quantized one, the chart."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import msgspec
import pytest
from drawn import overlap, text_box, texts, tooltips
from published import REPORTS
from sample_records import LAUNCH_BOUND, changed, record
from verdicts import said

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.records import files
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import KernelShare, Record
from fluxbench.records.status import Status
from fluxbench.report import verdict, verdict_words
from fluxbench.report.figures.verdict import WIDTH_PT, chart

LENGTHS = sets.sets()["flux1-1024px"]
DEFAULT = record("torch_native")


def quantized(ms: float, name: str = "flash_attn_3_fp8", ci: float = 0.005) -> Record:
    return record(name, sustained_ms=ms, precision_class="quantized", rel_l2=0.052, ci=ci)


def test_the_fastest_exact_kernel_and_its_gain_over_the_default() -> None:
    assert said(DEFAULT, record("flash_attn_3", sustained_ms=0.8)) == (
        "FlashAttention-3 is the faster of 2 exact kernels measured here: 25% faster than PyTorch's default."
    )
    assert "0.8% faster than" in said(DEFAULT, record("flash_attn_3", sustained_ms=0.992, ci=0.001))
    assert "2.5 times as fast as PyTorch's default." in said(DEFAULT, record("flash_attn_3", sustained_ms=0.4))


def test_records_of_two_methods_have_no_verdict_and_those_of_two_drivers_say_so() -> None:
    old = record("flash_attn_3", sustained_ms=0.8, method_version=7)
    assert said(DEFAULT, old).startswith(
        "No verdict: not all of these can be compared, since they were not measured in the same way: method version "
        f"{METHOD_VERSION} "
    )
    assert not verdict.blocks([DEFAULT, old], "H200")[1:]
    upgraded = {**DEFAULT.versions, "driver": "590.20"}
    _, mixed, *_ = verdict.blocks([DEFAULT, record("flash_attn_3", versions=upgraded)], "H200")
    assert mixed.text() == (
        "These were not all measured with the same versions: driver 580.10 (torch_native), 590.20 (flash_attn_3)."
    )


def test_tied_kernels_are_one_group_of_at_most_three_names() -> None:
    tied = [record(f"v{number}", sustained_ms=0.8 + number / 1000) for number in range(4)]
    among = "tie as fastest of 3 exact kernels measured here"
    assert said(DEFAULT, *tied[:2]).startswith(f"v0 and v1 {among}: 25% faster than")
    assert said(DEFAULT, *tied[:3]).startswith("v0, v1 and v2 tie as")
    assert said(DEFAULT, *tied).startswith("v0, v1 and 2 others tie as")
    spread = [record("a", sustained_ms=0.7, ci=0.02), record("b", sustained_ms=0.714, ci=0.02)]
    assert f"a and b {among}: 40 to 43% faster than" in said(DEFAULT, *spread)


def test_a_default_that_nothing_beats_is_the_answer() -> None:
    assert said(DEFAULT, record("flex", sustained_ms=1.5)) == (
        "Of 2 exact kernels measured here none is measurably faster than PyTorch's default."
    )
    assert said(DEFAULT, record("flex", sustained_ms=1.001)).endswith("default. FlexAttention ties with it.")


def test_a_default_that_may_be_far_slower_but_is_not_measurably_so_is_level() -> None:
    spread = [record(name, sustained_ms=ms, ci=0.2) for name, ms in (("torch_native", 1.0), ("flex", 0.94))]
    assert said(*spread).startswith("Of 2 exact kernels measured here none is measurably faster than PyTorch's")


def test_without_the_default_the_reference_stands_in_and_says_so() -> None:
    without = "2.0 times as fast as FlashAttention-2 (SDPA). PyTorch's default was not measured here."
    assert said(record(), record("flash_attn_3", sustained_ms=0.5)).endswith(without)
    failed = record("torch_native", status=Status.CRASHED)
    assert said(failed, record(), record("flash_attn_3", sustained_ms=0.5)).endswith(
        "2.0 times as fast as FlashAttention-2 (SDPA). PyTorch's default has no time at 512 text tokens."
    )


def test_a_quantized_kernel_is_compared_with_the_fastest_exact_one_and_has_its_error() -> None:
    exact = record("flash_attn_3", sustained_ms=0.8)
    assert said(DEFAULT, exact, quantized(0.64)).endswith(
        " FlashAttention-3 float8 is 56% faster, with 5% relative error."
    )
    for ms in (0.8, 0.9):
        assert said(DEFAULT, exact, quantized(ms)).endswith(
            " The fastest quantized kernel, FlashAttention-3 float8, has 5% relative error "
            "and is not measurably faster."
        )
    assert said(exact, quantized(0.4)).endswith("float8 is faster than these, with 5% relative error.")
    wide_and_faster = [quantized(0.70, "wide", ci=0.4), quantized(0.71, "sure")]
    assert "sure is 41% faster, with 5% relative error" in said(DEFAULT, exact, *wide_and_faster)


@pytest.mark.parametrize(
    ("ms", "clause"),
    [
        (0.5, "is 2.0 times as fast."),
        (0.8, "is 25% faster."),
        (1.0, "is neither measurably faster nor slower."),
        (1.14, "takes 14% longer."),
        (2.5, "takes 2.5 times as long."),
    ],
)
def test_what_rounds_more_is_compared_with_the_only_exact_kernel(ms: float, clause: str) -> None:
    eager = record("torch_eager", sustained_ms=ms, precision_class="rounded")
    assert said(record(), eager).endswith(f" Eager (by hand), which rounds every intermediate, {clause}")


def test_beside_several_exact_kernels_what_rounds_more_is_named_where_it_is_faster_than_all() -> None:
    exact = record("flash_attn_3", sustained_ms=0.8)
    tf32 = record("torch_efficient_tf32", sustained_ms=0.5, precision_class="tf32")
    assert said(DEFAULT, exact, tf32).endswith("which rounds its inputs to TF32, is 2.0 times as fast.")
    eager = record("torch_eager", sustained_ms=0.9, precision_class="rounded")
    assert "Eager" not in said(DEFAULT, exact, eager)
    [group] = groups([DEFAULT, exact, tf32])
    assert [one.record.variant for one in analysis.of(group).shown][-1] == "torch_efficient_tf32"


def test_nothing_exact_and_nothing_at_all() -> None:
    wrong = record("torch_native", status=Status.INCORRECT)
    assert said(wrong).startswith("No exact kernel has a time here;")
    assert said(wrong, quantized(1.0)).endswith(
        "Of the quantized kernels FlashAttention-3 float8 is the fastest, with 5% relative error."
    )
    assert [block.text() for block in verdict.blocks([], "X")] == ["Nothing was measured on X."]


def test_what_is_launch_bound_or_far_too_uncertain_is_not_named_beside_others() -> None:
    fast = record("flash_attn_3", sustained_ms=0.8)
    late = record("te_fused", sustained_ms=0.8, flags=[LAUNCH_BOUND])
    uncertain = record("xformers", sustained_ms=1.0, ci=0.9)
    assert said(DEFAULT, fast, late, uncertain) == (
        "FlashAttention-3 is the fastest of 4 exact kernels measured here: 25% faster than PyTorch's default. "
        "xFormers may be as fast: too uncertain to tell."
    )
    [group] = groups([DEFAULT, fast, uncertain])
    assert [one.record.variant for one in analysis.of(group).exact] == ["flash_attn_3"]
    assert said(DEFAULT, record("te_fused", sustained_ms=0.8, flags=[LAUNCH_BOUND])).startswith("Transformer Engine")


def test_the_choice_is_one_that_none_beats_at_any_length_and_a_beaten_one_says_so() -> None:
    at = {name: [record(name, workload, 0.8) for workload in LENGTHS] for name in ("a", "b")}
    at["b"][:3] = [record("b", workload, 0.9) for workload in LENGTHS[:3]]
    at["b"][-1] = record("b", LENGTHS[-1], 0.799)
    default = [record("torch_native", workload) for workload in LENGTHS]
    assert said(*default, *at["b"], *at["a"]).startswith("b and a tie as")
    [group] = groups([*default, *at["b"], *at["a"]])
    found = analysis.of(group)
    assert (found.choice, found.beaten_at) == (at["a"][-1], 0)
    beaten = [record("c", workload, 0.7) for workload in LENGTHS[:2]]
    assert "At 2 of the 6 lengths another exact kernel or form is faster than a." in said(*default, *at["a"], *beaten)
    once = said(*default, *at["a"], record("b", LENGTHS[-1], 0.9), beaten[0])
    assert f"At {beaten[0].workload.x:,} text tokens c is faster than a." in once


def test_a_kernel_is_named_and_chosen_once_also_where_it_is_loaded_in_another_way() -> None:
    loaded, direct = (record(name, sustained_ms=ms) for name, ms in (("hf_local_flash", 0.8), ("gluon_flash", 0.801)))
    [group] = groups([DEFAULT, loaded, direct])
    found = analysis.of(group)
    assert said(DEFAULT, loaded, direct) == (
        "Gluon (fluxbench) is the faster of 2 exact kernels measured here: 25% faster than PyTorch's default."
    )
    assert found.choice == direct
    assert [one.record.variant for one in found.shown] == ["gluon_flash", "torch_native"]
    assert verdict_words.caption(found, "X").endswith(
        "HF kernels (fluxbench) is Gluon (fluxbench), loaded in another way."
    )
    assert said(loaded, direct).startswith("No choice of kernels: Gluon (fluxbench) is the only exact one")
    other = KernelShare(name="flash_forward_kernel", share=1.0, part="attention")
    for kernels in ((), (other,)):  # nothing shows that these are the same kernel
        unlike = changed(loaded, kernels=kernels)
        assert said(DEFAULT, unlike, direct).startswith("HF kernels (fluxbench) and Gluon (fluxbench) tie as fastest")


def test_a_kernel_that_may_be_as_fast_is_named_once() -> None:
    fast = record("flash_attn_3", sustained_ms=0.8)
    ways = [record(name, sustained_ms=0.9, ci=0.2) for name in ("hf_local_flash", "gluon_flash")]
    text = said(DEFAULT, fast, *ways)
    assert "Gluon (fluxbench) may be as fast" in text
    assert "HF kernels" not in text


def test_a_choice_without_a_time_at_a_length_is_not_beaten_there() -> None:
    default = [record("torch_native", workload) for workload in LENGTHS]
    few = [record("a", workload, 0.8) for workload in LENGTHS[2:]]
    assert said(*default, *few).endswith("default. At 2 of the 6 lengths a was not measured.")
    [group] = groups([*default, *few])
    assert (analysis.of(group).beaten_at, analysis.of(group).absent) == (0, {None: 2})


def test_a_default_that_nothing_beats_is_never_replaced_by_another_form_of_it_or_by_one_that_ties() -> None:
    nothing = "Of 2 exact {} none is measurably faster than PyTorch's default."
    late = record("torch_native", flags=[LAUNCH_BOUND])
    assert said(late, record("flash_attn_3", sustained_ms=0.999)).startswith(nothing.format("kernels measured here"))
    default = [record("torch_native", workload, 1.05 if workload in LENGTHS[:2] else 1.0) for workload in LENGTHS]
    compiled = [record("torch_native_compile_d", workload, 0.999) for workload in LENGTHS]
    assert said(*default, *compiled) == nothing.format("forms measured here at 512 text tokens") + (
        " At 2 of the 6 lengths another exact kernel or form is faster than PyTorch default (SDPA)."
    )


def test_the_simplest_form_that_is_beaten_least_stands_for_a_kernel() -> None:
    forms = [record("flex", sustained_ms=0.801), record("flex_compile_d", sustained_ms=0.8)]
    assert said(DEFAULT, *forms).startswith("FlexAttention is the faster of 2")
    forms[0] = record("flex", sustained_ms=0.9)
    assert said(DEFAULT, *forms).startswith("FlexAttention, compiled is the faster of 2")


def test_the_chart_has_each_kernel_once_with_its_interval() -> None:
    [group] = groups([DEFAULT, record("flash_attn_3", sustained_ms=0.8), quantized(0.5)])
    drawn = chart(analysis.of(group), "name")
    assert tooltips(drawn) == [
        "FlashAttention-3: 1.250× [1.243, 1.257]",
        "PyTorch default (SDPA): 1×",
        "FlashAttention-3 float8: 2.00× [1.99, 2.01]",
    ]
    assert {"times as fast as PyTorch's default", "FlashAttention-3 float8 (5% error)"} <= set(texts(drawn))


def test_a_chart_of_kernels_of_which_nothing_is_known_but_one_sample_is_drawn() -> None:
    kinds = (("torch_flash", 1.0, "exact"), ("flash_attn_3_fp8", 0.9, "quantized"))
    made = [record(name, sustained_ms=ms, regimes=("sustained",), precision_class=kind) for name, ms, kind in kinds]
    single = [
        changed(one, timings={"sustained": msgspec.structs.replace(one.timings["sustained"], samples_ms=((ms,),))})
        for one, ms in zip(made, (1.0, 0.9), strict=True)
    ]
    [group] = groups(single)
    assert "1.11× [unknown]" in tooltips(chart(analysis.of(group), "name"))[1]


def test_no_text_of_the_chart_reaches_over_an_edge_or_into_another() -> None:
    records = [DEFAULT, record("torch_efficient_compile_ma", sustained_ms=0.5), quantized(0.4, "sage_int8_fp16_triton")]
    [group] = groups(records)
    boxes = [box for element in ET.fromstring(chart(analysis.of(group), "name")).iter() if (box := text_box(element))]
    assert all(left >= 0 and right <= WIDTH_PT + 1 for _, left, _, right, _ in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert not overlap(one, other), (one, other)


@pytest.mark.parametrize("share", [0.003, 0.024, 0.06, 0.13, 0.4])
def test_numbers_at_the_ends_of_the_scale_are_whole(share: float) -> None:
    for step in range(12):  # wherever the scale begins and ends, a number may be at its very end
        slower = 1 + share * (1 + step / 12)
        [group] = groups([DEFAULT, record("flash_attn_3", sustained_ms=1 / slower), quantized(slower)])
        texts_of = map(text_box, ET.fromstring(chart(analysis.of(group), "name")).iter())
        assert all(left >= 0 and right <= WIDTH_PT + 1 for _, left, _, right, _ in filter(None, texts_of))


@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_a_published_verdict_is_short(target: str) -> None:
    records = [each for path in files.paths(REPORTS / target / "flux" / "records") for each in files.read(path)]
    shown = [block.text() for block in verdict.blocks(records, str(records[0].fingerprint["device"]))]
    [group] = groups(records)
    found = analysis.of(group)
    caption = verdict_words.caption(found, str(records[0].fingerprint["device"]))
    assert len(f"{verdict_words.sentence(found)} {caption}".split()) <= 70
    # After speeds, where a kernel ties or is faster, and after what was not measured.
    assert any(each.startswith("Use ") for each in shown[1:4])


def shown_of(*records: Record) -> list[str]:
    return [block.text() for block in verdict.blocks(records, "X")]


def test_the_lines_of_the_answer_are_open_and_all_others_fold() -> None:
    cudnn = record("torch_cudnn", sustained_ms=0.5)
    _, _, use, diffusers, install, every = shown_of(DEFAULT, cudnn)
    assert use.splitlines()[:3] == [
        "Use cuDNN (SDPA):",
        "    # q, k, v: [batch, heads, seq_len, head_dim]",
        "    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):",
    ]
    assert diffusers.splitlines()[1].strip() == 'pipe.transformer.set_attention_backend("_native_cudnn")'
    assert every.startswith("How to install and use these kernels\n\nHow to use cuDNN (SDPA)\n")
    assert install == "Install:\n    pip install torch==2.9.0"
    assert "PyTorch default" not in every
    tied = shown_of(DEFAULT, record("torch_cudnn"))
    assert tied[2].splitlines() == [
        "Use PyTorch default (SDPA):",
        "    # q, k, v: [batch, heads, seq_len, head_dim]",
        "    out = scaled_dot_product_attention(q, k, v)",
    ]
