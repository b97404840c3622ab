"""What a grid's workloads take of a GPU's memory, and which of them a process holds at once."""

from __future__ import annotations

import dataclasses
import random
import weakref
from typing import Any

import pytest
import torch
from judged import verdict
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fluxbench import studies
from fluxbench.bench.measuring import _by_process as by_process
from fluxbench.correctness.case import Case
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.guards import keep, restore
from fluxbench.correctness.judging import judge
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.worker import needs
from fluxbench.worker.request import Effort, Request

STUDY = studies.find("sdpa")
H100 = 85_024_112_640  # bytes
ALL = [sets.by_name()[one.name] for name in STUDY.sets["any"] for one in sets.named([name])]
CPU = torch.device("cpu")


def parts(effort: Effort = STUDY.effort) -> list[tuple[Workload, ...]]:
    found = []
    for together in by_process(ALL):
        asked = Request(device="cuda", workloads=together, variants=(), references=(), effort=effort)
        found += asked.held_together
    return found


def test_cells_fit_on_a_card_at_once_and_each_part_fits_alone() -> None:
    device = Device(kind="cuda", name="H100", memory_bytes=H100)
    held = parts()
    assert [one.name for part in held for one in part] == [one.name for part in by_process(ALL) for one in part]
    assert STUDY.cells_on(device) == 8
    fused = sorted(needs.of_process(part, ["torch_flash"]) for part in held)
    assert 8 * fused[len(fused) // 2] < 0.9 * H100
    for name in ("torch_flash", "torch_eager", "torch_math"):
        assert max(needs.of_process(part, [name]) for part in held) < 0.9 * H100


def test_a_call_that_holds_all_scores_needs_more_with_gradients_than_without() -> None:
    [large] = sets.named(["sdpa-b64-s1024-h24-d128-bf16-training"])
    scores = 64 * 24 * 1024**2
    fused, unfused = (needs.of_process([large], [name]) for name in ("torch_flash", "torch_math"))
    assert unfused - fused == 24 * scores
    assert unfused > 45 << 30  # what was taken on an H100 when it lacked 6 GiB more


@pytest.mark.parametrize("name", ["sdpa-b8-s64-h12-d32-bf16", "sdpa-b8-s64-h12-d32-bf16-training"])
def test_what_a_process_holds_is_at_most_what_was_computed(name: str) -> None:
    [workload] = sets.named([name])
    case = Case.make(workload, "normal", 0, CPU)
    rotation = 1 + -(-100 * 2**20 // workload.cost.min_bytes)  # exceeds twice an H100's cache
    contents = Contents.make(workload, case, CPU, rotation=rotation, most=2, share=0.1, derived=True)
    contents = Contents(contents.pool[:2], rotation, rotation + 1)
    tensors = [*case.inputs.values(), *case.expected.values(), *contents.inputs.values()]
    tensors += [x for content in contents.pool for x in (*content.inputs.values(), *content.rows.values())]
    tensors += [x for slot in contents.slots for x in slot.values()]
    held = sum(x.nbytes for x in tensors)
    assert 0.5 * needs.held_bytes(workload) < held < needs.held_bytes(workload)


@pytest.mark.parametrize("name", ["sdpa-b8-s64-h12-d32-bf16", "sdpa-b8-s64-h12-d32-bf16-training"])
def test_what_comes_and_goes_as_outputs_are_judged_is_at_most_what_was_computed(name: str) -> None:
    [workload] = sets.named([name])
    case = Case.make(workload, "normal", 0, CPU)
    contents = Contents.make(workload, case, CPU, rotation=2, most=2, share=0.1, sustained=False, derived=True)
    outputs = {name: x.to(case.dtype) for name, x in case.expected.items()}

    def checked() -> None:
        kept = keep(case.inputs)
        judge(outputs, case)
        restore(case.inputs, kept)

    def judged_after_timed_calls() -> None:
        verdict(outputs, contents.whole(random.Random(0)).as_case(case))

    for judged in (checked, judged_after_timed_calls):
        with Peak() as peak:
            judged()
        assert 0.4 * needs.passing_bytes(workload, 0) < peak.bytes < needs.passing_bytes(workload, 0)


def test_inputs_of_all_kinds_are_held_where_they_are_checked() -> None:
    [workload] = sets.named(["sdpa-b8-s64-h12-d32-bf16"])
    some, all_kinds = (
        needs.of_process([workload], ["torch_flash"], full) for full in (lambda _: False, lambda _: True)
    )
    case = Case.make(workload, "normal", 0, CPU)
    inputs, expected = (sum(x.nbytes for x in of.values()) for of in (case.inputs, case.expected))
    assert all_kinds - some == 3 * (inputs + expected) + inputs


class Peak(TorchDispatchMode):  # type: ignore[misc]
    """The most bytes of tensors that were made meanwhile and live at once; what an operator holds is not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self._now = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        before = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(found):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in before:
                size = x.untyped_storage().nbytes()
                self._now += size
                self.bytes = max(self.bytes, self._now)
                weakref.finalize(x.untyped_storage(), self._freed, size)
        return found

    def _freed(self, size: int) -> None:
        self._now -= size


def test_one_workload_is_held_at_a_time_where_it_is_measured_alone() -> None:
    alone = dataclasses.replace(STUDY.effort, held_bytes=1)
    assert all(len(part) == 1 for part in parts(alone))
