"""Check and time variants in one fresh process of the measured environment, and write down what was seen.

Started by `fluxbench.bench`, or by hand: `PYTHONPATH=shared/src python -m fluxbench.worker request.json events.jsonl`.
It writes one JSON object a line and flushes each, so that whoever started it knows what was under way if it dies:

    {"event": "ready", "versions": {...}}
    {"event": "sentinel", "description": ...}                             or "reason": why there is none
    {"event": "begin", "variant": ..., "workload": ...}                   before anything that could take it down
    {"event": "checked", "variant": ..., "workload": ..., "correctness": {...}, "kernels": [...], ...}
    {"event": "failed", "variant": ..., "workload": ..., "status": ..., "reason": ..., "correctness": ...}
    {"event": "timed", "workload": ..., "reference": ..., "samples_ms": {name: [...]}, "began": ..., "ended": ...}
    {"event": "done"}

`began` and `ended` are readings of the system's monotonic clock, in seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import os
import random
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from fluxbench import sentinel, variants
from fluxbench.ceilings import measure_ceilings
from fluxbench.correctness import Case, judge, poison, restore
from fluxbench.inputs import Inputs, make
from fluxbench.profiling import compile_counters, peak_memory_of, profile_call
from fluxbench.records import Correctness, Status
from fluxbench.requests import Request
from fluxbench.timing import Plan, Stopwatch, interleave, settle
from fluxbench.variants._base import Form, Variant, build
from fluxbench.workloads import Workload

SEEDS_PER_PROCESS = 100


class Worker:
    """The state of one process: its device, its stopwatch and its event file."""

    def __init__(self, request: Request, events: TextIO) -> None:
        self.request = request
        self.events = events
        self.device = torch.device(request.device)
        self.plan = Plan.on(self.device)
        self.sentinel: sentinel.Sentinel | None = None

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event and flush it."""
        self.events.write(json.dumps({"event": event, **fields}) + "\n")
        self.events.flush()

    def run(self) -> None:
        """Do all that the request asks for."""
        self.emit("ready", versions=versions(self.device), cpu_threads=torch.get_num_threads())
        if unusable := _unusable(self.device):
            status, reason = unusable
            for name, workload in self._pairs():
                self.emit("failed", variant=name, workload=workload.name, status=status, reason=reason)
            self.emit("done")
            return
        stopwatch = Stopwatch(self.device)
        if self.request.ceilings:
            self.emit("ceilings", **measure_ceilings(self.device, stopwatch))
        if self.request.workloads:
            self._load_sentinel()
        for workload in self.request.workloads:
            self._measure(workload, stopwatch)
            if "torch._dynamo" in sys.modules:  # which takes seconds to load
                torch.compiler.reset()
        self.emit("done")

    def _load_sentinel(self) -> None:
        try:
            self.sentinel = sentinel.load(self.device)
            self.emit("sentinel", description=self.sentinel.description)
        except (OSError, RuntimeError) as error:  # a device without a driver API that we know
            self.emit("sentinel", reason=_first_sentence(error))

    def _pairs(self) -> list[tuple[str, Workload]]:
        return [(name, workload) for workload in self.request.workloads for name in self._names()]

    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.request.references, *self.request.variants)))

    def _measure(self, workload: Workload, stopwatch: Stopwatch) -> None:
        names = [name for name in self._names() if (name, workload.name) not in self.request.skip]
        self.emit("begin", variant=None, workload=workload.name)
        seed = self.request.process * SEEDS_PER_PROCESS
        inputs = [make(workload, "normal", seed + i, self.device) for i in range(2)]
        timed_case = self._timed_case(workload, inputs[-1])
        inputs[-1] = timed_case.inputs
        cases = [timed_case]
        rounds = dict(self.request.rounds.get(workload.name, {}))
        if not self.request.rounds:
            cases.append(Case.of(make(workload, "flux", seed, self.device), causal=workload.causal))
        ready: dict[str, Callable[[Inputs], torch.Tensor]] = {}
        reference = None
        for name in names:
            is_spare_reference = reference is not None and name in self.request.references
            if is_spare_reference and name not in self.request.variants:
                continue
            variant, form = variants.find(name)
            self.emit("begin", variant=name, workload=workload.name)
            checked = self._check(name, variant, form, workload, cases)
            if checked:
                ready[name], call_s = checked
                rounds.setdefault(name, self.plan.rounds(call_s))
                if reference is None and name in self.request.references:
                    reference = name
        del cases
        if not ready or reference is None:
            return
        self.emit("begin", variant=None, workload=workload.name)
        calls = dict(ready)
        if self.sentinel:
            fixed = self.sentinel.call
            calls[sentinel.NAME] = lambda _: fixed()
            if sentinel.NAME not in rounds:
                started = time.perf_counter()
                self._call(calls[sentinel.NAME], inputs[0])
                rounds[sentinel.NAME] = self.plan.rounds(time.perf_counter() - started)
        settle(stopwatch, [functools.partial(call, inputs[0]) for call in calls.values()])
        began = time.monotonic()
        order = random.Random(f"{workload.name}/{self.request.process}")
        samples, outputs = interleave(stopwatch, calls, {name: rounds[name] for name in calls}, inputs, order)
        ended = time.monotonic()
        if self.sentinel and not self.sentinel.is_right(outputs.pop(sentinel.NAME)):
            del samples[sentinel.NAME]
        for name, out in outputs.items():
            variant, _ = variants.find(name)
            _, wrong = judge(
                out,
                timed_case,
                precision_class=variant.precision_class,
                quantized_budget=variant.quantized_budget_rel_l2,
            )
            if wrong:
                del samples[name]
                self._fail(name, workload, Status.INCORRECT, f"right when checked, wrong when timed: {wrong}")
        if reference in samples:
            self.emit(
                "timed",
                workload=workload.name,
                reference=reference,
                samples_ms=samples,
                began=began,
                ended=ended,
            )

    def _timed_case(self, workload: Workload, inputs: Inputs) -> Case:
        """Return these inputs with their reference; on a CPU, which takes seconds for it, the first process's."""
        kept = Path(f"case-{workload.name}.pt")
        if self.device.type == "cpu" and kept.is_file():
            return Case.load(kept)
        case = Case.of(inputs, causal=workload.causal)
        if self.device.type == "cpu":
            case.save(kept)
        return case

    def _check(
        self, name: str, variant: Variant, form: Form, workload: Workload, cases: list[Case]
    ) -> tuple[Callable[[Inputs], torch.Tensor], float] | None:
        """Build one variant, check it, and return it with the duration of a warm call; None where it failed."""
        try:
            attention = build(variant, form)

            def call(inputs: Inputs) -> torch.Tensor:
                return attention(*inputs)

            before = compile_counters()
            worst: Correctness | None = None
            kernels: list[dict[str, Any]] = []
            durations = []
            for case in cases:
                kept = tuple(x.clone() for x in case.inputs)
                poison(case.inputs[0])
                started = time.perf_counter()
                if case is cases[0]:
                    out = self._call(call, case.inputs)
                else:
                    out, kernels = profile_call(call, case.inputs)
                durations.append(time.perf_counter() - started)
                changed = restore(case.inputs, kept)
                errors, wrong = judge(
                    out, case, precision_class=variant.precision_class, quantized_budget=variant.quantized_budget_rel_l2
                )
                if wrong := wrong or changed:
                    self._fail(name, workload, Status.INCORRECT, wrong, errors)
                    return None
                worst = _worse(worst, errors)
            if self.device.type == "cuda":  # the profiler's own start would count as the call's
                started = time.perf_counter()
                self._call(call, cases[0].inputs)
                durations.append(time.perf_counter() - started)
            compiled = compile_counters() - before
            fallback = _fallback(variant, self.device, kernels)
            if fallback:
                self._fail(name, workload, Status.ERROR, fallback, worst)
                return None
            self.emit(
                "checked",
                variant=name,
                workload=workload.name,
                correctness=dataclasses.asdict(worst) if worst else None,
                kernels=kernels,
                peak_memory_bytes=peak_memory_of(call, cases[0].inputs),
                compile_s=durations[0] - durations[-1] if compiled.graphs else None,
                graph_breaks=compiled.graph_breaks if compiled.graphs else None,
            )
            return call, durations[-1]
        except torch.OutOfMemoryError as error:
            self._fail(name, workload, Status.OUT_OF_MEMORY, _first_sentence(error))
        except ImportError as error:
            self._fail(name, workload, Status.UNAVAILABLE, f"{_first_sentence(error)}; install what is missing")
        except Exception as error:  # noqa: BLE001 - the one place that turns a failure into a record
            traceback.print_exc()
            status, reason = _classify(error)
            self._fail(name, workload, status, reason)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _call(self, call: Callable[[Inputs], torch.Tensor], inputs: Inputs) -> torch.Tensor:
        out = call(inputs)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return out

    def _fail(
        self, name: str, workload: Workload, status: Status, reason: str, errors: Correctness | None = None
    ) -> None:
        correctness = dataclasses.asdict(errors) if errors else None
        self.emit("failed", variant=name, workload=workload.name, status=status, reason=reason, correctness=correctness)


def _unusable(device: torch.device) -> tuple[Status, str] | None:
    """Return the status and the reason why this torch cannot use the device at all, or None."""
    if device.type == "cpu":
        return None
    if not torch.cuda.is_available():
        return Status.UNAVAILABLE, (
            f"torch {torch.__version__} cannot use this machine's GPU (its CUDA: {torch.version.cuda or 'none'}); "
            "install a torch that was built for CUDA and for this driver"
        )
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        return _classify(error)
    return None


def _worse(first: Correctness | None, second: Correctness | None) -> Correctness | None:
    """Return the errors that use up more of their budget."""
    if first is None or second is None:
        return first or second
    return max(first, second, key=lambda errors: (errors.rel_l2 or 0) / errors.budget_rel_l2)


def _fallback(variant: Variant, device: torch.device, kernels: list[dict[str, Any]]) -> str | None:
    """Say which other kernel ran in place of the one that the variant's name promises, or None."""
    if device.type != "cuda" or variant.kernel_pattern is None or not kernels:
        return None
    if any(re.search(variant.kernel_pattern, kernel["name"]) for kernel in kernels):
        return None
    return f"another kernel ran than {variant.name} stands for: {kernels[0]['name']}"


def _classify(error: Exception) -> tuple[Status, str]:
    """Return the status and the sentence for an exception of a library."""
    sentence = _first_sentence(error)
    text = str(error)
    if "no kernel image is available" in text:
        return Status.UNSUPPORTED, "this build of the library has no kernels for this GPU; it is too old or too new"
    if "No available kernel" in text:
        return Status.UNSUPPORTED, f"torch refuses this backend here: {sentence}"
    if "InvalidCxxCompiler" in type(error).__name__ or "No working C++ compiler" in text:
        return Status.UNAVAILABLE, "torch.compile needs a C++ compiler on a CPU; install g++"
    if "Failed to find C compiler" in text or "TritonMissing" in type(error).__name__:
        return Status.UNAVAILABLE, f"Triton cannot compile here: {sentence}; install what is missing"
    return Status.ERROR, f"{type(error).__name__}: {sentence}"


def _first_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = (lines or [type(error).__name__])[0]
    return sentence if len(sentence) <= 200 else sentence[:199] + "…"


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


def main(request_path: str, events_path: str) -> int:
    """Carry out the request of one file and append events to the other."""
    request = Request.from_json(Path(request_path).read_text(encoding="utf-8"))
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    with Path(events_path).open("a", encoding="utf-8") as events, torch.inference_mode():
        Worker(request, events).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
