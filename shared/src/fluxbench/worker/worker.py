"""Check and time variants in one fresh process of the measured environment, and write down what was seen.

It writes JSON objects (`bench.events`), each on a line that is flushed: a reader knows what it was at if it dies.

    {"event": "phase", "name": ..., "at": ...}                            what it does from then on
    {"event": "ready", "versions": {...}}
    {"event": "control_kernel", "description": ...}                       or "reason": why there is none
    {"event": "kept", "name": ..., "sha256": ...}                         a file for later processes, no kernel loaded
    {"event": "yardstick", "workload": ..., ...} or "rows"                what later processes need not find out
    {"event": "begin", "variant": ..., "workload": ...}                   before anything that could take it down
    {"event": "checked", "variant": ..., "workload": ..., "errors": {...}, "kernels": [...], ...}
    {"event": "failed", "variant": ..., "workload": ..., "status": ..., "reason": ..., "errors": {...}, ...}
    {"event": "lacked", "variant": ..., "workload": ..., "reason": ...}   memory, which it waits for to try again
    {"event": "trial", "variant": ...}                                    before it is timed
    {"event": "timed", "variant": ..., "reference": ..., "burst": {...}, "blocks": [...], ...}
    {"event": "profiling"}                                                all is timed; what dies now costs no time
    {"event": "profiled", "variant": ..., "workload": ..., "kernels": [...], "names": [...], "times": [...]}
    {"event": "probing"}                                                  what dies now costs nothing
    {"event": "probed", "variant": ..., "found": {...}}                   what `capabilities.probe` returns
    {"event": "rates", "rates": {...}}
    {"event": "done"}

A worker uses the device only while it holds the device lock: for a step that is "preparing", "checking", "measuring" or
"probing". While one measures no other worker has it. It gives it back between two steps and while it compiles.

"timed" holds what `Trial` returns, by workload. All times are readings of the system's monotonic clock, in seconds.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from fluxbench import operations, variants
from fluxbench.core.errors import first_sentence
from fluxbench.correctness.case import class_of_yardstick
from fluxbench.correctness.content import unforeseen
from fluxbench.correctness.judging import Errors
from fluxbench.operations import held
from fluxbench.operations.protocol import Bound
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing import control_kernel
from fluxbench.timing.device_rates import measure_rates
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.worker import needs, plans
from fluxbench.worker.checking import Checked, Failed, check, make
from fluxbench.worker.compiling import forget_compiled
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong, unusable, wrong_of
from fluxbench.worker.first_compile import FirstCompile
from fluxbench.worker.later import ForLater
from fluxbench.worker.prepared import PreparedWorkload, fills_memory, prepare, release
from fluxbench.worker.probing import probe
from fluxbench.worker.profiling import Profiling
from fluxbench.worker.ragged import ragged_shape
from fluxbench.worker.references import Clocks, groups
from fluxbench.worker.request import Request
from fluxbench.worker.state import ProcessState
from fluxbench.worker.succession import Succession, may_follow_others
from fluxbench.worker.taking import Taker
from fluxbench.worker.trial import Trial
from fluxbench.worker.versions import versions


class Worker:
    """The state of one process: its device, its stopwatch and its event file."""

    def __init__(self, request: Request, events: TextIO, changed: Mapping[str, str] | None = None) -> None:
        """`changed`: by variant, what it changed of the process when it was loaded early."""
        self.request = request
        self.events = events
        self.device = torch.device(request.device)
        of = request.effort
        kind = {"grid": of.grid, "large": of.one_reference, "long": of.long, "replayed": of.replayed}
        self.plan = Plan.on(self.device, **kind, alone=not request.sustained)
        self.control: control_kernel.ControlKernel | None = None
        self.changed = dict(changed or {})
        self.right: set[str] = set()  # variants that were right at some workload
        self.use = DeviceUse(request, self.device, self.emit)
        self.for_later = ForLater(request, self.device, self.emit)
        self.profiling = Profiling(request, self.device, self.use, self.emit, self._fail)
        told = self._fail, self.for_later.say_rows, self.profiling.was_timed
        self.taker = Taker(request, self.device, self.use, self.emit, *told)
        self.succession = Succession(self.taker, request, self.device, self.use, self.emit)
        self.versions: dict[str, str] = {}
        self.clocks = Clocks()
        self.ragged: set[tuple[str, str]] = set()  # and at which ragged shape: that of all lengths is one

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event and flush it."""
        self.events.write(json.dumps({"event": event, **fields}) + "\n")
        self.events.flush()

    def run(self) -> None:
        """Do all that the request asks for."""
        self.versions = versions(self.device)
        self.emit("ready", versions=self.versions)
        with self.use.step("preparing", short=True):
            refused = unusable(self.device)
            self.use.hold_context()
        if refused:
            asked = dict.fromkeys((*self.request.references, *self.request.variants))
            for workload, name in itertools.product(self.request.workloads, asked):
                self._fail(name, workload.name, Wrong(*refused))
            self.emit("done")
            return
        if self.request.rates:
            with self.use.step("measuring", short=False), torch.inference_mode():
                stopwatch = Stopwatch(self.device, self.request.clock_mhz)
                self.emit("rates", rates=measure_rates(self.device, stopwatch))
        if self.request.workloads:
            operation = operations.find(self.request.workloads[0].operation)
            with torch.inference_mode(not operation.differentiates), torch.set_grad_enabled(False):
                self._measure()
                self.profiling.run(lambda: Stopwatch(self.device, self.request.clock_mhz), self.plan.first_rest_s)
            if self.request.probe:
                probe(self.request, self.right, self.device, self.use, self.emit)
            if held.exist():  # before the system lets others use the device
                held.release()
                release()
        self.emit("done")

    def _measure(self) -> None:
        """Measure at the workloads that are held at once, then at the next ones."""
        with self.use.step("preparing", short=True):
            stopwatch = Stopwatch(self.device, self.request.clock_mhz)
            try:
                self.control = control_kernel.load(self.device)
                self.emit("control_kernel", description=self.control.description)
            except (OSError, RuntimeError) as error:  # a device without a driver API that we know
                self.emit("control_kernel", reason=first_sentence(error))
        done = set(self.request.done)
        for part in self.request.held_together:
            if any((name, workload.name) not in done for name in self.request.variants for workload in part):
                self._measure_at(part, stopwatch)
                held.release()  # the next part has caches of its own size
                release(keeps=self.request.effort.one_reference)
                gc.freeze()  # what is left is not of this part: else a collection looks at all of it

    def _measure_at(self, part: Sequence[Workload], stopwatch: Stopwatch) -> None:
        """Prepare workloads, and measure those that one reference can be timed at together."""

        def begin(workload: Workload) -> None:
            self.use.pause()
            self._begin(workload)

        def fail(workload: Workload, wrong: Wrong) -> None:
            for name in self.request.variants:
                self._fail(name, workload.name, wrong)

        self.use.take_memory()
        if self.request.effort.one_reference:
            full = self.request.is_full if self.request.is_thorough else lambda workload: False
            self.use.reserve(needs.of_process(part, self.request.variants, full))
        with self.use.step("preparing", short=True, keeps=self.device.type == "cuda" and any(map(fills_memory, part))):
            workloads = prepare(part, self.request, self.device, self.plan, self.for_later.kept, begin, fail)
        right = lambda name, some: self._right_calls(name, {one: workloads[one] for one in some}, True)  # noqa: E731
        for reference, calls in groups(self.request.references, self.request.variants, workloads, right, self.clocks):
            self._measure_beside((reference, calls), {name: workloads[name] for name in calls}, stopwatch)

    def _measure_beside(
        self, beside: tuple[str, dict[str, Bound]], workloads: Mapping[str, PreparedWorkload], stopwatch: Stopwatch
    ) -> None:
        """Give every variant its trial at a reference's workloads, and the reference one before the first."""
        reference, usable = beside[0], list(beside[1])

        def trial(name: str, calls: Mapping[str, Bound]) -> Trial:
            return Trial(
                name, variants.find(name).variant, calls, beside, workloads, self.control, stopwatch, self.plan,
                unforeseen(), self.request.replays_at(name, calls), self.request.rows,
            )  # fmt: skip

        names, on_cpu = self.request.after(reference), stopwatch.on_cpu
        follows = self.request.in_succession and not on_cpu
        together = [name for name in names if follows and may_follow_others(variants.find(name))]
        right = lambda name: self._right_calls(name, self._left(name, workloads))  # noqa: E731
        taken = self.succession.take(beside, together, right, trial)
        names = [name for name in names if taken.usable is None or name in taken.lacking or name not in together]
        forget_compiled(together if names else ())
        if taken.usable is not None:
            usable = taken.usable
        else:
            # Its burst rounds are for its own record alone: those of the others hold its calls as well.
            # On a CPU the others' processor time is compared with its, and it is sustained in the others' rounds.
            own = reference in self.request.variants
            sustained = self.request.sustained and (own or not on_cpu)
            if own or on_cpu or sustained:
                usable = self.taker.take(trial(*beside), burst=own or not sustained, sustained=sustained)
        to_check = workloads if self.request.is_thorough else usable  # a later process may have another reference
        for name in names:
            calls = self._right_calls(name, self._left(name, {one: workloads[one] for one in to_check}))
            calls = {workload: bound for workload, bound in calls.items() if workload in usable}
            if calls:
                self.taker.take(trial(name, calls), burst=True, sustained=self.request.sustained)
            del calls
            if not self.request.effort.grid:  # else for all shapes of the process
                forget_compiled([name])

    def _left(self, name: str, workloads: Mapping[str, PreparedWorkload]) -> dict[str, PreparedWorkload]:
        """Return the workloads at which this process has not timed a variant before it died."""
        return {one: prepared for one, prepared in workloads.items() if (name, one) not in self.request.done}

    def _right_calls(
        self, name: str, workloads: Mapping[str, PreparedWorkload], is_reference: bool = False
    ) -> dict[str, Bound]:
        """Build a variant at each workload where it has not failed, here or in an earlier process.

        Return its calls where it is right, so far.
        """
        skip = set(self.request.skip) - set(self.request.clocks if is_reference else ())
        left = [prepared for workload, prepared in workloads.items() if (name, workload) not in skip]
        if self.request.judges(name):
            found = {prepared.workload.name: self._check(name, prepared) for prepared in left}
        else:
            found = self._made(name, left) if left else {}
            wrong = [workload for workload in found if (name, workload) in self.request.skip]
            self.clocks.calls |= {(name, workload): bound for workload in wrong if (bound := found.pop(workload))}
        calls = {workload: bound for workload, bound in found.items() if bound}
        self.right.update([name] if calls else [])
        return calls

    def _made(self, name: str, some: Sequence[PreparedWorkload]) -> dict[str, Bound | None]:
        """Build a variant at some workloads, and call it once at each, in one step; what it returns is not judged."""
        found, waits = {}, self.device.type == "cuda" and any(each == name for each, _ in self.request.skip)
        with self.use.step("checking", short=True, compiles=True):
            for prepared in some:
                self.use.pause()
                self._begin(prepared.workload, name)
                found[prepared.workload.name] = self._check_now(name, prepared)
                if waits:  # it has failed before: to tell which call does
                    torch.cuda.synchronize(self.device)
        return found

    def _begin(self, workload: Workload, name: str | None = None) -> None:
        self.emit("begin", variant=name, workload=workload.name)

    def _check(self, name: str, prepared: PreparedWorkload) -> Bound | None:
        """Build and check a variant at one workload, write what came of it, and return it where it was right."""
        self._begin(prepared.workload, name)
        with self.use.step("checking", short=True, compiles=True):
            bound = self._check_now(name, prepared)
        self.for_later.say_yardsticks(prepared)
        return bound

    def _check_now(self, name: str, prepared: PreparedWorkload) -> Bound | None:
        workload = prepared.workload
        if self.request.effort.plans:
            plans.make(name, workload, self.device)
        state, first, formed = ProcessState(self.device), None, variants.find(name)
        try:
            ragged = name, f"{workload.operation} {ragged_shape(workload.shape)}"
            thorough = self.request.is_thorough and name in self.request.variants  # no record of it has more
            found: Checked | Failed | Bound
            if self.request.judges(name):
                if self.request.compiled and not self.request.process and (formed.compiles or formed.variant.jit):
                    first = FirstCompile(Path(self.request.compiled), name, workload, self.versions)
                how = thorough and self.request.is_full(workload.name), self.use.waited_s, ragged not in self.ragged
                memory = thorough and self.request.measures_memory
                found = check(formed, workload, self.device, prepared.cases, *how, memory)
            else:
                # Its timed calls would find it out while others wait.
                prepared.case.yardstick(class_of_yardstick(formed.variant.precision_class))
                found = make(formed, workload, prepared.contents.inputs)
            if changed := state.restore() or self.changed.get(name):
                self._fail(name, workload.name, Wrong(Status.ERROR, changed))
                return None
            if isinstance(found, Bound):
                return found
            if isinstance(found, Checked):
                self.ragged.update([ragged] if how[0] else [])
                seen = found.seen | ({"compile_s": first.seconds(found.seen["compile_s"])} if first else {})
                self.emit("checked", variant=name, workload=workload.name, thorough=thorough, **seen)
                return found.bound
            if name in self.request.references:
                self.clocks.calls[name, workload.name] = found.bound
            self._fail(name, workload.name, Wrong(Status.INCORRECT, found.reason), found.errors)
            return None
        except Exception as error:  # noqa: BLE001 - the one place that turns a failure into a record
            traceback.print_exc()
            state.restore()
            self._fail(name, workload.name, wrong_of(error))
        release()
        return None

    def _fail(self, name: str, workload: str, wrong: Wrong, errors: Mapping[str, Errors] | None = None) -> None:
        self.emit(
            "failed", variant=name, workload=workload, status=wrong.status, reason=wrong.reason,
            errors={output: dataclasses.asdict(each) for output, each in (errors or {}).items()},
            shortage=wrong.shortage and dataclasses.asdict(wrong.shortage), of_inputs=wrong.of_inputs,
        )  # fmt: skip
