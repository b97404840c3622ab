"""The answer: which kernel is fastest at equal correctness, by how much, where, and what must be known of it."""

from __future__ import annotations

import pytest
from sample_records import LAUNCH_BOUND, REASONS, record

from fluxbench.operations import sets
from fluxbench.records.schema import BURST, Record
from fluxbench.records.status import Status
from fluxbench.report.headline import answer

LENGTHS = sets.sets()["flux1-1024px"]
ALL = "6 lengths (128 to 512 text tokens)"


def curve(variant: str, sustained_ms: float, **fields: object) -> list[Record]:
    return [record(variant, workload, sustained_ms, **fields) for workload in LENGTHS]  # type: ignore[arg-type]


def answered(*records: Record, notes: dict[str, str] | None = None) -> str:
    """Return the answer as one paragraph."""
    return " ".join(answer(records, "X", notes))


def late(variant: str, sustained_ms: float, **fields: object) -> list[Record]:
    """Return a curve that is launch-bound, and so as wide."""
    return curve(variant, sustained_ms, ci=0.66, flags=[LAUNCH_BOUND], **fields)


def test_the_answer_names_fastest_reference_runner_up_and_device() -> None:
    records = [*curve("torch_flash", 0.8, reference_ms=0.8), *curve("torch_cudnn", 0.4, reference_ms=0.8)]
    assert answer([*records, *curve("flex", 0.6, reference_ms=0.8)], "NVIDIA H200") == [
        "On NVIDIA H200 (driver 580.10), at flux1-1024px with 4,608 tokens (512 of them text), 24 heads of 128, "
        f"bfloat16, torch_cudnn is the fastest exact kernel under sustained load, unbeaten at all {ALL}: "
        "0.400 ms [0.398, 0.402] (0.3600 ms [0.3596, 0.3604] from rest), "
        "2.00× [1.99, 2.01] as fast as torch_flash and 1.500× [1.491, 1.509] as fast as the runner-up flex."
    ]


def test_kernels_that_nothing_tells_apart_are_named_together() -> None:
    text = answered(record(), record("a", sustained_ms=0.5), record("b", sustained_ms=0.501))
    assert (
        "there is no measurable difference between a and b, the fastest exact kernels under sustained load: a takes "
        "0.500 ms [0.497, 0.502]"
    ) in text
    assert text.endswith("2.00× [1.99, 2.01] as fast as torch_flash, the runner-up.")


def test_many_names_are_cut() -> None:
    names = [record(name, sustained_ms=0.5) for name in "abcde"]
    assert "difference between a, b, c and 2 more, the fastest" in answered(record(), *names)
    assert "difference between a, b, c and d, the fastest" in answered(record(), *names[:4])


def test_a_runner_up_that_is_tied_says_so() -> None:
    records = [record(name, sustained_ms=ms) for name, ms in (("a", 0.4), ("b", 0.6), ("c_copy", 0.601), ("d", 0.9))]
    assert answered(*records).endswith(" as fast as the runner-up b, level with c.")


def test_the_runner_up_is_the_fastest_median_of_those_measurably_slower() -> None:
    noisy = record("noisy", sustained_ms=0.7, ci=0.25)
    text = answered(record(), record("a", sustained_ms=0.5), record("b", sustained_ms=0.6), noisy)
    assert text.endswith("1.200× [1.193, 1.207] as fast as the runner-up b, level with noisy.")


def test_what_is_not_measurably_slower_than_the_first_is_no_runner_up() -> None:
    wide, narrow = record("a", sustained_ms=0.5, ci=0.1), record("b", sustained_ms=0.51)
    assert answered(wide, narrow, record("c", sustained_ms=0.53)).endswith("and no other kernel is measurably slower.")
    assert answered(record("a", sustained_ms=0.5)).endswith("and no other kernel is ranked.")


def test_the_reference_can_be_the_fastest_or_level_with_it() -> None:
    text = answered(record(), record("a", sustained_ms=1.5))
    assert (
        "torch_flash (the reference) is the fastest exact kernel under sustained load: 1.000 ms [0.995, 1.005] ("
        in text
    )
    assert text.endswith("from rest), 1.500× [1.491, 1.509] as fast as the runner-up a.")
    level = answered(record(), record("a", sustained_ms=0.999))
    assert "between a and torch_flash, the fastest" in level
    assert ", no measurable difference to the reference torch_flash and no other kernel is ranked." in level


def test_two_forms_of_a_kernel_are_no_rivals() -> None:
    forms = [record("flex", sustained_ms=0.5), record("flex_compile_d", sustained_ms=0.499)]
    text = answered(record(), *forms)
    assert (
        "flex is the fastest exact kernel under sustained load (no measurable difference between flex_compile_d" in text
    )
    assert "the runner-up" in text


def level_at_the_longest(*others: Record) -> list[Record]:
    """Return records of which `a` is unbeaten at all lengths, and the others beaten but at the longest."""
    beaten = [record(other.variant, workload, 0.7) for other in others for workload in LENGTHS[:-1]]
    return [*curve("torch_flash", 1.0), *curve("a", 0.5), *others, *beaten]


def test_what_is_level_at_the_longest_and_beaten_elsewhere_is_not_among_the_fastest() -> None:
    text = answered(*level_at_the_longest(record("b", sustained_ms=0.499)), *curve("c", 0.501))
    assert (
        "no measurable difference between a and c, the fastest exact kernels under sustained load, unbeaten at all "
        f"{ALL}: a takes 0.500 ms"
    ) in text
    assert text.endswith(". Level with a at this length, but not at all of them: b (beaten at 5 lengths).")


def test_one_that_is_unbeaten_everywhere_goes_before_faster_medians_that_are_not() -> None:
    text = answered(*level_at_the_longest(record("b", sustained_ms=0.499)))
    assert f"no exact kernel is measurably faster under sustained load than a, at any of {ALL}: 0.500 ms" in text
    assert "no measurable difference between" not in text


def test_a_leader_without_a_time_at_every_length_is_not_called_unbeaten_there() -> None:
    failed = [record("b", workload, status=Status.ERROR) for workload in LENGTHS[:-1]]
    text = answered(*curve("torch_flash", 1), *curve("a", 0.5), record("b", sustained_ms=0.499), *failed)
    assert text.endswith("Level with a at this length, but not at all of them: b (unranked at 5 lengths).")
    alone = answered(*curve("torch_flash", 1), record("b", sustained_ms=0.5), *failed)
    assert alone.endswith(f". Of {ALL}, b is unranked at 5 lengths.")


def quantized(name: str, sustained_ms: float, **fields: object) -> list[Record]:
    return curve(name, sustained_ms, precision_class="quantized", **fields)


APART = "Apart from these, at looser error budgets, "


@pytest.mark.parametrize(
    ("sustained_ms", "which", "how_fast"),
    [
        (0.3, "the quantized fp8 {error} is faster still", "3.33× [3.31, 3.35] as fast as torch_flash."),
        (1.3, "the fastest quantized kernel is fp8 {error}", "0.769× [0.764, 0.774] as fast as torch_flash."),
        (1.0, "the fastest quantized kernel is fp8 {error}", "no measurable difference to torch_flash."),
    ],
)
def test_the_fastest_quantized_kernel_is_said_apart(sustained_ms: float, which: str, how_fast: str) -> None:
    *_, last = answer([*curve("torch_flash", 1.0), *quantized("fp8", sustained_ms)], "X")
    assert last.startswith(
        f"{APART}{which.format(error='(relative L2 error 0.3%)')}, unbeaten at all lengths: {sustained_ms:.1f}"
    )
    assert last.endswith(f" from rest), {how_fast}")


def test_a_quantized_kernel_is_faster_where_its_interval_is_wholly_under() -> None:
    wide = record("fp8", sustained_ms=0.9, ci=0.2, precision_class="quantized")
    assert "the fastest quantized kernel is fp8" in answered(record("a", sustained_ms=1.0), wide)


def test_a_quantized_kernel_that_holds_everywhere_goes_before_one_that_does_not() -> None:
    elsewhere = [*quantized("q8", 1.9)[:-1], *quantized("q8", 1.299)[-1:]]
    text = answered(*curve("torch_flash", 1.0), *quantized("fp8", 1.3), *elsewhere)
    assert f"{APART}no quantized kernel is measurably faster than fp8 (relative L2 error 0.3%), at any length: " in text
    assert text.endswith(" Level with fp8 at this length, but not at all of them: q8 (beaten at 5 lengths).")


def test_without_an_exact_kernel_the_quantized_ones_are_the_answer() -> None:
    text = answered(*quantized("fp8", 0.3))
    assert (
        ", no exact kernel passed; of the quantized ones, fp8 is the fastest quantized kernel under sustained" in text
    )


def test_what_is_faster_from_rest_and_launch_bound_is_named() -> None:
    text = answered(*curve("torch_flash", 1.0), *curve("a", 0.5), *late("b", 0.6, burst_ms=0.3))
    assert text.endswith(" Faster from rest, but launch-bound here: b.")
    assert " a is the fastest exact kernel that is not launch-bound under sustained load: 0.500 ms" in text
    others = [*curve("torch_flash", 1.0), *quantized("c", 0.7)]
    text = answered(*others, *late("b", 0.6, burst_ms=0.3, precision_class="quantized"))
    assert (
        f"torch_flash (the reference) is the fastest exact kernel under sustained load, unbeaten at all {ALL}" in text
    )
    assert "the quantized c (relative L2 error 0.3%) is faster still: " in text
    assert text.endswith(" here: b.")


def test_what_must_be_known_is_said_of_kernels_that_are_named_once_for_all_that_share_it() -> None:
    records = [record(), record("fa3_compile_d", sustained_ms=0.4), record("slow", sustained_ms=3.0)]
    notes = {"fa3": "a rebuild", "fa3_fp8": "of it too", "te": "not here", "slow": "not named"}
    assert answered(*records, notes=notes).endswith(" Of fa3: a rebuild.")
    both = answered(record("a"), record("b"), notes={"a": "a rebuild", "b": "a rebuild"})
    assert both.endswith(" Of a and b: a rebuild.")


def test_why_nothing_passed_is_said() -> None:
    one = answered(record(status=Status.UNSUPPORTED))
    assert one.startswith("On X (driver 580.10), no kernel passed at flux1-1024px with 4,608 tokens")
    assert one.endswith(f": torch_flash UNSUPPORTED ({REASONS[Status.UNSUPPORTED]}).")
    several = answered(*(record(name, status=Status.INCORRECT) for name in "ab"))
    assert several.endswith(f": every variant INCORRECT ({REASONS[Status.INCORRECT].rstrip('.')}).")
    two = answered(record("a", status=Status.CRASHED), record("b", LENGTHS[0], status=Status.TIMEOUT))
    assert "CRASHED" in two
    assert "TIMEOUT" not in two


def test_burst_is_the_answer_where_it_is_alone() -> None:
    text = answered(record(regimes=[BURST]), record("a", burst_ms=0.5, regimes=[BURST]))
    assert " a is the fastest exact kernel from rest: 0.5000 ms [0.4995, 0.5005], 1.800×" in text
