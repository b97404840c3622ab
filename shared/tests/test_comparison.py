"""What moved between two sides: synthetic records with the spread of an H200, and what is not to be compared."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sample_records import REASONS, make_record

from fluxbench.analysis.comparison import Comparison, Happened, Measured, Row, compare
from fluxbench.operations.workloads import FLUX_TEXT_TOKENS, SETS
from fluxbench.records.schema import Record, Sentinel, Status, Timing
from fluxbench.report import comparison_text
from fluxbench.report.comparison_text import summary, table, to_json
from fluxbench.stats.significance import Verdict

PROCESS_SD, SAMPLE_SD = 0.0012, 0.005  # shares: between processes, and within one
SUSTAINED_SD = 0.005  # between processes, of an H200 at its power limit
CELLS = {"sdpa": ("torch_flash", "torch_math"), "flex": ("flex", "flex_compile_d"), "triton": ("triton_flash",)}
WORKLOADS = tuple(f"flux1-1024px-t{text}" for text in FLUX_TEXT_TOKENS)
MARKS = {"device": "NVIDIA H200", "device_kind": "cuda", "driver": "580", "code.timing.py": "a", "code.inputs.py": "b"}
KERNEL = "a fixed matrix product"

Factor = Callable[[str], float]


def drawn(
    rng: np.random.Generator, median_ms: float, processes: int = 3, spread: float = PROCESS_SD
) -> list[list[float]]:
    """Return made-up samples of processes around a time."""
    process = rng.normal(0, spread, (processes, 1))
    found: list[list[float]] = (median_ms * np.exp(process + rng.normal(0, SAMPLE_SD, (processes, 60)))).tolist()
    return found


def timed(record: Record, samples: list[list[float]], sustained: list[list[float]] | None = None) -> Record:
    """Return a record with these burst samples, and sustained ones (the same where none are given)."""
    assert record.burst
    assert record.timing
    return dataclasses.replace(
        record, burst=_with(record.burst, samples), timing=_with(record.timing, sustained or samples)
    )


def _with(timing: Timing, samples: list[list[float]]) -> Timing:
    flat = tuple(x for part in samples for x in part)
    middle = float(np.median(flat))
    return dataclasses.replace(
        timing, processes=len(samples), samples_ms=flat, median_ms=middle, ci95_ms=(middle, middle)
    )


def side(
    name: str,
    seed: int,
    variant: Factor = lambda _: 1.0,
    device: float = 1.0,
    *,
    load: Factor = lambda _: 1.0,
    kernel: str | None = KERNEL,
    marks: dict[str, str] | None = None,
) -> Measured:
    """Return a side on which variants, and the sentinel, take so many times as long; without a `kernel` no sentinel.

    Under sustained load a variant takes `load` times as long on top of that.
    """
    rng = np.random.default_rng(seed)
    found, sentinels = [], {}
    for cell, names in CELLS.items():
        for which in names:
            for index, workload in enumerate(WORKLOADS):
                record = make_record(which, workload, measured_at=name)
                record = dataclasses.replace(record, cell=cell, fingerprint={**MARKS, **(marks or {})})
                burst_ms = 0.5 * (index + 1) * device * variant(which)
                sustained = drawn(rng, 1.1 * load(which) * burst_ms, spread=SUSTAINED_SD)
                found.append(timed(record, drawn(rng, burst_ms), sustained))
        if kernel:
            samples = {workload: tuple(map(tuple, drawn(rng, 0.3 * device))) for workload in WORKLOADS}
            sentinels["flux", cell] = Sentinel(kernel=kernel, samples_ms=samples)
    return Measured(name=name, records=tuple(found), sentinels=sentinels)


def only(what: str, factor: float) -> Factor:
    return lambda variant: factor if variant == what else 1.0


def changed(whole: Measured, change: Callable[[Record], Record | None]) -> Measured:
    """Return a side with each record changed, or left out where that is None."""
    return dataclasses.replace(whole, records=tuple(new for old in whole.records if (new := change(old))))


def before_burst(whole: Measured) -> Measured:
    """Return a side as it was measured before there were burst times."""
    return changed(whole, lambda record: dataclasses.replace(record, timing=_single(record), burst=None))


def _single(record: Record) -> Timing | None:
    return record.burst and dataclasses.replace(record.burst, regime="sustained")


def failing(record: Record, status: Status = Status.CRASHED) -> Record:
    return dataclasses.replace(
        make_record(record.variant, record.workload, status=status, measured_at=record.measured_at),
        cell=record.cell,
        fingerprint=record.fingerprint,
    )


def verdicts(rows: tuple[Row, ...]) -> set[Verdict]:
    return {row.change.verdict for row in rows if row.change}


def of(found: Comparison, variant: str) -> tuple[Row, ...]:
    return tuple(row for row in found.rows if row.variant == variant)


BEFORE = side("before", 1)


# What happened.


def test_a_device_that_slows_everything_down_is_told_from_what_runs_on_it() -> None:
    found = compare(BEFORE, side("after", 102, device=1.03))
    assert found.happened is Happened.DEVICE
    assert verdicts(found.rows) == {Verdict.SLOWER}
    assert {row.net.verdict for row in found.rows if row.net} == {Verdict.SAME}
    assert found.device is not None
    assert found.device.low <= 1.03 <= found.device.high
    said = summary(found)
    assert "The device as a whole moved: the sentinel takes 1.03" in said
    assert "Nothing moved beyond the device: a change of" in said
    assert said.endswith("30 rows: 30 same.")  # net of the device


def test_a_variant_that_slows_down_alone_is_not_the_devices_doing() -> None:
    found = compare(BEFORE, side("after", 3, only("flex", 1.02)))
    assert found.happened is Happened.LIBRARY
    assert verdicts(of(found, "flex")) == {Verdict.SLOWER}
    assert found.device is not None
    assert found.device.verdict is Verdict.SAME
    said = summary(found)
    assert "The device as a whole did not move: the sentinel takes " in said
    assert "These moved, and the device did not: flex 1.0" in said
    assert "(6 of 6 workloads)" in said


def test_both_can_move() -> None:
    found = compare(BEFORE, side("after", 4, only("flex", 1.05), 0.97))
    assert found.happened is Happened.BOTH
    assert set(of(found, "flex")) <= set(found.beyond_the_device)
    assert len(found.beyond_the_device) <= 8  # of what is called, one in twenty is expected to be chance
    assert {row.net.verdict for row in of(found, "flex") if row.net} == {Verdict.SLOWER}
    said = summary(found)
    assert "The device as a whole moved: the sentinel takes 0.9" in said
    assert "These moved, net of the device: flex 1.0" in said


def test_a_variant_that_stays_while_the_device_slows_down_has_moved_beyond_it() -> None:
    found = compare(BEFORE, side("after", 5, only("flex", 1 / 1.04), 1.04))
    assert found.happened is Happened.BOTH
    assert verdicts(of(found, "flex")) == {Verdict.SAME}
    assert set(of(found, "flex")) <= set(found.beyond_the_device)


def test_where_nothing_moved_it_is_said_what_would_have_been_seen() -> None:
    found = compare(BEFORE, side("after", 6))
    assert found.happened is Happened.NOTHING
    assert verdicts(found.rows) == {Verdict.SAME}
    said = summary(found)
    assert "Nothing moved beyond noise: a change of " in said
    assert "would have been seen in half of the rows" in said
    assert said.endswith("30 rows: 30 same.")


def test_a_device_that_is_too_noisy_to_tell_is_said_to_be() -> None:
    after = side("after", 7)
    noisy = {"noise": ((0.9,), (1.0,), (1.1,))}
    sides = [
        dataclasses.replace(one, sentinels={("flux", "flex"): Sentinel(kernel=KERNEL, samples_ms=noisy)})
        for one in (BEFORE, after)
    ]
    found = compare(*sides)
    assert "The device as a whole may have moved or not: the sentinel takes" in summary(found)
    assert found.happened is Happened.NOTHING


def test_what_moved_at_a_workload_without_a_sentinel_is_not_put_on_the_library() -> None:
    noisy = {"noise": ((0.9,), (1.0,), (1.1,))}
    sides = [
        dataclasses.replace(
            one, sentinels={("flux", cell): Sentinel(kernel=KERNEL, samples_ms=noisy) for cell in CELLS}
        )
        for one in (BEFORE, side("after", 8, only("flex", 1.05)))
    ]
    found = compare(*sides)
    assert found.happened is Happened.UNTOLD
    assert "These moved, with no sentinel beside them: flex 1.0" in summary(found)


# Sustained load.


def test_what_is_slower_under_sustained_load_only_is_said_to_be() -> None:
    found = compare(BEFORE, side("after", 61, load=only("flex", 1.03)))
    assert found.happened is Happened.UNDER_LOAD
    assert found.under_load == of(found, "flex")
    assert {row.told.verdict for row in found.rows if row.told} == {Verdict.SAME}
    said = summary(found)
    assert "In calls from rest nothing moved beyond noise: a change of " in said
    assert "These are slower under sustained load only (power or clocks): flex 1.0" in said
    assert "(6 of 6 workloads)" in said
    assert json.loads(to_json(found))["happened"] == "sustained load"


def test_what_is_faster_under_sustained_load_only_is_said_to_be() -> None:
    found = compare(BEFORE, side("after", 62, load=only("flex", 1 / 1.03)))
    assert "These are faster under sustained load only (power or clocks): flex 0.9" in summary(found)


def test_what_moved_from_rest_too_is_not_put_on_the_load() -> None:
    found = compare(BEFORE, side("after", 63, only("flex", 1.03)))
    assert {row.sustained.verdict for row in of(found, "flex") if row.sustained} == {Verdict.SLOWER}
    assert (found.happened, found.under_load) == (Happened.LIBRARY, ())


def test_what_the_device_did_is_not_put_on_the_load() -> None:
    found = compare(BEFORE, side("after", 64, device=1.03))
    assert {row.sustained.verdict for row in found.rows if row.sustained} == {Verdict.SLOWER}
    assert (found.happened, found.under_load) == (Happened.DEVICE, ())


def test_a_device_that_moves_one_way_and_a_load_the_other_are_both_said() -> None:
    found = compare(BEFORE, side("after", 65, device=0.97, load=only("flex", 1.06)))
    assert found.happened is Happened.DEVICE
    assert found.under_load == of(found, "flex")


def test_the_sustained_change_is_that_of_the_raw_sustained_times() -> None:
    found = compare(BEFORE, side("after", 66, device=1.02, load=only("flex", 1.05)))
    for row in of(found, "flex"):
        assert row.sustained
        assert row.sustained.low < 1.02 * 1.05 < row.sustained.high
        assert row.before_ms == pytest.approx(0.5 * (WORKLOADS.index(row.workload) + 1), rel=0.01)  # from rest


def test_over_many_unchanged_pairs_the_load_is_hardly_ever_blamed() -> None:
    found = [compare(side("before", 2 * seed), side("after", 2 * seed + 1)) for seed in range(200, 230)]
    assert sum(bool(one.under_load) for one in found) <= 4
    assert sum(one.happened is Happened.NOTHING for one in found) >= 24


# Records without burst times.


def test_records_without_burst_times_are_judged_as_before() -> None:
    found = compare(before_burst(BEFORE), before_burst(side("after", 67, only("flex", 1.03), 0.97)))
    assert found.happened is Happened.BOTH
    assert {row.net.verdict for row in of(found, "flex") if row.net} == {Verdict.SLOWER}
    assert {row.sustained for row in found.rows} == {None}
    assert len({row.net.resolution for row in found.rows if row.net}) == len(found.rows)  # a spread of each row's own
    assert "sustained" not in table(found)
    assert "sustained" not in summary(found)


def test_a_change_under_the_floor_is_called_of_records_without_burst_times_alone() -> None:
    def steady(whole: Measured, factor: float) -> Measured:
        return dataclasses.replace(
            changed(whole, lambda r: timed(r, [[factor], [factor * 1.00001], [factor]])), sentinels={}
        )

    sides = steady(BEFORE, 1.0), steady(side("after", 68), 1.002)
    assert verdicts(compare(*sides).rows) == {Verdict.SAME}
    assert verdicts(compare(*map(before_burst, sides)).rows) == {Verdict.SLOWER}


def test_a_side_with_burst_times_and_one_without_are_not_compared() -> None:
    found = compare(before_burst(BEFORE), side("after", 69))
    assert {row.note for row in found.rows} == {"not compared: the regime was sustained and is burst"}


def test_cells_with_and_without_burst_times_are_judged_apart() -> None:
    def partly(whole: Measured) -> Measured:
        old = {(r.cell, r.variant, r.workload.name): r for r in before_burst(whole).records if r.cell == "flex"}
        return changed(whole, lambda r: old.get((r.cell, r.variant, r.workload.name), r))

    found = compare(partly(BEFORE), partly(side("after", 70, only("triton_flash", 1.02))))
    assert {row.cell for row in found.rows if row.sustained is None} == {"flex"}
    assert {row.told.verdict for row in of(found, "triton_flash") if row.told} == {Verdict.SLOWER}
    assert found.device is not None
    assert "  flux1" in table(found)


# The sentinel.


def test_without_a_sentinel_device_and_library_cannot_be_told_apart() -> None:
    found = compare(BEFORE, side("reports/after", 9, device=1.03, kernel=None))
    assert (found.device, found.happened) == (None, Happened.UNTOLD)
    said = summary(found)
    assert "The device and the library cannot be told apart: none was timed in reports/after." in said
    assert "These moved, with no sentinel beside them: " in said
    assert "net" not in table(found).splitlines()[3]


def test_sentinels_that_are_not_the_same_kernel_are_not_compared() -> None:
    found = compare(BEFORE, side("after", 10, kernel="another"))
    assert found.device is None
    assert found.sentinel_note == f"it is not the same kernel: {KERNEL} -> another"


def test_a_cell_without_a_sentinel_is_named_and_the_others_keep_theirs() -> None:
    after = side("after", 11, device=1.03)
    after = dataclasses.replace(after, sentinels={key: one for key, one in after.sentinels.items() if key[1] != "flex"})
    found = compare(BEFORE, after)
    assert found.device is not None
    assert found.device.verdict is Verdict.SLOWER
    assert found.sentinel_note == "flex: none was timed in after"
    assert {row.cell for row in found.rows if row.net is None} == {row.cell for row in found.untold} == {"flex"}
    assert "These moved, with no sentinel beside them: flex" in summary(found)


def test_noise_of_the_device_that_a_sentinel_shares_hides_nothing() -> None:
    """The clock of an H200 stands on one of several levels, 0.7% apart, for a process's whole time."""
    sides = []
    for seed, slower in ((41, 1.0), (42, 1.02)):
        steady = side(f"run {seed}", seed, only("flex", slower))
        level = {w: np.random.default_rng(seed).choice([0.993, 1.0, 1.007], 3) for w in WORKLOADS}

        def at_its_level(samples: tuple[tuple[float, ...], ...], steps: Any) -> tuple[tuple[float, ...], ...]:
            return tuple(tuple(x * step for x in part) for part, step in zip(samples, steps, strict=True))

        records = tuple(
            timed(r, [list(part) for part in at_its_level(r.burst.by_process, level[r.workload.name])])
            for r in steady.records
            if r.burst
        )
        sentinels = {
            cell: Sentinel(kernel=KERNEL, samples_ms={w: at_its_level(p, level[w]) for w, p in one.samples_ms.items()})
            for cell, one in steady.sentinels.items()
        }
        sides.append(dataclasses.replace(steady, records=records, sentinels=sentinels))
    found = compare(*sides)
    assert {row.net.verdict for row in of(found, "flex") if row.net} == {Verdict.SLOWER}
    assert len(found.beyond_the_device) <= 8
    for row in of(found, "flex"):
        assert row.net
        assert row.change
        assert row.change.high - row.change.low > 2 * (row.net.high - row.net.low)


def test_a_workload_at_which_a_process_lost_the_sentinel_does_not_count() -> None:
    after = side("after", 12)
    lost = {**after.sentinels["flux", "triton"].samples_ms, WORKLOADS[0]: ((9.0,), (), (9.0,)), WORKLOADS[1]: ((9.0,),)}
    broken = dataclasses.replace(
        after, sentinels={**after.sentinels, ("flux", "triton"): Sentinel(kernel=KERNEL, samples_ms=lost)}
    )
    found = compare(BEFORE, broken)
    assert found.device is not None
    assert found.device.verdict is Verdict.SAME


@pytest.mark.parametrize("samples", [{}, {"elsewhere": ((1.0,),)}, dict.fromkeys(WORKLOADS, ((), ()))])
def test_a_sentinel_without_common_times_is_none(samples: dict[str, tuple[tuple[float, ...], ...]]) -> None:
    after = side("after", 13)
    empty = {key: Sentinel(kernel=KERNEL, samples_ms=samples) for key in after.sentinels}
    found = compare(BEFORE, dataclasses.replace(after, sentinels=empty))
    assert found.sentinel_note == "at no workload was it timed in every process of both"


def test_a_level_that_a_cell_has_for_itself_does_not_hide_a_movement() -> None:
    def warmer(whole: Measured) -> Measured:
        factors = {cell: 1 + 0.1 * index for index, cell in enumerate(CELLS)}
        sentinels = {
            (notebook, cell): Sentinel(
                kernel=one.kernel,
                samples_ms={
                    name: tuple(tuple(factors[cell] * x for x in part) for part in parts)
                    for name, parts in one.samples_ms.items()
                },
            )
            for (notebook, cell), one in whole.sentinels.items()
        }
        return dataclasses.replace(whole, sentinels=sentinels)

    found = compare(warmer(BEFORE), warmer(side("after", 14, device=1.01)))
    assert found.device is not None
    assert found.device.verdict is Verdict.SLOWER


# What is not compared.


def test_other_devices_are_refused() -> None:
    found = compare(BEFORE, side("after", 15, marks={"device": "NVIDIA B200"}))
    assert found.happened is Happened.NOT_COMPARED
    reason = "they were measured on different devices: NVIDIA H200 -> NVIDIA B200"
    assert summary(found) == f"Nothing was compared: {reason} (30 rows).\n30 rows: 30 not compared."
    assert {row.note for row in found.rows} == {f"not compared: {reason}"}


def test_other_devices_are_refused_where_their_workloads_are_others_too() -> None:
    after = side("after", 15, marks={"device": "NVIDIA B200"})
    smaller = SETS["flux1-512px"][0]
    found = compare(BEFORE, changed(after, lambda record: dataclasses.replace(record, workload=smaller)))
    assert "they were measured on different devices" in summary(found)
    assert "only" not in summary(found)


def test_times_that_were_taken_in_another_way_are_refused() -> None:
    found = compare(BEFORE, side("after", 16, marks={"code.timing.py": "z"}))
    assert found.happened is Happened.NOT_COMPARED
    assert "timing.py changed between them" in summary(found)
    assert found.differs == ("timing.py changed",)


def test_another_shape_under_the_same_name_is_refused() -> None:
    after = changed(
        side("after", 17),
        lambda record: dataclasses.replace(record, workload=dataclasses.replace(record.workload, heads=48)),
    )
    assert {row.note for row in compare(BEFORE, after).rows} == {"not compared: the workload has another shape"}


def test_another_regime_is_refused() -> None:
    def burst(record: Record) -> Record:
        assert record.timing is not None
        return dataclasses.replace(record, timing=dataclasses.replace(record.timing, regime="burst"))

    found = compare(BEFORE, changed(side("after", 18), burst))
    assert {row.note for row in found.rows} == {"not compared: the regime was sustained and is burst"}


def test_a_cell_that_was_not_measured_again_is_not_compared_with_itself() -> None:
    after = side("after", 19, device=1.03)
    kept = {(r.cell, r.variant, r.workload.name): r for r in BEFORE.records if r.cell != "flex"}
    partly = changed(after, lambda r: kept.get((r.cell, r.variant, r.workload.name), r))
    found = compare(BEFORE, dataclasses.replace(partly, sentinels={**BEFORE.sentinels, **{
        key: one for key, one in after.sentinels.items() if key[1] == "flex"
    }}))  # fmt: skip
    assert {row.cell for row in found.compared} == {"flex"}
    assert {row.note for row in found.rows if row.cell != "flex"} == {"not measured again"}
    assert found.device is not None
    assert found.device.low <= 1.03 <= found.device.high


def test_what_crashes_now_says_so_in_place_of_a_change() -> None:
    after = changed(side("after", 20), lambda record: failing(record) if record.variant == "flex" else record)
    found = compare(BEFORE, after)
    note = f"PASSED before, now CRASHED: {REASONS[Status.CRASHED]}"
    assert {row.note for row in of(found, "flex")} == {note}
    [row] = [row for row in of(found, "flex") if row.workload == WORKLOADS[0]]
    assert (row.before, row.after, row.after_ms) == (Status.PASSED, Status.CRASHED, None)
    assert row.before_ms is not None
    said = summary(found)
    assert f"Not as before: flex {note} (6 rows)." in said
    assert said.endswith("30 rows: 24 same, 6 not compared.")
    assert f"{note}: flex." in table(found)


def test_what_passes_again_says_so() -> None:
    before = changed(BEFORE, lambda record: failing(record) if record.variant == "flex" else record)
    assert {row.note for row in of(compare(before, side("after", 21)), "flex")} == {"CRASHED before, now PASSED"}


def test_what_failed_on_both_sides_is_no_news() -> None:
    sides = [
        changed(one, lambda r: failing(r, Status.UNSUPPORTED) if r.variant == "flex" else r)
        for one in (BEFORE, side("after", 22))
    ]
    found = compare(*sides)
    assert {row.note for row in of(found, "flex")} == {f"UNSUPPORTED before and now: {REASONS[Status.UNSUPPORTED]}"}
    assert "Not as before" not in summary(found)


def test_rows_of_one_side_are_kept_and_come_after_those_of_both() -> None:
    before = changed(BEFORE, lambda record: None if record.variant == "flex" else record)
    after = changed(side("after", 23), lambda record: None if record.workload.name == WORKLOADS[0] else record)
    found = compare(before, after)
    assert {row.note for row in of(found, "flex")} == {"only after"}
    assert [row.note for row in found.rows][-4:] == ["only before"] * 4
    assert len(found.rows) == 4 * 5 + 5 + 4
    assert f"torch_flash at {WORKLOADS[0]} of 6" in table(found)


def test_rows_of_other_notebooks_do_not_match() -> None:
    after = changed(side("after", 24), lambda record: dataclasses.replace(record, notebook="wan"))
    found = compare(BEFORE, after)
    assert {row.note for row in found.rows} == {"only before", "only after"}
    assert "only after (30 rows); only before (30 rows)" in summary(found)


def test_two_sides_without_records_are_compared_to_nothing() -> None:
    found = compare(Measured(name="a", records=()), Measured(name="b", records=()))
    assert found.happened is Happened.NOT_COMPARED
    assert summary(found) == "Nothing was compared: there are no records.\n0 rows: none."
    assert table(found) == "before: a; after: b"


# What differs.


def test_what_differs_everywhere_is_said_once() -> None:
    found = compare(BEFORE, side("after", 25, marks={"driver": "590", "package.torch": "2.14"}))
    assert found.differs == ("driver 580 -> 590", "torch none -> 2.14")
    assert table(found).splitlines()[1] == "between them: driver 580 -> 590; torch none -> 2.14"


def test_what_differs_in_some_cells_names_them() -> None:
    after = changed(
        side("after", 26),
        lambda r: dataclasses.replace(r, fingerprint={**MARKS, "driver": "590"}) if r.cell != "sdpa" else r,
    )
    assert compare(BEFORE, after).differs == ("flex, triton: driver 580 -> 590",)


def test_a_variant_of_two_cells_is_named_with_its_cell() -> None:
    sides = [
        changed(one, lambda r: dataclasses.replace(r, variant="flex") if r.variant == "triton_flash" else r)
        for one in (BEFORE, side("after", 27, only("triton_flash", 1.05)))
    ]
    assert "flex in flux/triton 1.0" in summary(compare(*sides))


# Text and JSON.


def test_the_table_fits_a_terminal() -> None:
    variant = "torch_efficient_compile_ma"
    shapes = [workload for group in SETS.values() for workload in group]
    rng = np.random.default_rng(28)
    noise = [0.4 * rng.standard_normal() for _ in range(6)]
    sides = [
        Measured(
            name=f"{name}/{'x' * 60}",
            records=tuple(
                timed(make_record(variant, shape, measured_at=name), [[scale * math.exp(x)] for x in noise[::step]])
                for shape, scale in zip(shapes, np.geomspace(0.001, 12_000, len(shapes)), strict=True)
            ),
            sentinels={("flux", variant): Sentinel(kernel="k" * 99, samples_ms={"w": ((1.0,), (2.0,))})},
        )
        for name, step in (("before", 5), ("after", 3))
    ]
    with_sentinels = [
        dataclasses.replace(
            one,
            sentinels={
                ("flux", variant): Sentinel(
                    kernel="k", samples_ms={r.workload.name: r.burst.by_process for r in one.records if r.burst}
                )
            },
        )
        for one in sides
    ]
    for compared in (compare(*sides), compare(*with_sentinels)):
        text = table(compared)
        assert max(map(len, text.splitlines())) <= 125
        assert all(shape.name in text for shape in shapes)


def test_the_table_begins_with_the_sentinel_and_aligns_its_numbers() -> None:
    lines = table(compare(BEFORE, side("after", 29))).splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("workload"))
    assert lines[header].split() == [
        *("workload", "before", "after", "time", "net", "of", "the", "device,", "95%", "verdict", "sees"),
        *("sustained,", "95%", "verdict"),
    ]
    assert lines[header + 2] == "sentinel: the device"
    assert lines[header + 4] == "torch_flash"
    rows = [line for line in lines[header + 5 :] if line.startswith("  flux1")]
    assert len(rows) == 30
    assert len({len(line) for line in rows}) == 1


def test_one_process_a_side_has_ratios_and_no_verdicts() -> None:
    sides = [
        changed(one, lambda record: timed(record, [list(record.burst.samples_ms[:60])] if record.burst else []))
        for one in (BEFORE, side("after", 30, kernel=None))
    ]
    found = compare(*sides)
    assert verdicts(found.rows) == {Verdict.UNDECIDED}
    assert "no change could have been seen" in summary(found)
    assert "[0.0000, >100]" in table(found)
    assert json.loads(to_json(found))["rows"][0]["change"]["high"] is None


def test_the_json_holds_what_the_comparison_does() -> None:
    after = changed(side("after", 31, only("flex", 1.02)), lambda r: failing(r) if r.variant == "torch_math" else r)
    found = compare(BEFORE, after)
    data: dict[str, Any] = json.loads(to_json(found))
    assert data["happened"] == "library"
    assert data["device"] == pytest.approx(dataclasses.asdict(found.device)) if found.device else False
    assert [row["workload"] for row in data["rows"]] == [row.workload for row in found.rows]
    for row, one in zip(data["rows"], found.rows, strict=True):
        assert (row["after"], row["before_ms"], row["note"]) == (one.after, one.before_ms, one.note)
        if one.change:
            assert row["change"] == dataclasses.asdict(one.change)


def test_only_so_many_variants_are_named() -> None:
    names = [f"kernel_{index}" for index in range(comparison_text._NAMED + 3)]
    rng = np.random.default_rng(32)
    sides = [
        Measured(
            name=name,
            records=tuple(timed(make_record(v, measured_at=name), drawn(rng, factor)) for v in names),
        )
        for name, factor in (("before", 1.0), ("after", 1.1))
    ]
    assert "(1 of 1 workload) and 3 more." in summary(compare(*sides))


def test_the_times_that_are_shown_have_the_ratio_that_is_shown() -> None:
    uneven = timed(make_record("flex", WORKLOADS[0], measured_at="before"), [[1.0], [1.0], [1.0]])
    after = timed(make_record("flex", WORKLOADS[0], measured_at="after"), [[1.0], [1.0], [8.0]])  # the median stays
    found = compare(
        Measured(name="before", records=(dataclasses.replace(uneven, fingerprint=MARKS),)),
        Measured(name="after", records=(dataclasses.replace(after, fingerprint=MARKS),)),
    )
    [row] = found.rows
    assert row.change
    assert row.before_ms
    assert row.after_ms
    assert row.after_ms / row.before_ms == pytest.approx(row.change.ratio) == pytest.approx(2.0)


def test_times_that_were_taken_beside_other_variants_say_so() -> None:
    after = side("after", 51)
    alone = changed(after, lambda record: None if record.variant == "torch_math" else record)
    found = compare(before_burst(BEFORE), before_burst(alone))
    assert found.differs == ("sdpa: timed beside other variants: without torch_math",)
    said = "what runs in between, and that changed: sdpa: timed beside other variants: without torch_math."
    assert said in summary(found)
    assert "timed beside" not in summary(compare(before_burst(BEFORE), before_burst(after)))
    assert compare(BEFORE, alone).differs == ()  # what rests before each call does not know what ran before
