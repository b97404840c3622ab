"""Findings: a planted effect is found, one within its interval is not, and other reasons are not taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from planted import EQUAL, LENGTHS, at, kernel, page
from published import REPORTS
from sample_records import LAUNCH_BOUND, changed, errors

from fluxbench.analysis.findings import KINDS, of_group
from fluxbench.analysis.findings.finding import Finding, Kind
from fluxbench.analysis.groups import Group, groups
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report import results

QUANTIZED: dict[str, Any] = {"precision_class": "quantized", "parts": {"quantization": 0.2}}
OFF = at({320: 1.12, 448: 1.12})


def found(group: Group, kind: Kind) -> list[Finding]:
    return [finding for finding in of_group(group) if finding.kind is kind]


def whole(group: Group) -> list[tuple[Kind, tuple[str, ...]]]:
    return [(one.kind, tuple(case.variant for case in one.cases)) for one in of_group(group)]


@pytest.mark.parametrize("seed", range(6))
def test_equal_kernels_in_all_forms_have_no_findings(seed: int) -> None:
    forms = ("flash_attn_3_compile_ma", "torch_cudnn_compile_d", "torch_cudnn_copy", "torch_flash_copy")
    quantized = kernel("flash_attn_3_fp8", 0.8, joules=0.8, seed=seed, **QUANTIZED)
    assert whole(page(*(kernel(form, seed=seed) for form in forms), quantized, seed=seed)) == []


def test_a_kernel_falls_off_at_lengths_that_are_no_multiples_of_128_tokens() -> None:
    [one] = of_group(page(kernel("torch_cudnn", OFF)))
    [case] = one.cases
    assert (one.kind, one.cell, one.multiple) == (Kind.FALLS_OFF, "latency", 128)
    assert (case.variant, [workload.x for workload in case.workloads]) == ("torch_cudnn", [320, 448])
    assert case.value.low < 1.12 < case.value.high < 1.13
    assert case.value.low > 1.11


def test_several_lengths_in_a_row_are_compared_with_those_at_their_ends() -> None:
    [one] = of_group(page(kernel("torch_cudnn", at({320: 1.15, 384: 1.15, 448: 1.15}))))
    assert [workload.x for workload in one.cases[0].workloads] == [320, 384, 448]
    assert one.multiple is None  # 4,480 tokens are 35 times 128, and 4,224 are not a multiple of 256


def test_variants_share_a_finding_if_they_run_the_same_kernel() -> None:
    same, other = kernel("torch_native", OFF), kernel("triton_flash", OFF)
    other = [changed(one, kernels=(one.kernels[0].__class__(name="other", share=1.0),)) for one in other]
    assert whole(page(kernel("torch_cudnn", OFF), same, other)) == [
        (Kind.FALLS_OFF, ("torch_cudnn", "torch_native")),
        (Kind.FALLS_OFF, ("triton_flash",)),
    ]


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(kernel("torch_cudnn", at({320: 1.04})), id="by less than 5%"),
        pytest.param(kernel("torch_cudnn", at({320: 1.2, 384: 1.2, 448: 1.2, 512: 1.2})), id="a step, not a fall"),
        pytest.param(kernel("torch_cudnn", at({128: 0.8})), id="one length is fast"),
        pytest.param(kernel("torch_cudnn", OFF, own=0.08), id="within its interval"),
        pytest.param(kernel("torch_cudnn", OFF, flags=(LAUNCH_BOUND,)), id="the time is one of launching"),
    ],
)
def test_what_is_no_fall(planted: list[Record]) -> None:
    assert found(page(planted), Kind.FALLS_OFF) == []


def test_a_fall_of_the_reference_is_no_rise_of_all_others() -> None:
    for off in (OFF, at({256: 0.88, 384: 0.88})):
        assert whole(page(kernel("torch_flash", off))) == [(Kind.FALLS_OFF, ("torch_flash",))]


def test_a_compiled_form_is_slower_by_its_copies() -> None:
    copying = kernel("flash_attn_3_compile_ma", 1.1, parts={"copies": 0.08})
    [one] = of_group(page(copying, kernel("flash_attn_2_compile_ma", 1.05, parts={"copies": 0.045})))
    assert (one.kind, one.form, one.cell) == (Kind.SLOWER_COMPILED, "compile_ma", "parts")
    first, second = one.cases
    assert (first.variant, first.against, second.variant) == (
        *("flash_attn_3_compile_ma", "flash_attn_3"),
        "flash_attn_2_compile_ma",
    )
    assert first.value.low < 1.1 < first.value.high
    assert first.part is not None
    assert first.part.name == "copies"
    assert first.part.ms == pytest.approx(0.08 * 0.9 * 1.1 * 0.4)


def test_no_cause_is_given_that_does_not_explain_most_of_the_difference() -> None:
    [one] = of_group(page(kernel("flash_attn_3_compile_d", 1.1, parts={"copies": 0.03})))
    assert (one.kind, one.form, one.cases[0].part) == (Kind.SLOWER_COMPILED, "compile_d", None)


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(kernel("flash_attn_3_compile_ma", 0.9), id="faster"),
        pytest.param(kernel("flash_attn_3_compile_ma", 1.1, own=0.1), id="within its interval"),
        pytest.param(kernel("flash_attn_3_compile_ma", 1.1, flags=(LAUNCH_BOUND,)), id="slower by launching"),
        pytest.param(kernel("torch_native_compile_ma", 1.1), id="nothing to compare with"),
    ],
)
def test_what_is_no_slower_compiled_form(planted: list[Record]) -> None:
    assert found(page(planted), Kind.SLOWER_COMPILED) == []


@pytest.mark.parametrize("seed", [1, 2, 4])  # those of which a test against no difference at all would call one
def test_a_form_that_is_slower_by_less_than_a_percent_is_no_finding(seed: int) -> None:
    assert of_group(page(kernel("flash_attn_3_compile_ma", 1.0095, seed=seed), seed=seed)) == []


def test_copies_of_a_layout_cost_what_the_form_with_them_takes_longer() -> None:
    [one] = of_group(page(kernel("torch_cudnn_copy", 1.3, parts={"copies": 0.23})))
    [case] = one.cases
    assert (one.kind, case.variant, case.against) == (Kind.COPIES, "torch_cudnn_copy", "torch_cudnn")
    assert case.value.low < 1.3 < case.value.high < 1.32
    assert case.part is not None
    assert case.part.share == pytest.approx(0.23)
    assert of_group(page(kernel("torch_cudnn_copy", 1.005, parts={"copies": 0.23}))) == []


def test_two_kernels_change_places_between_burst_and_sustained() -> None:
    [one] = of_group(page(kernel("flash_attn_3", 0.98, 0.9), kernel("flash_attn_4", 0.9, 0.93)))
    assert (one.kind, one.cell) == (Kind.REGIMES, "flash_attn_4")
    assert {(case.variant, case.against) for case in one.cases} == {("flash_attn_3", "flash_attn_4")}
    assert len({case.workloads for case in one.cases}) >= len(LENGTHS) - 1  # with three processes one may be too wide
    for case in one.cases:
        assert case.second is not None
        assert case.value.value == pytest.approx(0.9 / 0.93, rel=0.003)
        assert case.second.value == pytest.approx(0.98 / 0.9, rel=0.01)
        assert case.value.high < 1 < case.second.low


def test_a_kernel_that_changes_places_with_several_is_one_finding() -> None:
    exact = [kernel("flash_attn_3", 0.98, 0.9), kernel("torch_cudnn", 0.97, 0.9, seed=2)]
    [one] = of_group(page(*exact, kernel("flash_attn_4", 0.9, 0.93, seed=3)))
    assert one.kind == Kind.REGIMES
    assert {(case.variant, case.against) for case in one.cases} == {
        ("flash_attn_3", "flash_attn_4"),
        ("torch_cudnn", "flash_attn_4"),
    }


@pytest.mark.parametrize(
    ("three", "four"),
    [
        pytest.param((0.93, 0.9), (0.9, 0.9), id="level in burst"),
        pytest.param((0.93, 0.9), (0.9, 0.902), id="by less than runs differ in burst"),
        pytest.param((0.93, 0.9), (0.93, 0.95), id="level sustained"),
        pytest.param((0.93, 0.93), (0.9, 0.9), id="in the same order"),
    ],
)
def test_what_is_no_change_of_places(three: tuple[float, float], four: tuple[float, float]) -> None:
    assert of_group(page(kernel("flash_attn_3", *three), kernel("flash_attn_4", *four))) == []


def test_only_kernels_as_they_are_change_places() -> None:
    assert of_group(page(kernel("flash_attn_3_compile_d", 0.93, 0.9), kernel("flash_attn_4", 0.9, 0.93))) == []


def test_quantizing_leaves_a_kernel_no_faster_than_the_fastest_exact_one() -> None:
    [one] = of_group(page(kernel("flash_attn_3_fp8", **QUANTIZED)))
    assert (one.kind, one.cell) == (Kind.QUANTIZING, "parts")
    assert {case.workloads[0].x for case in one.cases} == {workload.x for workload in LENGTHS}
    for case in one.cases:
        assert case.against in EQUAL
        assert case.part is not None
        assert case.part.name == "quantization"
        assert case.part.share == pytest.approx(0.2)


def test_quantizing_that_makes_a_kernel_slower_says_where_that_is_measured() -> None:
    times = at({128: 1.09, 320: 1.08, 384: 1.07})
    [one] = found(page(kernel("flash_attn_3_fp8", times, **QUANTIZED)), Kind.QUANTIZING)
    assert {case.workloads[0].x for case in one.cases if case.slower} == {128, 320, 384}
    assert {case.workloads[0].x for case in one.cases if not case.slower} == {256, 448, 512}
    assert all(case.value.low > 1 for case in one.cases if case.slower)


@pytest.mark.parametrize(
    ("times", "fields"),
    [
        pytest.param(0.85, QUANTIZED, id="it gains"),
        pytest.param(0.97, QUANTIZED, id="it gains a little"),
        pytest.param(1.5, QUANTIZED, id="it would gain nothing without quantizing"),
        pytest.param(1.0, {**QUANTIZED, "parts": {"quantization": 0.2, "copies": 0.25}}, id="copies take more"),
        pytest.param(1.0, {**QUANTIZED, "parts": {}}, id="it does not quantize"),
        pytest.param(1.0, {**QUANTIZED, "precision_class": "exact"}, id="it is exact"),
        pytest.param(1.0, {**QUANTIZED, "own": 0.1}, id="within its interval"),
    ],
)
def test_what_quantizing_does_not_explain(times: float, fields: dict[str, Any]) -> None:
    assert of_group(page(kernel("flash_attn_3_fp8", times, joules=times, **fields))) == []


def test_quantizing_does_not_explain_a_gain_that_may_be_left() -> None:
    noisy = [kernel(variant, own=0.05) for variant in EQUAL]
    quantized = kernel("flash_attn_3_fp8", 0.93, own=0.05, **QUANTIZED)  # its interval reaches 1
    assert found(page(*noisy, quantized), Kind.QUANTIZING) == []


def test_a_faster_kernel_takes_more_energy() -> None:
    group = page(kernel("flash_attn_4", 1.05, joules=0.85), equal=("torch_flash", "triton_flash"))
    [one] = found(group, Kind.ENERGY)
    assert [(case.variant, case.against) for case in one.cases] == [
        ("torch_flash", "flash_attn_4"),
        ("triton_flash", "flash_attn_4"),
    ]
    case = one.cases[0]
    assert case.second is not None
    assert case.value.low < 1 / 0.85 < case.value.high < 1.2
    assert case.second.low < 1 / 1.05 < case.second.high < 0.97


def without_interval(records: list[Record]) -> list[Record]:
    return [changed(one, energy_ci95_mj=None) for one in records]


def with_wide_interval(records: list[Record]) -> list[Record]:
    return [changed(one, energy_ci95_mj=(0.8 * (one.energy_mj or 0), 1.2 * (one.energy_mj or 0))) for one in records]


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(kernel("flash_attn_4", 0.9, joules=0.85), id="in agreement"),
        pytest.param(kernel("flash_attn_4", 1.05), id="slower for the same energy"),
        pytest.param(kernel("flash_attn_4", joules=0.85), id="less energy in the same time"),
        pytest.param(kernel("flash_attn_4", 1.05, joules=None), id="energy unknown"),
        pytest.param(without_interval(kernel("flash_attn_4", 1.05, joules=0.85)), id="without an interval"),
        pytest.param(with_wide_interval(kernel("flash_attn_4", 1.05, joules=0.85)), id="within its interval"),
    ],
)
def test_what_is_no_disagreement_of_energy(planted: list[Record]) -> None:
    assert found(page(planted), Kind.ENERGY) == []


@pytest.mark.parametrize("flags", [(), (LAUNCH_BOUND,)])
def test_a_variant_that_was_wrong_at_some_length_has_no_findings(flags: tuple[Any, ...]) -> None:
    first, *rest = kernel("torch_cudnn", OFF, launch_ms=0.72, flags=flags)
    wrong: dict[str, Any] = {"status": Status.INCORRECT, "reason": "wrong", "errors": {"out": errors(0.2)}}
    assert of_group(page([changed(first, timings={}, energy_mj=None, **wrong), *rest])) == []


def test_findings_that_matter_more_come_first() -> None:
    slow = kernel("torch_efficient", 5.0), kernel("torch_efficient_copy", 6.5, parts={"copies": 0.2})
    group = page(*slow, kernel("torch_cudnn", OFF))
    assert [kind for kind, _ in whole(group)] == [Kind.FALLS_OFF, Kind.COPIES]  # 30% of a kernel that is slow


def test_the_published_page_of_the_h200_has_findings_of_five_kinds() -> None:
    gathered = results.gather([REPORTS / "h200" / "flux" / "records"], study="flux")
    [group] = groups(gathered.records)
    every = of_group(group)
    assert len({one.kind for one in every}) >= 5
    assert {one.kind for one in every} <= set(KINDS)
    [cudnn] = [one for one in every if "torch_cudnn" in {case.variant for case in one.cases} and one.multiple]
    assert (cudnn.multiple, [workload.x for workload in cudnn.cases[0].workloads]) == (128, [320, 448])
