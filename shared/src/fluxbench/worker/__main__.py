"""Check and time variants in one fresh process of the measured environment, and write down what was seen.

Started by `fluxbench.bench`, or by hand: `PYTHONPATH=shared/src python -m fluxbench.worker request.json events.jsonl`.
It writes one JSON object a line and flushes each, so that whoever started it knows what was under way if it dies:

    {"event": "ready", "versions": {...}}
    {"event": "sentinel", "description": ...}                             or "reason": why there is none
    {"event": "begin", "variant": ..., "workload": ...}                   before anything that could take it down
    {"event": "checked", "variant": ..., "workload": ..., "correctness": {...}, "kernels": [...], ...}
    {"event": "failed", "variant": ..., "workload": ..., "status": ..., "reason": ..., "correctness": ...}
    {"event": "turn", "variant": ...}                                     before it is timed
    {"event": "timed", "variant": ..., "reference": ..., "burst": {...}, "block": {...}, "clocks": {...}, ...}
    {"event": "probing"}                                                  all is measured; what dies now costs nothing
    {"event": "probed", "variant": ..., "found": {...}}                   what `capabilities.probe` says of it
    {"event": "done"}

"timed" holds what `regimes.Turn` returns, by workload; of the reference there are several turns beside several
variants, the later ones without `burst`. `began`, `ended` and all times are readings of the system's monotonic clock,
in seconds; `slept_s` is how long the machine slept between the two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib.metadata
import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from fluxbench import variants
from fluxbench.correctness import capabilities
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import Correctness, Status
from fluxbench.timing import control_kernel as sentinel
from fluxbench.timing.device_rates import measure_ceilings
from fluxbench.timing.regimes import Call, Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Form
from fluxbench.worker.checking import Checked, check
from fluxbench.worker.failures import classify, first_sentence, unusable
from fluxbench.worker.request import Request
from fluxbench.worker.trial import Shape, Turn, shape_of, slept_s

REFERENCE_EVERY = 5  # variants between two turns of the reference


class Worker:
    """The state of one process: its device, its stopwatch and its event file."""

    def __init__(self, request: Request, events: TextIO) -> None:
        self.request = request
        self.events = events
        self.device = torch.device(request.device)
        self.plan = Plan.on(self.device)
        self.sentinel: sentinel.Sentinel | None = None
        self.ready: set[str] = set()  # variants that were right at some workload

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event and flush it."""
        self.events.write(json.dumps({"event": event, **fields}) + "\n")
        self.events.flush()

    def run(self) -> None:
        """Do all that the request asks for."""
        self.emit("ready", versions=versions(self.device), cpu_threads=torch.get_num_threads())
        if refused := unusable(self.device):
            status, reason = refused
            for name, workload in self._pairs():
                self.emit("failed", variant=name, workload=workload.name, status=status, reason=reason)
            self.emit("done")
            return
        stopwatch = Stopwatch(self.device, self.request.clock_mhz)
        if self.request.ceilings:
            self.emit("ceilings", **measure_ceilings(self.device, stopwatch))
        if self.request.workloads:
            self._load_sentinel()
            self._measure(stopwatch)
            self._probe()
        self.emit("done")

    def _load_sentinel(self) -> None:
        try:
            self.sentinel = sentinel.load(self.device)
            self.emit("sentinel", description=self.sentinel.description)
        except (OSError, RuntimeError) as error:  # a device without a driver API that we know
            self.emit("sentinel", reason=first_sentence(error))

    def _pairs(self) -> list[tuple[str, Workload]]:
        return [(name, workload) for workload in self.request.workloads for name in self._names()]

    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.request.references, *self.request.variants)))

    def _measure(self, stopwatch: Stopwatch) -> None:
        """Give every variant its turn, and the reference one before the first, after every few and after the last."""
        shapes = {}
        for workload in self.request.workloads:
            self.emit("begin", variant=None, workload=workload.name)
            shapes[workload.name] = shape_of(workload, self.device, self.request.process)
        order = random.Random(self.request.process)
        found = self._reference(shapes)
        if found is None:
            return
        reference, at = found
        names = [name for name in self.request.variants if name != reference]
        turned = self.request.process % max(1, len(names))
        names = names[turned:] + names[:turned]
        if self.request.process % 2:
            names.reverse()

        def turn(name: str, calls: Mapping[str, Call], anchor: Turn | None = None) -> Turn:
            variant, _ = variants.find(name)
            return Turn(
                name, variant, calls, (reference, at), shapes, self.sentinel, stopwatch, self.plan, order, anchor
            )

        anchor = turn(reference, at)
        # Its burst rounds are needed for its own record alone: those of the others hold its calls as well.
        usable = self._take(anchor, burst=reference in self.request.variants or not self.request.sustained)
        measured = since = 0
        for name in names:
            calls = self._ready(name, {workload: shapes[workload] for workload in usable})
            if calls and self._take(turn(name, calls, anchor), burst=True):
                measured += 1
                since += 1
            if since == REFERENCE_EVERY:
                self._take(anchor, burst=False)
                since = 0
            del calls
            if variants.compiles_something(name):  # else this may take seconds, where a library has loaded dynamo
                torch.compiler.reset()
        if since and measured > 1:  # beside a single one, the block before it is enough
            self._take(anchor, burst=False)

    def _probe(self) -> None:
        """Try what the variants declare to be capable of, after all was measured."""
        if not self.request.probe:
            return
        for name in self.request.variants:
            variant, form = variants.find(name)
            if self.device.type == "cpu" and variant.compiles:  # half a minute on two cores
                continue
            if form is Form.EAGER and variant.capabilities and name in self.ready:
                found = capabilities.probe(variant, self.device, lambda _: self.emit("probing"))
                self.emit("probed", variant=name, found=found)

    def _reference(self, shapes: Mapping[str, Shape]) -> tuple[str, dict[str, Call]] | None:
        """Return the first of the references that is right at every workload, or the one that is at most of them."""
        best: tuple[str, dict[str, Call]] | None = None
        for name in self.request.references:
            calls = self._ready(name, shapes)
            if calls and (best is None or len(calls) > len(best[1])):
                best = name, calls
            if len(calls) == len(shapes):
                break
        return best

    def _ready(self, name: str, shapes: Mapping[str, Shape]) -> dict[str, Call]:
        """Build and check a variant at each workload; return it where it was right."""
        calls = {}
        for workload, shape in shapes.items():
            if (name, workload) in self.request.skip:
                continue
            if call := self._check(name, shape):
                calls[workload] = call
                self.ready.add(name)
        return calls

    def _take(self, turn: Turn, *, burst: bool) -> list[str]:
        """Measure one turn and say what it gave; return the workloads at which it counts."""
        self.emit("turn", variant=turn.name)
        asleep, began = slept_s(), time.monotonic()
        taken: dict[str, Any] = {}
        broken = False
        turn.stopwatch.forget()
        gc.collect(1)
        gc.disable()  # a collection in the midst of a call would take as long as several calls
        try:
            if burst:
                taken["burst"] = turn.burst()
            if burst and not self.request.process:
                taken["clocks"] = turn.clocks()
                taken["repeated_over_new"] = turn.repeat()
            if self.request.sustained:
                taken["block"] = turn.sustain()
            ended = time.monotonic()
            turn.check()
        except Exception as error:
            if "CUDA error" in str(error):  # the context is gone, and all others with it
                raise
            traceback.print_exc()
            status, reason = classify(error)
            for workload in turn.calls:
                turn.wrong.setdefault(workload, (status, f"while it was timed: {reason}"))
            broken = True
        finally:
            gc.enable()
        if broken:  # it left the inputs as they were in the midst of it, which the next variant is checked on
            for workload in turn.calls:
                turn.shapes[workload].restore()
        for workload, (status, reason) in turn.wrong.items():
            self._fail(turn.name, turn.shapes[workload].workload, status, reason)
        left = [workload for workload in turn.calls if workload not in turn.wrong]
        if left:
            self.emit(
                "timed",
                variant=turn.name,
                reference=turn.reference,
                process=self.request.process,
                workloads=left,
                **taken,
                began=began,
                ended=ended,
                slept_s=slept_s() - asleep,
            )
        return left

    def _check(self, name: str, shape: Shape) -> Call | None:
        """Build and check a variant at one workload, say what came of it, and return it where it was right."""
        variant, form = variants.find(name)
        workload = shape.workload
        self.emit("begin", variant=name, workload=workload.name)
        try:
            found = check(variant, form, self.device, [case for case in (shape.case, shape.harder) if case])
            if isinstance(found, Checked):
                self.emit("checked", variant=name, workload=workload.name, **found.seen)
                return found.call
            self._fail(name, workload, found.status, found.reason, found.errors)
            return None
        except Exception as error:  # noqa: BLE001 - the one place that turns a failure into a record
            traceback.print_exc()
            status, reason = classify(error)
            self._fail(name, workload, status, reason)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _fail(
        self, name: str, workload: Workload, status: Status, reason: str, errors: Correctness | None = None
    ) -> None:
        correctness = dataclasses.asdict(errors) if errors else None
        self.emit("failed", variant=name, workload=workload.name, status=status, reason=reason, correctness=correctness)


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions of everything that takes part in a measurement here."""
    found = {"python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__}
    packages = {package for variant in variants.REGISTRY for package in variant.packages} - {"torch"}
    for package in sorted(packages | {"triton"}):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if device.type == "cuda" and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def _die_with(parent: int) -> None:
    """End this process once its parent is gone, so that nothing is left on the device."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def standby(names: Sequence[str]) -> list[str]:
    """Import what takes seconds, then wait for a line with the paths of request and events; they end the process.

    So the processes of a cell start together, and only one at a time runs anything on the device. What some of `names`
    cannot import is said when it is their turn.
    """
    import torch.profiler

    if any(variants.compiles_something(name) for name in names):
        import torch._inductor.compile_fx  # noqa: F401
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            variants.find(name)[0].load()
    line = sys.stdin.readline()
    if not line:  # whoever started it needs it no more
        sys.exit(0)
    found: list[str] = json.loads(line)
    return found


def main(request_path: str, events_path: str) -> int:
    """Carry out the request of one file and append events to the other; `-` and names of variants: see `standby`."""
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    if request_path == "-":
        request_path, events_path = standby(events_path.split(",") if events_path else ())
    request = Request.from_json(Path(request_path).read_text(encoding="utf-8"))
    with Path(events_path).open("a", encoding="utf-8") as events, torch.inference_mode():
        Worker(request, events).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
