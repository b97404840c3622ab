"""One variant through both regimes in one process, beside the reference and the control kernel: its trial.

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
from typing import Any

from fluxbench import operations
from fluxbench.operations.protocol import Bound
from fluxbench.records.status import FlagKind, Status
from fluxbench.timing.burst import Kept, Key, burst, copies, repeated_over_new
from fluxbench.timing.control_kernel import NAME as CONTROL
from fluxbench.timing.control_kernel import ControlKernel
from fluxbench.timing.plan import Plan
from fluxbench.timing.profiler import KernelTimes, kernel_times
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import sustain
from fluxbench.variants._base import Variant, part_of
from fluxbench.worker.prepared import PreparedWorkload

# A call on repeated inputs over one on new ones, under which the kernel kept something. Side by side, on a GPU, the two
# are of one length; between the regimes clocks and noise differ, so there it is a share of what the reference's are.
_REPEATED_FROM = 0.95
_SKIPS_BELOW = 0.25
_CPU_FROM_MS = 5.0  # a shorter call on a CPU tells nothing by it: other programs take whole milliseconds from it
_REFERENCE_S = 0.6  # of a block of the reference, of which there are several beside several variants
_NO_WORKLOAD = ""  # that of the control kernel


class Wrong:
    """What disqualifies a variant at a workload: a status, a reason, and its flag where it has one."""

    def __init__(self, status: Status, reason: str, flag: FlagKind | None = None, value: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.flag = {"kind": flag, "value": value} if flag else None


class Trial:
    """What a process measures of one variant at the workloads where it was found right.

    `calls` and `reference` hold bound kernels by workload; for the reference itself the two are the same. `anchor` is
    its trial before this one, None for itself: a call of microseconds is far shorter on repeated inputs for that too.
    """

    def __init__(
        self,
        name: str,
        variant: Variant,
        calls: Mapping[str, Bound],
        reference: tuple[str, Mapping[str, Bound]],
        workloads: Mapping[str, PreparedWorkload],
        control: ControlKernel | None,
        stopwatch: Stopwatch,
        plan: Plan,
        order: random.Random,
        anchor: Trial | None = None,
    ) -> None:
        self.name = name
        self.variant = variant
        self.calls = dict(calls)
        self.reference, self.reference_calls = reference
        self.workloads = workloads
        self.control = control
        self.stopwatch = stopwatch
        self.plan = plan
        self.order = order
        self.anchor = anchor
        self.wrong: dict[str, Wrong] = {}  # by workload
        self._outputs: list[tuple[str, Kept]] = []
        self._call_s: dict[str, float] = {}
        self._launch_s = 0.0  # of the host, for a call at each workload
        self._new_ms: dict[str, float] = {}
        self._reference_new_ms: dict[str, float] = {}
        self._repeated_ms: dict[str, float] = {}
        self._repeated_over_new: dict[str, float] = {}  # side by side

    def burst(self) -> dict[str, Any]:
        """Take burst samples beside the reference and the control kernel, as `bench.events.BurstSamples` has them."""
        # The first key is also called untimed in each round, on contents that are then not new to it: the reference's.
        calls: dict[Key, Bound] = {(self.reference, name): self.reference_calls[name] for name in self.calls}
        calls |= {(self.name, workload): bound for workload, bound in self.calls.items()}
        perturbed = {workload: self.workloads[workload].perturbed for workload in self.calls}
        if self.control:
            fixed = self.control.call
            calls[CONTROL, _NO_WORKLOAD] = Bound(lambda _: {"out": fixed()})
        longest = max(self.calls, key=lambda name: self.workloads[name].workload.cost.min_flops)
        taken = burst(self.stopwatch, calls, self.plan.rounds(self._warm_s(longest)), perturbed, self.order, self.plan)
        samples = dict(taken.samples_ms)
        if self.control and not self.control.is_right(taken.outputs[CONTROL, _NO_WORKLOAD].outputs["out"]):
            del samples[CONTROL, _NO_WORKLOAD]
        self._outputs += [
            (workload, kept) for (name, workload), kept in taken.outputs.items() if name == self.name and workload
        ]
        self._launch_s = sum(taken.launch_ms[self.name, workload] for workload in self.calls) / 1e3
        self._call_s = {workload: statistics.median(samples[self.name, workload]) / 1e3 for workload in self.calls}
        self._new_ms = {workload: min(samples[self.name, workload]) for workload in self.calls}
        self._reference_new_ms = {workload: min(samples[self.reference, workload]) for workload in self.calls}
        return {
            "samples_ms": {workload: samples[self.name, workload] for workload in self.calls},
            "reference_ms": {workload: samples[self.reference, workload] for workload in self.calls},
            "control_ms": samples.get((CONTROL, _NO_WORKLOAD), []),
            "launch_ms": {workload: taken.launch_ms[self.name, workload] for workload in self.calls},
            "places": {workload: taken.places[self.name, workload] for workload in self.calls},
            "times": taken.times,
        }

    def sustain(self) -> dict[str, Any]:
        """Take a block, as `bench.events.BlockSamples` has it, and outputs of a call on new contents after it."""
        rotation = {
            workload: [bound.prepared(inputs) for inputs in self.workloads[workload].rotation]
            for workload, bound in self.calls.items()
        }
        max_s = _REFERENCE_S if self.name == self.reference and not self.stopwatch.on_cpu else None
        self._call_s = self._call_s or {workload: self._warm_s(workload) for workload in self.calls}
        expected = {workload: self.workloads[workload].perturbed.expected for workload in self.calls}
        outputs: dict[str, Mapping[str, object]] = {}
        timed = {workload: bound.call for workload, bound in self.calls.items()}
        block = sustain(self.stopwatch, timed, self._call_s, rotation, self.plan, max_s, outputs)
        self._outputs += [
            (workload, Kept(outputs=out, expected=expected[workload])) for workload, out in outputs.items()
        ]
        for workload, bound in self.calls.items():
            perturbed = self.workloads[workload].perturbed
            perturbed.perturb()
            self._outputs.append((workload, Kept(outputs=copies(bound(perturbed.inputs)), expected=perturbed.expected)))
        self._repeated_ms = {
            workload: statistics.median(found[block.warm_up :]) for workload, found in block.samples_ms.items()
        }
        return vars(block)

    def repeat(self) -> dict[str, float]:
        """Return, by workload, a call on repeated inputs over one on new ones, side by side.

        Nothing on a CPU, whose calls are long.
        """
        if not self.stopwatch.on_cpu:
            perturbed = {workload: self.workloads[workload].perturbed for workload in self.calls}
            rotation = {workload: self.workloads[workload].rotation for workload in self.calls}
            self._repeated_over_new = repeated_over_new(self.stopwatch, self.calls, perturbed, rotation, self._launch_s)
        return self._repeated_over_new

    def cupti(self) -> dict[str, KernelTimes]:
        """Return what the kernels take by the profiler, by workload; nothing on a CPU."""
        if self.stopwatch.on_cpu:
            return {}
        calls = {
            name: functools.partial(bound.call, bound.prepared(self.workloads[name].perturbed.inputs))
            for name, bound in self.calls.items()
        }
        workload = self.workloads[next(iter(calls))].workload
        operation = operations.find(workload.operation)
        asked = operation.attention(workload.shape)
        parts = functools.partial(part_of, self.variant, asked, operation.parts)
        return kernel_times(calls, self.stopwatch.clear_cache, parts)

    def check(self) -> None:
        """Judge the kept outputs of timed calls, the inputs, and whether all work was done; put the inputs back."""
        timed = "right when checked, wrong when timed"
        for workload, kept in self._outputs:
            if wrong := self.workloads[workload].judge(
                kept, self.variant.quantized_budget_rel_l2, self.variant.precision_class
            ):
                self.wrong.setdefault(workload, Wrong(Status.INCORRECT, f"{timed}: {wrong}"))
        self._outputs = []
        for workload in self.calls:
            if wrong := self.workloads[workload].restore():
                self.wrong.setdefault(workload, Wrong(Status.INCORRECT, f"{timed}: {wrong}"))
            if skips := self._skips(workload):
                self.wrong.setdefault(workload, skips)

    def _skips(self, workload: str) -> Wrong | None:
        """Return by how much calls on repeated inputs are shorter than calls on new ones, where that is too much."""
        skips = "skips work on inputs that it has seen"
        side_by_side = self._repeated_over_new.get(workload, 1.0)
        if side_by_side < _REPEATED_FROM:
            reason = f"{skips}: a call on repeated inputs takes {side_by_side:.0%} of one on new inputs"
            return Wrong(Status.ERROR, reason, FlagKind.SKIPS_WORK, side_by_side)
        new_ms, repeated_ms = self._new_ms.get(workload), self._repeated_ms.get(workload)
        if not (self.anchor and new_ms and repeated_ms) or (self.stopwatch.on_cpu and new_ms < _CPU_FROM_MS):
            return None
        reference_ms = self.anchor._repeated_ms.get(workload)
        usual = min(1.0, reference_ms / self._reference_new_ms[workload]) if reference_ms else 1.0
        if repeated_ms < _SKIPS_BELOW * usual * new_ms:
            reason = f"{skips}: {repeated_ms:.4g} ms a call on repeated inputs, {new_ms:.4g} ms on new ones"
            return Wrong(Status.ERROR, reason, FlagKind.SKIPS_WORK, repeated_ms / new_ms)
        return None

    def _warm_s(self, workload: str) -> float:
        """Return how long a warm call takes."""
        prepared = self.calls[workload].prepared(self.workloads[workload].rotation[0])
        self.stopwatch.wait()
        self.stopwatch.spin(0.0, 5)
        self.stopwatch.record()
        self.calls[workload].call(prepared)
        self.stopwatch.record()
        return self.stopwatch.between_ms()[0] / 1e3


def slept_s() -> float:
    """Return how long the machine has slept since it was started, in seconds; 0 where the system does not report it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
