"""A comparison in words: sentences, the table and the JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from sample_records import REASONS, changed, record
from sides import (
    FINGERPRINT,
    WORKLOADS,
    before_burst,
    draw,
    edited,
    failing,
    only,
    rows_of,
    side,
    timed,
    with_controls,
)
from tabled import words

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Measured, OutlyingProcess
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import SUSTAINED, Flag
from fluxbench.records.status import FlagKind
from fluxbench.report.comparison import blocks, to_json
from fluxbench.report.comparison_words import control_note, differences, percent_text, ratio_text, summary
from fluxbench.stats.significance import Change, Verdict

BEFORE = side("before", 1)
UNDECIDED = Change(ratio=1.0, low=0.9, high=1.1, verdict=Verdict.UNDECIDED, minimum_detectable_change=0.1)
NOISY = ControlTimes(kernel="noisy", samples_ms={"noise": ((0.9,), (1.0,), (1.1,))})


def said(comparison: Comparison) -> str:
    return " ".join(summary(comparison))


# The summary.


def test_a_device_that_changed_is_said_with_how_much() -> None:
    text = said(compare(BEFORE, side("after", 102, device=1.03)))
    assert text.startswith("The device as a whole changed: the control kernel takes 1.03")
    assert "No time changed beyond the device: the minimum detectable change is at most 0." in text
    assert text.endswith("30 rows: 30 same.")


def test_a_variant_that_changed_is_named_with_its_ratios() -> None:
    found = compare(BEFORE, side("after", 3, only("flex", 1.02)))
    ratios = sorted(f"{row.judged.ratio:.4f}" for row in rows_of(found, "flex") if row.judged)
    text = said(found)
    assert "The device as a whole did not change: the control kernel takes " in text
    assert f"These changed, and the device did not: flex {ratios[0]} to {ratios[-1]} (6 of 6 workloads)." in text
    assert text.endswith("30 rows: 6 slower, 24 same.")
    both = said(compare(BEFORE, side("after", 4, only("flex", 1.05), 0.97)))
    assert "These changed, normalized to control: flex 1.0" in both


def test_where_nothing_changed_the_minimum_detectable_change_is_said() -> None:
    found = compare(BEFORE, side("after", 6))
    sizes = sorted(row.judged.minimum_detectable_change or math.inf for row in found.rows if row.judged)
    under_load = sorted(row.sustained.minimum_detectable_change or math.inf for row in found.rows if row.sustained)
    assert (
        f"No time changed beyond noise: the minimum detectable change is at most {sizes[14]:.2%} in half of the rows "
        f"and at most {sizes[26]:.2%} in 90% of them; "
        f"under sustained load {under_load[14]:.2%} and {under_load[26]:.2%}."
    ) in said(found)


def test_an_undecided_row_whose_interval_excludes_1_is_explained() -> None:
    found = compare(BEFORE, side("after", 6))
    why = "an interval excludes 1 and the verdict is undecided: verdicts are corrected"
    [*others, last] = [dataclasses.replace(row, normalized=UNDECIDED, sustained=UNDECIDED) for row in found.rows]
    beside = dataclasses.replace(UNDECIDED, ratio=0.54, low=0.388, high=0.75)
    assert why not in said(dataclasses.replace(found, rows=(*others, last)))
    assert f"In 1 row {why}" in said(
        dataclasses.replace(found, rows=(*others, dataclasses.replace(last, sustained=beside)))
    )


@pytest.mark.parametrize(("load", "verdict"), [(1.04, "slower"), (1 / 1.04, "faster")])
def test_a_change_under_sustained_load_alone_is_said(load: float, verdict: str) -> None:
    found = compare(BEFORE, side("after", 61, load=only("flex", load)))
    text = said(found)
    assert "In burst no time changed beyond noise: " in text
    ratios = sorted(row.sustained.ratio for row in found.sustained_only if row.sustained)
    assert (
        f"These are {verdict} under sustained load only (power or clocks): flex {ratios[0]:.4f} to {ratios[-1]:.4f} "
        f"({len(ratios)} of 6 workloads)."
    ) in text
    assert json.loads(to_json(found))["happened"] == "sustained load"


def test_a_control_kernel_that_is_too_noisy_is_said() -> None:
    sides = [with_controls(one, dict.fromkeys(one.controls, NOISY)) for one in (BEFORE, side("after", 7))]
    found = compare(*sides)
    assert "The device as a whole may have changed: the control kernel takes" in said(found)
    assert control_note(found) == ""


def test_without_a_control_kernel_it_is_said_why() -> None:
    found = compare(BEFORE, side("after", 9, device=1.03, kernel=None))
    text = said(found)
    assert "Without a control kernel, device and library cannot be separated: none was timed in after." in text
    assert "These changed, and have no control kernel to compare with: " in text
    assert "Control kernel: none was timed in after." in words(blocks(found))
    other = compare(BEFORE, side("after", 10, kernel="another"))
    assert control_note(other) == "it is not the same kernel: a fixed matrix product -> another"
    lost = ControlTimes(kernel="noisy", samples_ms={})
    both = compare(*(with_controls(one, dict.fromkeys(one.controls, lost)) for one in (BEFORE, side("after", 8))))
    assert control_note(both) == "no variant has its times in every process of both sides"
    after = side("after", 11, device=1.03)
    after = with_controls(after, {key: one for key, one in after.controls.items() if key[1] != "flex"})
    assert control_note(compare(BEFORE, after)) == "flex: none was timed in after"


def test_a_change_of_status_is_said_and_counted() -> None:
    after = edited(side("after", 20), lambda r: failing(r) if r.variant == "flex" else r)
    found = compare(BEFORE, after)
    note = f"PASSED before, now CRASHED: {REASONS[failing(after.records[0]).status]}"
    assert "Status changed: PASSED before, now CRASHED: flex (6 rows)." in said(found)
    assert json.loads(to_json(found))["happened"] == "status"
    assert said(found).endswith("30 rows: 24 same, 6 not compared.")
    assert f"{note}: flex." in words(blocks(found))
    back = compare(after, BEFORE)
    assert "Status changed: CRASHED before, now PASSED: flex (6 rows)." in said(back)
    never = compare(after, edited(after, lambda r: changed(r, measured_at="later")))
    assert "Status changed" not in said(never)


def test_rows_of_which_one_side_replayed_graphs_are_named_with_the_sides() -> None:
    flag = Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=0.7)
    found = compare(BEFORE, edited(side("b", 2), lambda r: changed(r, flags=(flag,) * (r.variant == "flex"))))
    why = "calls were timed as the host launches them, and now as CUDA graphs"
    assert f"sustained times not compared: {why}: flex." in words(blocks(found))
    rows = [row for row in json.loads(to_json(found))["rows"] if row["variant"] == "flex"]
    assert {(row["note"], row["sustained"], row["sustained_note"]) for row in rows} == {(None, None, why)}
    assert all(row["change"] for row in rows)


def test_what_is_not_compared_is_said_with_the_rows() -> None:
    after = side("after", 15, fingerprint={**FINGERPRINT, "device": "NVIDIA B200"})
    found = compare(BEFORE, after)
    reason = "they were measured on different devices: NVIDIA H200 -> NVIDIA B200"
    assert summary(found) == [f"Nothing was compared: {reason} (30 rows).", "30 rows: 30 not compared."]
    assert f"not compared: {reason}: torch_flash, torch_math, flex, flex_compile_d, triton_flash." in words(
        blocks(found)
    )
    assert json.loads(to_json(found))["control_note"] == "nothing was compared"
    empty = compare(Measured(name="a", records=()), Measured(name="b", records=()))
    assert summary(empty) == ["Nothing was compared: there are no records.", "0 rows: none."]


def test_rows_of_one_side_are_named_with_their_workloads() -> None:
    before = edited(BEFORE, lambda r: None if r.variant == "flex" else r)
    after = edited(side("after", 23), lambda r: None if r.workload.name == WORKLOADS[0] else r)
    text = words(blocks(compare(before, after)))
    assert "only after: flex." in text
    assert f"only before: torch_flash at {WORKLOADS[0]} of 6, torch_math at {WORKLOADS[0]} of 6" in text
    other = compare(BEFORE, edited(side("after", 24), lambda r: changed(r, notebook="wan")))
    assert "only after (30 rows); only before (30 rows)" in said(other)


def test_a_variant_of_two_cells_is_named_with_its_cell() -> None:
    sides = [
        edited(one, lambda r: changed(r, variant="flex") if r.variant == "triton_flash" else r)
        for one in (BEFORE, side("after", 27, only("triton_flash", 1.05), kernel=None))
    ]
    assert "flex in flux/triton 1.0" in said(compare(*sides))


def test_only_so_many_variants_are_named_those_that_changed_most_first() -> None:
    rng = np.random.default_rng(32)
    names = [f"kernel_{number}" for number in range(11)]
    sides = []
    for name, slower in (("before", 0), ("after", 1)):
        times = {v: draw(rng, 1 + slower * 0.1 * number) for number, v in enumerate(names, start=1)}
        found = tuple(timed(record(v, measured_at=name), samples) for v, samples in times.items())
        sides.append(Measured(name=name, records=found))
    [sentence] = [one for one in summary(compare(*sides)) if one.startswith("These changed")]
    assert sentence.index("kernel_10 2.1") < sentence.index("kernel_9 ") < sentence.index("kernel_3 ")
    assert sentence.endswith("(1 of 1 workload) and 3 more.")


def test_processes_that_are_left_out_are_named_with_where() -> None:
    one = OutlyingProcess(
        notebook="flux", cell="flex", variant="flex", after=True, process=2, log_ratio=math.log(1.02), rows=()
    )
    earlier = dataclasses.replace(one, after=False)
    kinds = [one, *(dataclasses.replace(each, sustained=True) for each in (one, earlier))]
    kinds.append(dataclasses.replace(earlier, as_is=True))
    found = dataclasses.replace(compare(BEFORE, side("after", 2)), outlying=(*kinds, *[one] * 6))
    text = " ".join(summary(found))
    than = "than the others of its side"
    assert f"Process 2 of flex, after, is 2.0% slower {than}, so its time is excluded: measure it again." in text
    assert f"is 2.0% slower under sustained load {than}, so its time is excluded" in text
    larger = "so its time is excluded: of this variant only a larger change can be found."
    assert f"Process 2 of flex, before, is 2.0% slower under sustained load {than}, {larger}" in text
    assert f"Process 2 of flex, before, is 2.0% slower {than}, and so is the device in it: it is left out of" in text
    assert "2 more processes are excluded in the same way." in text


def test_a_share_is_shown_in_percent_and_a_ratio_with_four_decimals() -> None:
    assert [percent_text(share) for share in (0.0033, 0.25, 12.0, None)] == ["0.33%", "25%", ">999%", "-"]
    assert [ratio_text(ratio) for ratio in (0.99655, 1.5, 250.0)] == ["0.9966", "1.5000", ">100"]


# What differs.


def test_what_differs_everywhere_is_said_once_and_elsewhere_with_the_cells() -> None:
    now = {**FINGERPRINT, "driver": "590", "package.torch": "2.14"}
    found = compare(BEFORE, side("after", 25, fingerprint=now))
    assert differences(found) == ["driver 580 -> 590", "torch none -> 2.14"]
    assert "between them: driver 580 -> 590; torch none -> 2.14" in words(blocks(found))
    some = edited(side("after", 26), lambda r: changed(r, fingerprint=now) if r.cell != "sdpa" else r)
    assert differences(compare(BEFORE, some)) == ["flex, triton: driver 580 -> 590", "flex, triton: torch none -> 2.14"]


def test_variants_that_a_time_depends_on_are_said() -> None:
    alone = edited(side("after", 51), lambda r: None if r.variant == "torch_math" else r)
    found = compare(before_burst(BEFORE), before_burst(alone))
    phrase = "sdpa: timed beside other variants: without torch_math"
    assert differences(found) == [phrase]
    assert f"What runs between the samples affects a time, and it changed: {phrase}." in said(found)
    refused = edited(before_burst(alone), lambda r: changed(r, method_version=5))
    assert "A time depends" not in said(compare(before_burst(BEFORE), refused))
