"""What changed between two sides: made-up records with the spread of an H200, and what must not be compared."""

from __future__ import annotations

import numpy as np
import pytest
from sides import (
    CELLS,
    FINGERPRINT,
    KERNEL,
    WORKLOADS,
    Parts,
    before_burst,
    control,
    draw,
    edited,
    only,
    rows_of,
    side,
    timed,
    with_controls,
)

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Happened, Measured, Mixture, NoControl, NoteKind, Row
from fluxbench.device.targets import Target
from fluxbench.records.schema import BURST, Record
from fluxbench.stats.significance import Verdict

pytestmark = pytest.mark.usefixtures("usual_spreads")

BEFORE = side("before", 1)


def verdicts(rows: tuple[Row, ...], of: str = "judged") -> set[Verdict]:
    return {getattr(row, of).verdict for row in rows if getattr(row, of)}


def notes(rows: tuple[Row, ...]) -> set[NoteKind | None]:
    return {row.note.kind if row.note else None for row in rows}


# What happened.


@pytest.mark.parametrize(
    ("variant", "device", "happened"),
    [
        (1.0, 1.0, Happened.NOTHING),
        (1.0, 1.03, Happened.DEVICE),
        (1.0, 0.97, Happened.DEVICE),
        (1.02, 1.0, Happened.LIBRARY),
        (1.05, 0.97, Happened.BOTH),
        (1 / 1.04, 1.04, Happened.BOTH),  # it stays while the device slows down
    ],
)
def test_the_device_is_told_from_what_runs_on_it(variant: float, device: float, happened: Happened) -> None:
    found = compare(BEFORE, side("after", 102, only("flex", variant), device))
    flex, others = rows_of(found, "flex"), rows_of(found, "torch_math")
    assert found.happened is happened
    assert found.device
    assert found.device.low <= device <= found.device.high
    expected = Verdict.SAME if variant == 1 else Verdict.SLOWER if variant > 1 else Verdict.FASTER
    assert verdicts(flex) == {expected}
    assert verdicts(others) <= {Verdict.SAME, Verdict.UNDECIDED}
    assert set(found.beyond_device) >= (set(flex) if variant != 1 else set())
    assert found.without_control == ()
    for row in flex:
        assert row.change
        assert row.normalized
        assert row.change.ratio == pytest.approx(variant * device, rel=0.01)
        assert row.normalized.ratio == pytest.approx(variant, rel=0.01)
        assert row.judged == row.normalized


def test_a_change_under_sustained_load_alone_is_found() -> None:
    found = compare(BEFORE, side("after", 61, load=only("flex", 1.04)))
    assert found.happened is Happened.SUSTAINED
    assert found.sustained_only == rows_of(found, "flex")
    assert verdicts(found.rows) == {Verdict.SAME}
    for row in rows_of(found, "flex"):
        assert row.sustained
        assert row.sustained.ratio == pytest.approx(1.04, rel=0.012)
        assert row.before_ms == pytest.approx(0.5 * (WORKLOADS.index(row.workload) + 1), rel=0.01)  # burst


@pytest.mark.parametrize(
    ("variant", "device", "load", "happened", "sustained_only"),
    [
        (1.04, 1.0, 1.0, Happened.LIBRARY, False),  # a change of burst times shows under load too
        (1.0, 1.04, 1.0, Happened.DEVICE, False),
        (1.0, 0.97, 1.07, Happened.DEVICE, True),  # the device one way, the load the other
    ],
)
def test_what_burst_times_or_the_device_explain_is_not_put_on_the_load(
    variant: float, device: float, load: float, happened: Happened, sustained_only: bool
) -> None:
    found = compare(BEFORE, side("after", 63, only("flex", variant), device, load=only("flex", load)))
    assert found.happened is happened
    assert bool(found.sustained_only) is sustained_only


def test_over_unchanged_pairs_hardly_anything_is_significant() -> None:
    found = [compare(side("before", 2 * seed), side("after", 2 * seed + 1)) for seed in range(200, 210)]
    assert sum(one.happened is Happened.NOTHING for one in found) >= 8
    assert sum(bool(one.sustained_only) for one in found) <= 2


def test_the_workloads_of_a_variant_share_a_spread() -> None:
    found = compare(BEFORE, side("after", 6))
    for variants in CELLS.values():
        for variant in variants:
            for which in ("judged", "sustained"):
                changes = [getattr(row, which) for row in rows_of(found, variant)]
                assert len({round(one.high / one.low, 9) for one in changes}) == 1


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.UNDECIDED), (1.05, Verdict.SLOWER)])
def test_an_outlying_process_is_named_and_hides_no_large_change(factor: float, verdict: Verdict) -> None:
    slow = edited(BEFORE, lambda r: timed(r, slower(r, 1)) if r.variant == "flex" else r)
    found = compare(slow, side("after", 104, only("flex", factor)))
    [outlying] = [one for one in found.outlying if not one.sustained]
    assert (outlying.variant, outlying.cell, outlying.after, outlying.process) == ("flex", "flex", False, 2)
    assert outlying.log_ratio == pytest.approx(0.02, abs=0.006)
    assert verdicts(rows_of(found, "flex")) == {verdict}
    ratios = [row.normalized.ratio for row in rows_of(found, "flex") if row.normalized]
    assert ratios == pytest.approx([factor] * len(WORKLOADS), abs=0.005)  # as without that process
    assert compare(BEFORE, side("after", 104)).outlying == ()


def slower(of: Record, process: int) -> Parts:
    """Return the burst samples of a record with one process 2% slower."""
    return with_slow(of.timings[BURST].samples_ms, process)


def with_slow(samples: Parts, process: int) -> Parts:
    return tuple(tuple(1.02 * ms if n == process else ms for ms in part) for n, part in enumerate(samples))


def test_a_process_in_which_the_device_was_slower_too_is_named_and_left_out_of_the_times_as_they_are() -> None:
    slow = edited(BEFORE, lambda r: timed(r, slower(r, 1)) if r.variant == "flex" else r)
    of_flex = BEFORE.controls["flux", "flex"].samples_ms
    beside = control({**of_flex, "flex": with_slow(of_flex["flex"], 1)})
    slow = with_controls(slow, {**BEFORE.controls, ("flux", "flex"): beside})
    found = compare(slow, side("after", 104))
    named = {(one.variant, one.after, one.process, one.sustained, one.as_is) for one in found.outlying}
    assert named == {("flex", False, 2, False, True), ("flex", False, 2, True, False)}
    check_ratios(found)


def check_ratios(found: Comparison) -> None:
    """Check that times after over times before are the ratios beside them."""
    for row in found.rows:
        assert row.before_ms
        assert row.after_ms
        assert row.change
        assert row.after_ms / row.before_ms == pytest.approx(row.change.ratio, rel=1e-9)


def test_processes_are_left_out_of_the_rows_alone_that_they_are_judged_with() -> None:
    """Of a variant one workload has fewer processes than the others, and so no control times beside it."""

    def edit(of: Record) -> Record:
        if of.variant != "flex":
            return of
        samples = slower(of, 1)
        return timed(of, samples[:2] if of.workload.name == WORKLOADS[0] else samples)

    check_ratios(compare(edited(BEFORE, edit), side("after", 104)))


def test_runs_on_another_card_may_differ_by_more(usual_spreads: Target) -> None:
    after = side("after", 102, only("flex", 1.01))
    assert verdicts(rows_of(compare(BEFORE, after), "flex")) == {Verdict.SLOWER}
    for card in ("b2", None):  # unknown: it may be another one
        other = side("after", 102, only("flex", 1.01), fingerprint={**FINGERPRINT, "card": card})
        found = compare(BEFORE, other)
        assert verdicts(rows_of(found, "flex")) == {Verdict.UNDECIDED}
        assert {between.variant for between in found.between.values()} == {usual_spreads.cards.variant}


# Records without burst times.


def test_records_without_burst_times_have_one_time() -> None:
    found = compare(before_burst(BEFORE), before_burst(side("after", 67, only("flex", 1.03), 0.97)))
    assert found.happened is Happened.BOTH
    assert verdicts(rows_of(found, "flex")) == {Verdict.SLOWER}
    assert {row.sustained for row in found.rows} == {None}


def test_their_control_kernel_may_be_by_workload() -> None:
    """In method version 2 one was timed for all variants of a workload."""
    rng = np.random.default_rng(0)

    def by_workload(whole: Measured, device: float) -> Measured:
        found = {("flux", cell): control({w: draw(rng, 0.3 * device) for w in WORKLOADS}) for cell in CELLS}
        return with_controls(before_burst(whole), found)

    found = compare(by_workload(BEFORE, 1.0), by_workload(side("after", 67, device=1.03), 1.03))
    assert found.happened is Happened.DEVICE
    assert all(row.normalized for row in found.rows)


def test_a_sustained_change_within_half_a_percent_is_not_significant() -> None:
    def steady(whole: Measured, factor: float) -> Measured:
        sustained = ((factor,), (factor * 1.00001,), (factor,))
        return edited(whole, lambda r: timed(r, r.timings[BURST].samples_ms, sustained))

    for factor, expected in ((1.0045, Verdict.SAME), (1.0055, Verdict.SLOWER)):
        found = compare(steady(BEFORE, 1.0), steady(side("after", 6), factor))
        assert verdicts(found.rows, "sustained") == {expected}


def test_cells_with_and_without_burst_times_are_judged_apart() -> None:
    def partly(whole: Measured) -> Measured:
        old = {(r.variant, r.workload.name): r for r in before_burst(whole).records if r.cell == "flex"}
        return edited(whole, lambda r: old.get((r.variant, r.workload.name), r))

    found = compare(partly(BEFORE), partly(side("after", 70, only("triton_flash", 1.02))))
    assert {row.cell for row in found.rows if row.sustained is None} == {"flex"}
    assert verdicts(rows_of(found, "triton_flash")) == {Verdict.SLOWER}
    assert found.device
    assert all(row.change and row.normalized for row in found.rows)


def test_times_that_were_taken_beside_other_variants_say_so() -> None:
    after = side("after", 51)
    alone = edited(after, lambda r: None if r.variant == "torch_math" else r)
    found = compare(before_burst(BEFORE), before_burst(alone))
    assert found.mixtures == {("flux", "sdpa"): Mixture(removed=("torch_math",), added=())}
    back = compare(before_burst(alone), before_burst(BEFORE))
    assert back.mixtures == {("flux", "sdpa"): Mixture(removed=(), added=("torch_math",))}
    assert compare(before_burst(BEFORE), before_burst(after)).mixtures == {}
    assert compare(BEFORE, alone).mixtures == {}  # burst times rest before each call


# The control kernel.


def test_without_a_control_kernel_device_and_library_cannot_be_separated() -> None:
    found = compare(BEFORE, side("after", 9, device=1.03, kernel=None))
    assert (found.device, found.happened) == (None, Happened.EITHER)
    assert found.no_control == {("flux", cell): NoControl(missing=("after",)) for cell in CELLS}
    assert set(found.without_control) == set(found.compared)
    both = compare(side("a", 1, kernel=None), side("b", 2, kernel=None))
    assert set(both.no_control.values()) == {NoControl(missing=("a", "b"))}
    other = compare(BEFORE, side("after", 10, kernel="another"))
    assert other.device is None
    assert set(other.no_control.values()) == {NoControl(kernels=(KERNEL, "another"))}


def test_a_cell_without_one_keeps_the_others_theirs() -> None:
    after = side("after", 11, device=1.03)
    after = with_controls(after, {key: one for key, one in after.controls.items() if key[1] != "flex"})
    found = compare(BEFORE, after)
    assert found.device
    assert found.device.verdict is Verdict.SLOWER
    assert found.no_control == {("flux", "flex"): NoControl(missing=("after",))}
    assert {row.cell for row in found.rows if row.normalized is None} == {"flex"}
    assert {row.cell for row in found.without_control} == {"flex"}


def test_variants_beside_which_a_process_lost_the_control_kernel_do_not_count() -> None:
    after = side("after", 12)
    whole = after.controls["flux", "sdpa"].samples_ms
    for lost in (((9.0,), (), (9.0,)), ((9.0,),)):
        broken = control({"torch_flash": whole["torch_flash"], "torch_math": lost})
        found = compare(BEFORE, with_controls(after, {**after.controls, ("flux", "sdpa"): broken}))
        assert found.device
        assert found.device.verdict is Verdict.SAME
        assert {row.variant for row in found.rows if row.normalized is None} == {"torch_math"}


@pytest.mark.parametrize("samples", [{}, {"elsewhere": ((1.0,),)}, {"torch_flash": ((), ())}])
def test_control_times_that_have_nothing_in_common_are_none(samples: dict[str, tuple[tuple[float, ...], ...]]) -> None:
    after = side("after", 13)
    found = compare(BEFORE, with_controls(after, dict.fromkeys(after.controls, control(samples))))
    assert set(found.no_control.values()) == {NoControl()}
