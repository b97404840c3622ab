"""One variant through both regimes in one process, beside the reference: its turn.

Nothing is gained by returning an earlier result, by skipping work on inputs seen before, by leaving work on another
stream or thread, or by computing later: burst calls get contents that are new at the same addresses, outputs from both
regimes are copied in the order of the stream and checked, and calls on repeated inputs may not be shorter than those on
new ones.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fluxbench.correctness.judging import Case, refusal
from fluxbench.operations.inputs import Change, Fresh, Inputs, make
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import Status
from fluxbench.timing.control_kernel import NAME as SENTINEL
from fluxbench.timing.control_kernel import Sentinel
from fluxbench.timing.profiler import KernelTimes, kernel_times
from fluxbench.timing.regimes import Call, Key, Plan, burst, repeated_over_new, sustain
from fluxbench.timing.stopwatch import Stopwatch, last_level_cache_bytes
from fluxbench.variants._base import Variant, part_of

SEEDS_PER_PROCESS = 100
# A call on repeated inputs over one on new ones, under which the kernel kept something. Side by side, on a GPU, the two
# are of one length; between the regimes clocks and noise differ, so there it is a share of what the reference's are.
REPEATED_FROM = 0.95
SKIPS_BELOW = 0.25
CPU_FROM_MS = 5.0  # a shorter call on a CPU tells nothing by it: other programs take whole milliseconds from it
REFERENCE_S = 0.6  # of a block of the reference, of which there are several beside several variants
_NOTHING = ""  # the workload of the sentinel, which has none


class Shape:
    """One workload in one process: sets of inputs, of which the last are checked, and what their answer must be."""

    def __init__(self, workload: Workload, rotation: list[Inputs], case: Case, seed: int) -> None:
        self.workload = workload
        self.case = case
        self.harder: Case | None = None  # the other kind of inputs, of the first process alone
        self.rotation = rotation
        self.fresh = Fresh(case.inputs, seed, causal=workload.causal)
        self._others = [Fresh(inputs, seed) for inputs in rotation[:-1]]

    def judge(self, out: torch.Tensor, change: Change, variant: Variant) -> str | None:
        """Return why the output of a timed call is wrong, or None; `change` is how its inputs had changed."""
        return refusal(
            out,
            replace(self.case, expected=change.of(self.case.expected)),
            precision_class=variant.precision_class,
            quantized_budget=variant.quantized_budget_rel_l2,
        )

    def restore(self) -> str | None:
        """Put all inputs back as they were for the next variant; return why the one before is wrong, or None."""
        found = [each.restore() for each in (self.fresh, *self._others)]
        return next((wrong for wrong in found if wrong), None)


def how_many_inputs(workload: Workload, device: torch.device) -> int:
    """Return how many sets of inputs exceed twice the cache; two on a CPU, whose calls outlast any refill."""
    if device.type == "cpu":
        return 2
    return max(2, -(-2 * last_level_cache_bytes(device) // workload.min_bytes) + 1)


def shape_of(workload: Workload, device: torch.device, process: int) -> Shape:
    """Return a workload with the inputs of one process."""
    seed = process * SEEDS_PER_PROCESS
    count = how_many_inputs(workload, device)
    inputs = [make(workload, "normal", seed + i, device) for i in range(count)]
    case = _timed_case(workload, inputs[-1], device)
    inputs[-1] = case.inputs
    shape = Shape(workload, inputs, case, seed)
    if not process:
        shape.harder = Case.of(make(workload, "flux", seed, device), causal=workload.causal)
    return shape


def _timed_case(workload: Workload, inputs: Inputs, device: torch.device) -> Case:
    """Return these inputs with their reference; on a CPU, which takes seconds for it, the first process's."""
    kept = Path(f"case-{workload.name}.pt")
    if device.type == "cpu" and kept.is_file():
        return Case.load(kept)
    case = Case.of(inputs, causal=workload.causal)
    if device.type == "cpu":
        case.save(kept)
    return case


class Turn:
    """What a process measures of one variant at the workloads where it was found right.

    `calls` and `reference` hold callables by workload; for the reference itself the two are the same. `anchor` is its
    turn before this one, None for itself: a call of microseconds is far shorter on repeated inputs for that as well.
    """

    def __init__(
        self,
        name: str,
        variant: Variant,
        calls: Mapping[str, Call],
        reference: tuple[str, Mapping[str, Call]],
        shapes: Mapping[str, Shape],
        sentinel: Sentinel | None,
        stopwatch: Stopwatch,
        plan: Plan,
        order: random.Random,
        anchor: Turn | None = None,
    ) -> None:
        self.name = name
        self.variant = variant
        self.calls = dict(calls)
        self.reference, self.reference_calls = reference
        self.shapes = shapes
        self.sentinel = sentinel
        self.stopwatch = stopwatch
        self.plan = plan
        self.order = order
        self.anchor = anchor
        self.wrong: dict[str, tuple[Status, str]] = {}  # by workload: what disqualifies it
        self._outputs: list[tuple[str, torch.Tensor, Change]] = []
        self._call_s: dict[str, float] = {}
        self._launch_s = 0.0  # of the host, for a call at each workload
        self._new_ms: dict[str, float] = {}
        self._reference_new_ms: dict[str, float] = {}
        self._repeated_ms: dict[str, float] = {}
        self._repeated_over_new: dict[str, float] = {}  # side by side

    def burst(self) -> dict[str, Any]:
        """Take burst samples beside the reference and the sentinel; `fluxbench.samples.Turn` says what is returned."""
        # The first key is also called untimed in each round, on contents that are then not new to it: the reference's.
        calls: dict[Key, Call] = {(self.reference, name): self.reference_calls[name] for name in self.calls}
        calls |= {(self.name, workload): call for workload, call in self.calls.items()}
        fresh = {workload: self.shapes[workload].fresh for workload in self.calls}
        if self.sentinel:
            fixed = self.sentinel.call
            calls[SENTINEL, _NOTHING] = lambda _: fixed()
        longest = max(self.calls, key=lambda workload: self.shapes[workload].workload.seq_len)
        taken = burst(self.stopwatch, calls, self.plan.rounds(self._warm_s(longest)), fresh, self.order, self.plan)
        samples = dict(taken.samples_ms)
        if self.sentinel and not self.sentinel.is_right(taken.outputs[SENTINEL, _NOTHING][0]):
            del samples[SENTINEL, _NOTHING]
        for (name, workload), (out, change) in taken.outputs.items():
            if name == self.name and change:
                self._outputs.append((workload, out, change))
        self._launch_s = sum(taken.launch_ms[self.name, workload] for workload in self.calls) / 1e3
        self._call_s = {workload: statistics.median(samples[self.name, workload]) / 1e3 for workload in self.calls}
        self._new_ms = {workload: min(samples[self.name, workload]) for workload in self.calls}
        self._reference_new_ms = {workload: min(samples[self.reference, workload]) for workload in self.calls}
        return {
            "samples_ms": {workload: samples[self.name, workload] for workload in self.calls},
            "reference_ms": {workload: samples[self.reference, workload] for workload in self.calls},
            "sentinel_ms": samples.get((SENTINEL, _NOTHING), []),
            "launch_ms": {workload: taken.launch_ms[self.name, workload] for workload in self.calls},
            "places": {workload: taken.places[self.name, workload] for workload in self.calls},
            "times": taken.times,
        }

    def sustain(self) -> dict[str, Any]:
        """Take a block, and an output of a call on new contents after it."""
        rotation = {workload: self.shapes[workload].rotation for workload in self.calls}
        most_s = REFERENCE_S if self.name == self.reference and not self.stopwatch.on_cpu else None
        self._call_s = self._call_s or {workload: self._warm_s(workload) for workload in self.calls}
        before = {workload: self.shapes[workload].fresh.changed for workload in self.calls}
        outputs: dict[str, torch.Tensor] = {}
        block = sustain(self.stopwatch, self.calls, self._call_s, rotation, self.plan, most_s, outputs)
        self._outputs += [(workload, out, before[workload]) for workload, out in outputs.items()]
        for workload, call in self.calls.items():
            fresh = self.shapes[workload].fresh
            fresh.change()
            self._outputs.append((workload, call(fresh.inputs).clone(), fresh.changed))
        self._repeated_ms = {
            workload: statistics.median(found[block.lead :]) for workload, found in block.samples_ms.items()
        }
        return vars(block)

    def repeat(self) -> dict[str, float]:
        """Return, by workload, a call on repeated inputs over one on new ones, side by side.

        Nothing on a CPU, whose calls are long.
        """
        if not self.stopwatch.on_cpu:
            fresh = {workload: self.shapes[workload].fresh for workload in self.calls}
            rotation = {workload: self.shapes[workload].rotation for workload in self.calls}
            self._repeated_over_new = repeated_over_new(self.stopwatch, self.calls, fresh, rotation, self._launch_s)
        return self._repeated_over_new

    def clocks(self) -> dict[str, KernelTimes]:
        """Return what the profiler says that its kernels take, by workload; nothing on a CPU."""
        if self.stopwatch.on_cpu:
            return {}
        calls = {
            workload: functools.partial(call, self.shapes[workload].fresh.inputs)
            for workload, call in self.calls.items()
        }
        return kernel_times(calls, self.stopwatch.clear_cache, functools.partial(part_of, self.variant))

    def check(self) -> None:
        """Judge the kept outputs of timed calls, the inputs, and whether all work was done; put the inputs back."""
        timed = "right when checked, wrong when timed"
        for workload, out, change in self._outputs:
            if wrong := self.shapes[workload].judge(out, change, self.variant):
                self.wrong.setdefault(workload, (Status.INCORRECT, f"{timed}: {wrong}"))
        self._outputs = []
        for workload in self.calls:
            if wrong := self.shapes[workload].restore():
                self.wrong.setdefault(workload, (Status.INCORRECT, f"{timed}: {wrong}"))
            if skips := self._skips(workload):
                self.wrong.setdefault(workload, (Status.ERROR, f"skips work on inputs that it has seen: {skips}"))

    def _skips(self, workload: str) -> str | None:
        """Say by how much calls on repeated inputs are shorter than calls on new ones, where that is too much."""
        side_by_side = self._repeated_over_new.get(workload, 1.0)
        if side_by_side < REPEATED_FROM:
            return f"a call on repeated inputs takes {side_by_side:.0%} of one on new inputs"
        new_ms, repeated_ms = self._new_ms.get(workload), self._repeated_ms.get(workload)
        if not (self.anchor and new_ms and repeated_ms) or (self.stopwatch.on_cpu and new_ms < CPU_FROM_MS):
            return None
        reference_ms = self.anchor._repeated_ms.get(workload)
        usual = min(1.0, reference_ms / self._reference_new_ms[workload]) if reference_ms else 1.0
        if repeated_ms < SKIPS_BELOW * usual * new_ms:
            return f"{repeated_ms:.4g} ms a call on repeated inputs, {new_ms:.4g} ms on new ones"
        return None

    def _warm_s(self, workload: str) -> float:
        """Return how long a warm call takes."""
        self.stopwatch.wait()
        self.stopwatch.hold(0.0, 5)
        self.stopwatch.mark()
        self.calls[workload](self.shapes[workload].rotation[0])
        self.stopwatch.mark()
        return self.stopwatch.between_ms()[0] / 1e3


def slept_s() -> float:
    """Return how long the machine has slept since it was started, in seconds; 0 where the system does not say."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
