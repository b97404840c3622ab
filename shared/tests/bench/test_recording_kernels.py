"""Records of variants that run another kernel in some process than in the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes import GPU, TINY
from recorded import CELL
from sample_events import READY, REFERENCE, checked, collected, profiled, timed

from fluxbench.bench import recording
from fluxbench.bench.recording import Context
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.variants._base import TOP_KERNELS


def recorded_with(
    kernels: list[dict[str, Any]],
    ran: list[str],
    times: Sequence[Any] | None = None,
    later: list[str] | None = None,
) -> Record:
    """Return the record of a variant of which these kernels ran in its first process, and those in its third one.

    `times`: what they took in the first. `later`: the names in the second one, if they are others.
    """
    events: list[Any] = [checked("flex")]
    for process in range(3):
        own = timed("flex", process, began=100.0 * process + 50)
        names = ran if process == 2 else later if process else None
        told = profiled("flex", TINY.name, kernels, None if process else times, names)
        events += [READY, timed(REFERENCE, process, began=100.0 * process), own, told]
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    [made] = recording.of_cell(collected(events), ["flex"], [TINY], context)
    return made


SHARES = [("copy", 0.4, "copies"), ("flash", 0.3, "attention"), ("combine", 0.29, "attention")]


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (["copy", "flash", "combine"], None),
        (["combine", "flash", "copy"], None),  # which takes longer is chance
        ([], None),  # the profiler saw nothing
        (["copy", "softmax", "product"], "flash ran in the first process, copy in process 3"),
        (["product", "copy", "flash"], "product did not run in the first process, and did in process 3"),
        (["flash", "combine"], "copy ran in the first process, flash in process 3"),
    ],
)
def test_a_variant_runs_the_kernel_that_was_checked_in_every_process(ran: list[str], said: str | None) -> None:
    made = recorded_with([{"name": name, "share": share, "part": part} for name, share, part in SHARES], ran)
    assert (made.status, made.reason, bool(made.timings)) == (
        (Status.ERROR, said, False) if said else (Status.PASSED, None, True)
    )


def test_of_many_short_kernels_another_one_may_be_the_largest_in_a_later_process() -> None:
    assert TOP_KERNELS == 6
    six = [{"name": f"k{index}", "share": 0.12 - 0.001 * index, "part": "attention"} for index in range(6)]
    ran = ["k7", *(f"k{index}" for index in range(7))]
    assert recorded_with(six, ran).reason is None
    assert recorded_with(six[:5], ran).reason == "k7 did not run in the first process, and did in process 3"
    assert "k0 ran in the first process" in str(recorded_with(six, ran[2:]).reason)


# Of a layer: its checks take turns with other cells', so any kernel may have been interrupted, and seem the largest.
OF_LAYER = [("norm", 0.5, "elementwise"), ("nvjet_NTN", 0.3, "projections"), ("flash", 0.1, "attention")]


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (["copy", "nvjet_NNT", "flash"], None),
        (["nvjet_NNT", "softmax"], "flash ran in the first process, nvjet_NNT in process 3"),
    ],
)
def test_of_a_layer_the_kernel_of_the_attention_alone_is_the_same_in_every_process(
    ran: list[str], said: str | None
) -> None:
    kernels = [{"name": name, "share": share, "part": part} for name, share, part in OF_LAYER]
    assert recorded_with(kernels, ran).reason == said


def test_shares_of_kernels_are_of_calls_that_had_the_device_alone() -> None:
    kernels = [{"name": name, "share": share, "part": part} for name, share, part in SHARES]
    alone = [{**kernel, "share": share} for kernel, share in zip(kernels, (0.1, 0.6, 0.3), strict=True)]
    made = recorded_with(kernels, ["flash"], times=[0.79, 0.8, {"attention": 0.79}, alone[1:]], later=["flash"])
    assert [(each.name, each.share) for each in made.kernels] == [("flash", 0.6), ("combine", 0.3)]
    assert [each.name for each in recorded_with(kernels, []).kernels] == ["copy", "flash", "combine"]


def test_where_the_first_process_saw_no_kernel_the_next_one_is_what_others_are_compared_with() -> None:
    events: list[Any] = [checked("flex")]
    for process, name in enumerate(("", "flash", "math")):
        kernels = [{"name": name, "share": 1.0, "part": "attention"}] if name else []
        own = timed("flex", process, began=100.0 * process + 50), profiled("flex", TINY.name, kernels)
        events += [READY, timed(REFERENCE, process, began=100.0 * process), *own]
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    [made] = recording.of_cell(collected(events), ["flex"], [TINY], context)
    assert (made.status, made.reason) == (Status.ERROR, "flash ran in the first process, math in process 3")
