"""One variant through both regimes in one process, beside the reference and the control kernel: its trial.

Nothing is gained by returning an earlier result, by leaving work on another stream or thread, or by computing later:
each burst call gets contents that are new at the same addresses, and rows of the outputs of all burst calls and of a
call of each sustained window are copied in the order of the stream and judged. Whether times are believed is decided by
whoever reads them (`bench.believing`).
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from fluxbench.correctness.content import Content, fresh_inputs
from fluxbench.correctness.guards import keep, restore
from fluxbench.correctness.judging import judge
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.records.status import Status
from fluxbench.timing.burst import Burst, burst
from fluxbench.timing.control_kernel import NAME as CONTROL
from fluxbench.timing.control_kernel import ControlKernel
from fluxbench.timing.interleaved import LEAST_ROUNDS, Side, interleave
from fluxbench.timing.parts import Key, parts_of
from fluxbench.timing.plan import Plan
from fluxbench.timing.repeated import repeated_over_new
from fluxbench.timing.rotation import Rotation
from fluxbench.timing.rows import Row
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Variant
from fluxbench.worker.block import LeadingCall, TrialBlock
from fluxbench.worker.failures import Wrong
from fluxbench.worker.prepared import PreparedWorkload, cheapest
from fluxbench.worker.request import LAUNCHING_FROM
from fluxbench.worker.returned import Returned
from fluxbench.worker.rows import Rows, by_memory, call_largest, take_memory, warm_s, warm_up

_NO_WORKLOAD = ""  # that of the control kernel
_DRAWN = 256  # calls of a CPU's rounds whose contents are drawn before; then they come again


class Trial:
    """What a process measures of one variant at the workloads where it was found right.

    `calls` and `reference` hold bound kernels by workload; for the reference itself the two are the same.
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
        rng: random.Random,
        replays: bool | None = None,
        known_rows: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """`replays`: whether sustained calls are CUDA graphs, as in the processes before; None: this one decides.

        `known_rows` are those of `Rows`.
        """
        self.name, self.variant = name, variant
        self.calls, self.workloads = dict(calls), workloads
        self.reference, self.reference_calls = reference
        self.control, self.stopwatch = control, stopwatch
        self.plan, self.rng, self.replays, self._known_rows = plan, rng, replays, known_rows
        self.wrong: dict[str, Wrong] = {}  # by workload
        self._rows: Rows | None = None
        self._contents = {workload: workloads[workload].contents for workload in calls}
        self.returned = Returned({name: workloads[name].case for name in calls}, rng)
        self._control_out: torch.Tensor | None = None
        self._control_seen = 0
        self._call_s: dict[str, float] = {}
        self._launch_ms: dict[str, float] = {}  # of the host, for a call
        self._reference_s: dict[str, float] = {}
        self.leading: LeadingCall | None = None  # of a trial at more workloads

    @property
    def largest(self) -> str:
        """The workload with the most operations."""
        return max(self.calls, key=lambda name: self.workloads[name].workload.cost.min_flops)

    def at(self, workloads: Collection[str]) -> Trial:
        """Return a new trial at some of the workloads, which knows how long their calls take."""
        rest = (self.reference, self.reference_calls), self.workloads, self.control, self.stopwatch, self.plan, self.rng
        calls = {name: self.calls[name] for name in workloads}
        some = Trial(self.name, self.variant, calls, *rest, self.replays, self._known_rows)
        some._call_s = {name: self._call_s[name] for name in some.calls if name in self._call_s}
        some._launch_ms = {name: self._launch_ms[name] for name in some.calls if name in self._launch_ms}
        return some

    def least(self) -> LeadingCall:
        """Return the call that needs least memory, of those of which it is known how long they take."""
        workload = by_memory(self._call_s, self.workloads)[0]
        return LeadingCall(workload, self.calls[workload], self._call_s[workload])

    def forget(self) -> None:
        """Forget rows and what calls returned, which hold memory; what is wrong stays."""
        self._rows, self._control_out = None, None
        self.returned = Returned({name: self.workloads[name].case for name in self.calls}, self.rng)

    @property
    def rows(self) -> Mapping[Key, Row | None]:
        """The rows of short calls that were made, see `Rows.found`."""
        return self._rows.found if self._rows else {}

    def make_rows(self, pause: Callable[[], None] = lambda: None) -> Rows:
        """Capture the rows of short calls, which `burst` times. Other workers may use the device meanwhile.

        `pause` is called between two rows.
        """
        reference = self.reference, self.reference_calls
        place = self.workloads, self.stopwatch, self.plan, self.rng, self._known_rows, pause
        self._rows = Rows((self.name, self.calls), reference, *place)
        return self._rows

    def burst(self, rest_s: float | None = None) -> dict[str, Any]:
        """Take burst samples beside the reference and the control kernel, as `bench.events.BurstSamples` has them.

        `rest_s`: how long the device rests before the first round, where that is not `Plan.first_rest_s`.
        """
        plan = self.plan if rest_s is None else dataclasses.replace(self.plan, first_rest_s=rest_s)
        calls: dict[Key, Bound] = {(self.reference, name): self.reference_calls[name] for name in self.calls}
        calls |= {(self.name, workload): bound for workload, bound in self.calls.items()}
        if self.control:
            fixed = self.control.call
            calls[CONTROL, _NO_WORKLOAD] = Bound(lambda _: {"out": fixed()})
        rows = self._rows or self.make_rows()
        rows.settle(self.stopwatch)
        pairs = (self.name, self.calls), (self.reference, self.reference_calls)
        if self.plan.row_s and self.plan.rounds(self.plan.row_below_s) == self.plan.max_rounds:
            rounds = self.plan.max_rounds  # of rows; what is longer tells in the first round how many it has
            call_largest(*pairs, [name for name in self.calls if name not in rows.own], self.workloads)
        else:
            # Of a row what it takes decides, and not what the host takes to launch its calls.
            largest_s = rows.replayed_s(self.largest, self.stopwatch) or warm_up(
                *pairs, self.largest, self.workloads, self.stopwatch, self.plan
            )
            rounds = self.plan.rounds(largest_s)
            if self.plan.rounds_of_longest == 1 and rounds > 1:
                take_memory(*pairs, (self.largest, largest_s), rounds, self.workloads, self.stopwatch, self.plan)
        own = {workload: (self.name, workload) for workload in self.calls}
        given = self._contents, self.rng, plan, self._keep, rows.by_key
        cheap = cheapest(self.workloads[name].workload for name in own)
        # Of many workloads one tells how long launching a call takes, which others of 1 ms or more hide.
        cheap = cheap[:1] if self.plan.row_s else cheap
        parts = parts_of(self.workloads[name].workload for name in own)
        taken = burst(self.stopwatch, calls, rounds, *given, cheap, self.name, parts)
        samples, out, self._control_out = dict(taken.samples_ms), self._control_out, None
        if self.control and not (out is not None and self.control.is_right(out)):
            del samples[CONTROL, _NO_WORKLOAD]
        for workload, row in rows.launch(self.stopwatch, self.calls).items():
            self.returned.take_in(workload, row.given)
            self.returned.watch(workload, row.given)
        self._launch_ms = {name: statistics.median(taken.launch_ms[key]) for name, key in own.items()} | rows.launch_ms
        self._call_s = {workload: statistics.median(samples[key]) / 1e3 for workload, key in own.items()}
        self._reference_s = {workload: statistics.median(samples[self.reference, workload]) / 1e3 for workload in own}
        processor = {
            "resting_ms": taken.resting_ms,
            "others_ms": {workload: taken.others_ms[key] for workload, key in own.items()},
            "call_cpu_ms": {workload: taken.call_cpu_ms[key] for workload, key in own.items()},
        }
        return {
            "samples_ms": {workload: samples[key] for workload, key in own.items()},
            "reference_ms": {workload: samples[self.reference, workload] for workload in self.calls},
            "control_ms": samples.get((CONTROL, _NO_WORKLOAD), []), "launch_ms": self._launch_ms,
            "places": {workload: taken.places[key] for workload, key in own.items()}, "times": taken.times,
            "late": {name: late for name, key in own.items() if (late := self._late(taken, key))},
            "spans": self._spans(taken, own),
            "rounds": {name: its for name, key in own.items() if len(its := taken.rounds[key]) < len(taken.times)},
            "processor": processor if self.stopwatch.on_cpu else None, **rows.fields,
        }  # fmt: skip

    def _spans(self, taken: Burst, own: Mapping[str, Key]) -> dict[str, list[tuple[float, float]]]:
        """Return when each sample and the reference's beside it were taken, where rounds have parts."""
        if all(set(taken.spans[key]) <= set(taken.times) for key in own.values()):
            return {}
        both = {name: (taken.spans[key], taken.spans[self.reference, name]) for name, key in own.items()}
        return {
            name: [(min(one[0], other[0]), max(one[1], other[1])) for one, other in zip(*spans, strict=True)]
            for name, spans in both.items()
        }

    def _late(self, taken: Burst, key: Key) -> list[int]:
        """Return the samples in whose round the host was late with this call or with the reference beside it."""
        return sorted({*taken.late[key], *taken.late[self.reference, key[1]]})

    def sustain(self) -> dict[str, Any]:
        """Take a block, or a CPU's rounds (`bench.events.BlockSamples`), and a whole output of a call after it."""
        if self.stopwatch.on_cpu:
            return self._interleave()
        block = self.block()
        block.prepare()
        block.take()
        return block.finish()

    def block(self) -> TrialBlock:
        """Return the sustained block of a GPU, which is still to be taken; where no call was timed one is now."""
        self.time_calls()
        return TrialBlock(
            self.calls, self.workloads, self.returned, self.stopwatch, self.plan, self.rng,
            self._call_s, self.replays, self.leading or self.least(),
        )  # fmt: skip

    def _interleave(self) -> dict[str, Any]:
        """Take rounds in which calls alternate with the reference's; of a random one of them a whole output is judged.

        The reference gets contents in slots of its own, and is judged in its own trial.
        """
        self.time_calls()
        own = {
            workload: Rotation(
                bound, self._contents[workload], self.workloads[workload].case, _DRAWN, self.rng,
                whole=self.rng.randrange(LEAST_ROUNDS),
            )
            for workload, bound in self.calls.items()
        }  # fmt: skip
        sides = [Side(calls={workload: bound.call for workload, bound in self.calls.items()}, given=own)]
        call_s = dict(self._call_s)
        if self.name != self.reference:
            bounds = {workload: self.reference_calls[workload] for workload in self.calls}
            known = {name: (self._contents[name].apart, self.workloads[name].case) for name in bounds}
            beside = {name: Rotation(bound, *known[name], _DRAWN, self.rng) for name, bound in bounds.items()}
            sides.append(Side(calls={name: bound.call for name, bound in bounds.items()}, given=beside))
            call_s = {name: max(seconds, self._reference_s.get(name, 0.0)) for name, seconds in call_s.items()}
        block = interleave(self.stopwatch, sides, call_s, self.plan, self.rng)
        for workload, given in own.items():
            self.returned.take_in(workload, given)
            self.returned.watch(workload, given)
        return vars(block)

    def time_calls(self, some: Collection[str] | None = None) -> None:
        """Time a call at each workload, or at some, where none was timed in burst."""
        names = self.calls if some is None else some
        self._call_s = self._call_s or {
            name: warm_s(self.calls[name], self.workloads[name], self.stopwatch) for name in names
        }

    def repeat(self) -> dict[str, float]:
        """Return, by workload, a call on repeated inputs over one on new ones; none of a CPU or of mere launching."""
        if self.stopwatch.on_cpu:
            return {}

        def fresh(workload: str) -> Tensors:
            return fresh_inputs(self.workloads[workload].workload, self.stopwatch.device)

        of_launching = [name for name, ms in self._launch_ms.items() if ms > LAUNCHING_FROM * 1e3 * self._call_s[name]]
        calls = {name: bound for name, bound in self.calls.items() if not (bound.idle and name in of_launching)}
        launch_s = {name: self._launch_ms[name] / 1e3 for name in calls}
        return repeated_over_new(self.stopwatch, calls, self._contents, fresh, launch_s, self.rng)

    def check(self) -> None:
        """Judge what timed calls returned, and whether the kernel left its inputs as they were.

        Then also a call on each other kind of inputs at a random workload: timed ones get the first kind alone.
        """
        self.returned.see_changes()
        wrong = self.returned.wrong(self.variant.quantized_budget_rel_l2, self.variant.precision_class)
        for workload, why in {**self._on_other_kinds(), **wrong}.items():
            reason = f"right when checked, wrong when timed: {why}"
            self.wrong.setdefault(workload, Wrong(Status.INCORRECT, reason))
        self.returned.clear()

    def _on_other_kinds(self) -> dict[str, str]:
        """Return why a kernel is wrong, at one random workload that has other kinds of inputs, or nothing."""
        known = [name for name in self.calls if self.workloads[name].other_kinds]
        if not known:
            return {}
        workload = self.rng.choice(known)
        for kind, case in self.workloads[workload].other_kinds.items():
            if self.variant.gated_kinds([kind]):
                kept = keep(case.inputs)
                out = self.calls[workload](case.inputs)
                wrong = judge(out, case, self.variant.quantized_budget_rel_l2, self.variant.precision_class)[1]
                if why := wrong or restore(case.inputs, kept):
                    return {workload: f"on {kind} inputs: {why}"}
        return {}

    def _keep(self, key: Key, outputs: Mapping[str, object], content: Content | None) -> None:
        """Keep rows of each output of the variant, and of a random round a whole one; likewise the control kernel's."""
        name, workload = key
        if name == self.name and self._rows and (row := self._rows.own.get(workload)):
            row.given.keep(outputs)
        elif not workload:
            self._control_seen += 1
            if not self.rng.randrange(self._control_seen):
                self._control_out = outputs["out"].clone()  # type: ignore[attr-defined]
        elif name == self.name and content:
            self.returned.keep(workload, outputs, content)
