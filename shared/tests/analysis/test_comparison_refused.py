"""What is not compared between two sides, and says why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from sample_records import REASONS, changed
from sides import (
    FINGERPRINT,
    WORKLOADS,
    edited,
    failing,
    rows_of,
    side,
    timed,
    with_controls,
)

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Happened, Measured, Note, NoteKind, Row
from fluxbench.operations import sets
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.stats.significance import Verdict

BEFORE = side("before", 1)


def notes(rows: tuple[Row, ...]) -> set[NoteKind | None]:
    return {row.note.kind if row.note else None for row in rows}


@pytest.mark.parametrize(
    ("fields", "why", "before", "now"),
    [
        ({"fingerprint": {**FINGERPRINT, "device": "NVIDIA B200"}}, "device", "NVIDIA H200", "NVIDIA B200"),
        ({"method_version": 5}, "method", f"{METHOD_VERSION} (", "5 ("),
        ({"method_version": 0}, "method", f"{METHOD_VERSION} (", "unknown"),
        ({"method_version": 99}, "method", f"{METHOD_VERSION} (", "99 (of a newer fluxbench)"),
    ],
)
def test_what_holds_for_a_cell_refuses_all_its_rows(fields: dict[str, Any], why: str, before: str, now: str) -> None:
    found = compare(BEFORE, side("after", 15, **fields))
    assert (found.happened, found.compared, found.device) == (Happened.NOT_COMPARED, (), None)
    for row in found.rows:
        assert row.note
        assert row.note.incomparable
        assert (row.note.kind, row.note.incomparable.why) == (NoteKind.INCOMPARABLE, why)
        assert row.note.incomparable.before.startswith(before)
        assert row.note.incomparable.now.startswith(now)
        assert (row.change, row.normalized, row.sustained, row.judged) == (None,) * 4
        assert row.before_ms
        assert row.after_ms


def test_other_devices_are_refused_where_their_workloads_are_others_too() -> None:
    after = side("after", 15, fingerprint={**FINGERPRINT, "device": "NVIDIA B200"})
    smaller = sets.sets()["flux1-512px"][0]
    found = compare(BEFORE, edited(after, lambda r: changed(r, workload=smaller)))
    assert notes(found.rows) == {NoteKind.INCOMPARABLE}


def of_shape(of: Record) -> Record:
    return changed(of, workload=replace(of.workload, shape={**of.workload.shape, "heads": 48}))


@pytest.mark.parametrize(
    ("edit", "why", "sides"),
    [
        (of_shape, "shape", None),
        (lambda r: changed(r, timings={SUSTAINED: r.timings[SUSTAINED]}), "regime", (BURST, SUSTAINED)),
        (lambda r: changed(r, timings={BURST: r.timings[BURST]}), "regime", (SUSTAINED, BURST)),
    ],
)
def test_another_shape_or_regime_is_refused(edit: object, why: str, sides: tuple[str, str] | None) -> None:
    found = compare(BEFORE, edited(side("after", 17), edit))  # type: ignore[arg-type]
    incomparable = {row.note.incomparable for row in found.rows if row.note}
    assert {one.why for one in incomparable if one} == {why}
    assert sides is None or {(one.before, one.now) for one in incomparable if one} == {sides}


def graphs(regime: str, variant: str = "flex", seed: int = 17) -> Measured:
    """Return a side of which one variant was timed as CUDA graphs in a regime."""
    flag = Flag(kind=FlagKind.REPLAYED, regime=regime, value=0.7)
    return edited(side("after", seed), lambda r: changed(r, flags=(flag,)) if r.variant == variant else r)


def test_graphs_are_not_compared_with_calls_that_the_host_launches() -> None:
    for before, after, said in (
        (BEFORE, graphs(BURST), "calls were timed as the host launches them, and now as CUDA graphs"),
        (graphs(BURST), BEFORE, "calls were timed as CUDA graphs, and now as the host launches them"),
    ):
        for row in compare(before, after).rows:
            assert (row.change is None) == (row.variant == "flex")
            assert row.note is None or str(row.note.incomparable) == said
    assert notes(compare(graphs(BURST), graphs(BURST, seed=18)).rows) == {None}


def test_of_graphs_in_the_sustained_regime_burst_times_alone_are_compared() -> None:
    for row in compare(BEFORE, graphs(SUSTAINED)).rows:
        assert (row.change is None, row.note) == (False, None)
        assert (row.sustained is None) == (row.sustained_note is not None) == (row.variant == "flex")
    assert all(row.sustained for row in compare(BEFORE, graphs(SUSTAINED), across_graphs=True).rows)
    both = compare(graphs(SUSTAINED), graphs(SUSTAINED, seed=18))
    assert all(row.sustained and not row.sustained_note for row in both.rows)


def test_burst_rounds_in_parts_are_not_compared_with_those_of_all_lengths_in_random_order() -> None:
    by_length = edited(BEFORE, lambda r: changed(r, method_version=11))
    for version in (8, 9, 10):
        one = edited(side("after", 19), lambda r, v=version: changed(r, method_version=v))  # type: ignore[misc]
        assert all(row.change is None and row.note for row in compare(by_length, one).rows)
    assert all(
        row.change
        for row in compare(by_length, edited(side("after", 19), lambda r: changed(r, method_version=11))).rows
    )


def test_sustained_windows_with_pauses_between_them_are_not_compared_with_those_without() -> None:
    with_pauses = edited(BEFORE, lambda r: changed(r, method_version=9))
    without = edited(side("after", 19), lambda r: changed(r, method_version=10))
    for row in compare(with_pauses, without).rows:
        assert (row.change is None, row.note) == (False, None)  # burst times are taken as before
        assert row.sustained is None
        assert str(row.sustained_note) == (
            "they were not measured in the same way: method version 9 (CUDA graphs of all sustained calls that can be "
            "captured) and 10 (no pause between sustained windows)"
        )

    def on_cpu(before: int) -> set[bool]:
        of_cpu = {"fingerprint": {**FINGERPRINT, "device_kind": "cpu"}}
        old, new = (
            edited(one, lambda r, v=version: changed(r, method_version=v, **of_cpu))  # type: ignore[misc]
            for one, version in ((BEFORE, before), (side("after", 19), 10))
        )
        return {row.sustained is None for row in compare(old, new).rows}

    assert on_cpu(8) == on_cpu(9) == {False}  # whose rounds did not change


def test_the_same_samples_under_another_driver_are_no_new_measurement() -> None:
    upgraded = {"fingerprint": {**FINGERPRINT, "driver": "590"}, "measured_at": "later"}
    found = compare(BEFORE, edited(BEFORE, lambda r: changed(r, **upgraded)))
    assert (notes(found.rows), found.happened) == ({NoteKind.NOT_MEASURED_AGAIN}, Happened.NOT_COMPARED)


def test_a_cell_that_was_not_measured_again_is_not_compared_with_itself() -> None:
    after = side("after", 19, device=1.03)
    kept = {(r.variant, r.workload.name): r for r in BEFORE.records if r.cell != "flex"}
    partly = edited(after, lambda r: kept.get((r.variant, r.workload.name), r))
    controls = {**BEFORE.controls, ("flux", "flex"): after.controls["flux", "flex"]}
    found = compare(BEFORE, with_controls(partly, controls))
    assert {row.cell for row in found.compared} == {"flex"} == {cell for _, cell in found.compared_cells}
    assert notes(found.rows) == {None, NoteKind.NOT_MEASURED_AGAIN}
    assert found.device
    assert found.device.low <= 1.03 <= found.device.high


def test_a_change_of_status_is_noted_with_the_reason() -> None:
    after = edited(side("after", 20), lambda r: failing(r) if r.variant == "flex" else r)
    found = compare(BEFORE, after)
    note = Note(NoteKind.STATUS_CHANGED, Status.PASSED, Status.CRASHED, REASONS[Status.CRASHED])
    assert {row.note for row in rows_of(found, "flex")} == {note}
    [row, *_] = rows_of(found, "flex")
    assert (row.before, row.after, row.after_ms) == (Status.PASSED, Status.CRASHED, None)
    assert row.before_ms
    back = {row.note for row in rows_of(compare(after, BEFORE), "flex")}
    assert back == {Note(NoteKind.STATUS_CHANGED, Status.CRASHED, Status.PASSED, "")}
    again = edited(after, lambda r: changed(r, reason="so it\n is.", measured_at="later") if r.reason else r)
    note = Note(NoteKind.NOT_PASSED, Status.CRASHED, Status.CRASHED, "so it is")
    assert {row.note for row in rows_of(compare(after, again), "flex")} == {note}


def test_rows_of_one_side_are_kept_and_come_after_those_of_both() -> None:
    before = edited(BEFORE, lambda r: None if r.variant == "flex" else r)
    after = edited(side("after", 23), lambda r: None if r.workload.name == WORKLOADS[0] else r)
    found = compare(before, after)
    count = len(WORKLOADS)
    assert notes(rows_of(found, "flex")) == {NoteKind.ONLY_AFTER}
    assert notes(found.rows[-4:]) == {NoteKind.ONLY_BEFORE}
    assert len(found.rows) == 4 * count + (count - 1)
    assert {(row.before, row.after) for row in found.rows[-4:]} == {(Status.PASSED, None)}


def test_one_process_a_side_has_a_ratio_and_no_verdict() -> None:
    both = BEFORE, side("b", 30, kernel=None)
    for row in compare(*(edited(one, lambda r: timed(r, r.timings[BURST].samples_ms[:1])) for one in both)).rows:
        assert row.change
        assert (row.change.verdict, row.change.low, row.change.high) == (Verdict.UNDECIDED, 0.0, math.inf)
