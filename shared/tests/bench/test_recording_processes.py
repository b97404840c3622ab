"""Records of what unequally many processes measured: which of them count, and how many are enough."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fakes import CPU, GPU, TINIER, TINY, tokens
from recorded import CELL, PROCESS_S, of_process, record, regimes, seen
from sample_events import READY, REFERENCE, checked, in_blocks, parsed, timed

from fluxbench.bench import recording, timings
from fluxbench.bench.recording import Context
from fluxbench.device.model import Device
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.status import Status
from fluxbench.stats.converged import sustained_within
from fluxbench.studies import flux


def test_variants_of_one_cell_may_have_been_measured_by_unequally_many_processes() -> None:
    trials = [
        event
        for process in range(4)
        for event in (
            timed(REFERENCE, process, began=PROCESS_S * process, block_ms=(1.0 + 0.001 * process,) * 10),
            *([timed("torch_math", process, began=PROCESS_S * process + 10)] if process < 3 else []),
        )
    ]
    of = seen(trials)
    math, reference = record(of), record(of, REFERENCE)
    assert [regimes(one)[1].processes for one in (math, reference)] == [3, 4]
    assert regimes(math)[1].ci95_ms[1] > regimes(math)[1].median_ms  # what the reference's processes differ by
    short = record(of, processes=4)
    assert (short.status, short.reason) == (
        Status.ERROR,
        "timed in 3 of 4 processes; the reference variant failed in the others",
    )


def test_each_operation_of_a_cell_has_processes_of_its_own() -> None:
    training = tokens("training", 96, "attention_training")
    first = [event for process in range(4) for event in of_process(process, block_ms=(1.35 + 0.05 * process,) * 10)]
    second = [
        timed(
            variant, process, began=PROCESS_S * (4 + process) + 10 * index, workloads=("training",), block_ms=(2.0,) * 6
        )
        for process in range(3)
        for index, variant in enumerate((REFERENCE, "torch_math", REFERENCE))
    ]
    of = seen([*first, *second])
    of.add(parsed(checked("torch_math", "training")))
    context = Context(
        cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="2026-01-31T12:00:00Z", powers={},
    )  # fmt: skip
    made = list(recording.of_cell(of, ["torch_math"], [TINY, training], context))
    assert [(one.status, regimes(one)[1].processes) for one in made] == [(Status.PASSED, 4), (Status.PASSED, 3)]
    assert timings.widths(of, ["training"])["torch_math"].keys() == {"training"}
    assert regimes(made[1])[1].ci95_ms == pytest.approx((2.0, 2.0))  # without the spread of the other operation


def test_a_process_that_lost_its_reference_at_a_workload_costs_it_no_record_while_three_are_left() -> None:
    def trials(without: int) -> list[dict[str, Any]]:
        """Return five processes, the first of which have no reference at one of the workloads."""
        return [
            timed(variant, process, began=PROCESS_S * process + 10 * index, workloads=at, block_ms=(1 + gap,) * 10)
            for process, gap in enumerate((0.0, 0.02, 0.01, 0.03, 0.0))
            for at in [("tiny",) if process < without else ("tiny", "tinier")]
            for index, variant in enumerate((REFERENCE, "torch_math"))
        ]

    whole, some = (record(seen(trials(without)), workload=TINIER) for without in (0, 2))
    assert (some.status, [timing.processes for timing in regimes(some)]) == (Status.PASSED, [3, 3])
    wide, narrow = (timing.ci95_ms[1] - timing.ci95_ms[0] for timing in (regimes(some)[1], regimes(whole)[1]))
    assert wide > narrow > 0
    assert timings.widths(seen(trials(2)), ["tiny", "tinier"])["torch_math"].keys() == {"tiny", "tinier"}
    for without in (3, 4):
        lost = record(seen(trials(without)), workload=TINIER)
        why = f"timed in {5 - without} of 3 processes; the reference variant failed in the others"
        assert (lost.status, lost.reason) == (Status.ERROR, why)
        assert record(seen(trials(without))).status is Status.PASSED


def test_a_row_of_two_processes_beside_others_of_five_is_an_error_with_its_reason() -> None:
    """Two are enough of what is far slower, but not to share the intervals of five."""
    trials = [
        timed(variant, process, began=PROCESS_S * process + 10 * index, workloads=at, block_ms=(ms,) * 10)
        for process in range(5)
        for at in [("tiny", "tinier") if process < 2 else ("tiny",)]
        for index, (variant, ms) in enumerate(((REFERENCE, 1.0), ("torch_math", 3.0)))
    ]
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    most, few = recording.of_cell(seen(trials), ["torch_math"], [TINY, TINIER], context)
    assert (most.status, few.status) == (Status.PASSED, Status.ERROR)
    assert few.reason == "timed in 2 processes; its other workloads in more, so it cannot share their intervals"


def test_of_what_is_far_slower_in_both_passes_two_processes_are_enough_for_the_backward_pass_too() -> None:
    both = tokens("training", 96, "attention_training"), tokens("backward", 96, "attention_backward")
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})

    def statuses(slower: float) -> list[Status]:
        trials = []
        for process in range(2):
            for index, (variant, ms) in enumerate(((REFERENCE, 1.0), ("torch_math", slower))):
                began = PROCESS_S * process + 10 * index
                one = timed(variant, process, began=began, workloads=("training", "backward"), block_ms=(ms,) * 6)
                del one["blocks"][0]["samples_ms"]["backward"], one["blocks"][0]["calls"]["backward"]
                trials.append(one)
        of = seen(trials)
        for each in both:
            of.add(parsed(checked("torch_math", each.name)))
        return [made.status for made in recording.of_cell(of, ["torch_math"], both, context)]

    assert statuses(2.0) == [Status.PASSED] * 2
    assert statuses(1.2) == [Status.ERROR] * 2


def test_how_well_sustained_means_are_known_can_be_asked_while_a_cell_is_measured() -> None:
    of = seen([t for p in range(2) for t in of_process(p, block_ms=(1.35 + 0.05 * p,) * 10)])
    first = timings.widths(of, ["tiny"])
    for event in (READY, *of_process(2, block_ms=(1.375,) * 10)):
        of.add(parsed(event))
    assert first.keys() == {REFERENCE, "torch_math"}
    then = timings.widths(of, ["tiny"])["torch_math"]["tiny"]
    assert first["torch_math"]["tiny"].half > 1.5 * then.half > 0
    made = regimes(record(of))[1]
    assert then.half == pytest.approx((made.ci95_ms[1] - made.ci95_ms[0]) / 2 / made.median_ms)
    assert (then.enough, made.converged) == (False, False)
    assert [sustained_within(ratio) for ratio in (0.5, 1.05, 1.06)] == [0.005, 0.005, 0.015]


def test_lengths_that_were_measured_apart_tell_more_of_times_and_of_ratios() -> None:
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    lengths, halves = {"tiny": 1.0, "tinier": 0.9}, []
    for change in (lambda event: event, in_blocks):
        of = seen(
            change(timed(name, process, began=PROCESS_S * process + 10 * place, workloads=lengths, block_ms=(ms,) * 10))
            for process, gap in enumerate((0.0, 0.02, 0.01))
            for place, (name, ms) in enumerate({REFERENCE: 1 - gap, "torch_math": 1 + gap}.items())
        )
        for workload in (TINY, TINIER):
            of.add(parsed(checked("torch_math", workload.name)))
        made = [regimes(one)[1] for one in recording.of_cell(of, ["torch_math"], [TINY, TINIER], context)]
        width = timings.widths(of, lengths)["torch_math"]["tinier"].half
        halves.append((width, *(one.ratio_ci95[1] - one.ratio_ci95[0] for one in made)))
    together, apart = halves
    assert all(one < 0.9 * other for one, other in zip(apart, together, strict=True))


@pytest.mark.parametrize(
    ("device", "blocks", "unlike", "version"),
    [(GPU, 2, False, METHOD_VERSION), (GPU, 1, True, METHOD_VERSION), (GPU, 1, False, 12), (CPU, 1, True, 10)],
)
def test_the_method_version_is_the_last_one_that_changed_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, device: Device, blocks: int, unlike: bool, version: int
) -> None:
    """Where a GPU has blocks of one length each; times of its other cells and of a CPU are as they were before."""
    monkeypatch.setattr(flux, "STUDY", dataclasses.replace(flux.STUDY, unlike_lengths=unlike))
    context = Context(cell=CELL, device=device, processes=3, fingerprint={}, measured_at="", powers={})
    event = timed("torch_math")
    made = [*recording.of_cell(seen([event | {"blocks": event["blocks"] * blocks}]), ["flex"], (TINY, TINIER), context)]
    assert {one.method_version for one in made} == {version}
