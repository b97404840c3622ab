"""One variant at one workload: built, called on each kind of inputs, and found right or not."""

from __future__ import annotations

import dataclasses
import functools
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.guards import changes_of, keep, overwritten, poison, restore
from fluxbench.correctness.judging import Errors, judgement_on, worse
from fluxbench.correctness.questions import answers, both
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.operations.workload import Workload
from fluxbench.timing.memory import memory_of
from fluxbench.timing.profiler import Profile, compile_counters, profile_call
from fluxbench.variants._base import Variant, part_of
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker.ragged import check_ragged

_LEAST_COMPILE_S = 0.05  # by which a first call is longer where a library compiled a kernel in it


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A variant that was right."""

    bound: Bound
    seen: dict[str, Any]  # the fields of the event "checked"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A variant that was wrong."""

    reason: str
    errors: Mapping[str, Errors]
    bound: Bound  # which can be timed all the same


def check(
    formed: FormedVariant,
    workload: Workload,
    device: torch.device,
    cases: Mapping[str, Case],
    thorough: bool = True,
    waited_s: Callable[[], float] = lambda: 0.0,
    ragged: bool = True,
    memory: bool = True,
) -> Checked | Failed:
    """Build a variant and check it on each case, by kind of inputs.

    `thorough`, in one process: also check the ragged shape, unless `ragged` is False, and on a CPU look at one warm
    call's operators; a GPU's kernels are looked at when all is timed (`worker.profiling`). `memory`: also measure the
    memory of a call. `waited_s` returns for how long this process has waited for the device so far: no call lasted that
    long. What a call raises gets through.
    """

    def clock() -> float:
        return time.perf_counter() - waited_s()

    variant, parts = formed.variant, parts_of_kernels(formed, workload)
    before = compile_counters()
    bound = _bound(formed, workload)
    worst: dict[str, Errors] = {}
    by_inputs: dict[str, dict[str, float | None]] = {}
    profile: Profile | None = None
    timed = next(iter(cases.values()))
    unchanged = keep(timed.inputs)
    profiles = thorough and device.type == "cpu"
    durations = []
    last: Mapping[str, object] = {}
    for kind, case in cases.items():
        kept = unchanged if case is timed else keep(case.inputs)
        poison(case)
        started = clock()
        if profiles and profile is None and case is not timed:
            out, profile = profile_call(bound, case.inputs, device, parts)
        elif variant.jit or formed.compiles:
            out = _finished(bound, case.inputs, device)
        else:
            out = bound(case.inputs)  # of which nobody asks how long it takes
        durations.append(clock() - started)
        of_class = variant.quantized_budget_rel_l2, variant.precision_class
        changes = changes_of(case.inputs, kept)
        try:
            judgement = judgement_on(out, case, *of_class)
        except BaseException:
            answers([changes])  # puts the inputs back, which the next variant gets
            raise
        changed, (errors, wrong) = both(changes, judgement)
        for name, found in errors.items():
            by_inputs.setdefault(name, {})[kind] = found.rel_l2
        if errors and not variant.gated_kinds([kind]):
            errors, wrong = {}, None
        if not formed.replays_graphs:  # a graph's outputs are always in the same place
            changed = changed or overwritten(out, last)
        last = out
        if wrong := wrong or changed:
            return Failed(reason=wrong, errors=_on_all(errors, by_inputs), bound=bound)
        worst |= {name: worse(found, worst.get(name, found)) for name, found in errors.items()}
    worst = _on_all(worst, by_inputs)
    if profiles and profile is None:  # of an operation with one kind of inputs
        started = clock()
        _, profile = profile_call(bound, timed.inputs, device, parts)
        durations.append(clock() - started)
    compiles = variant.jit or (compile_counters() - before).graphs
    if compiles and (len(durations) == 1 or (thorough and device.type == "cuda")):
        # Of the first call's time a warm one tells how long it compiled; the profiler's own start would count as one's.
        started = clock()
        _finished(bound, timed.inputs, device)
        durations.append(clock() - started)
    compiled = compile_counters() - before
    if thorough and ragged and (wrong := check_ragged(formed, workload, next(iter(timed.inputs.values())).device)):
        return Failed(reason=wrong, errors=worst, bound=bound)
    taken = memory_of(bound, timed.inputs, device) if memory else None
    since = len(durations) > 1 or thorough or memory  # there were calls since, whose outputs nobody judged
    if since and (wrong := restore(timed.inputs, unchanged)):
        return Failed(reason=wrong, errors=worst, bound=bound)
    seen = {
        "errors": {name: dataclasses.asdict(errors) for name, errors in worst.items()},
        "kernels": profile.kernels if profile else [],
        "clocks": [profile.wall_ms, profile.profiler_ms] if profile else None,
        "memory": dataclasses.asdict(taken) if taken else None,
        "compile_s": _compile_s(durations, variant.jit, compiled.graphs),
        "graph_breaks": compiled.graph_breaks if compiled.graphs else None,
        "detail": _detail(variant),
    }
    return Checked(bound=bound, seen=seen)


def make(formed: FormedVariant, workload: Workload, inputs: Tensors) -> Bound:
    """Build a variant and make the calls that are unlike later ones, of which nothing is judged.

    What a call raises gets through.
    """
    bound = _bound(formed, workload)
    for _ in range(formed.first_calls):
        bound(inputs)
    return bound


def parts_of_kernels(formed: FormedVariant, workload: Workload) -> Callable[[str], str]:
    """Return what tells, by a kernel's name, what it does in a call of a variant at a workload."""
    operation = operations.find(workload.operation)
    return functools.partial(part_of, formed.variant, operation.attention(workload.shape), operation.parts)


def _bound(formed: FormedVariant, workload: Workload) -> Bound:
    """Return a variant's call at a workload; one that replays CUDA graphs of its own cannot be part of another."""
    bound = operations.find(workload.operation).bind(formed, workload.shape)
    return replace(bound, captured=bound.captured and not formed.replays_graphs)


def _finished(bound: Bound, inputs: Tensors, device: torch.device) -> Mapping[str, object]:
    """Return what a call gives, once the device is done with it."""
    out = bound(inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return out


def _compile_s(durations: list[float], jit: bool, graphs: int) -> float | None:
    """Return by how much the first call was longer than a warm one; None where nothing was compiled."""
    longer_s = max(0.0, durations[0] - durations[-1])
    return longer_s if graphs or (jit and longer_s > _LEAST_COMPILE_S) else None


def _detail(variant: Variant) -> str | None:
    """Return what the library says that it chose; another version may not have the private names it is asked by."""
    try:
        return variant.detail() if variant.detail else None
    except Exception:  # noqa: BLE001 - what it says decides nothing
        traceback.print_exc()
        return None


def _on_all(errors: Mapping[str, Errors], by_inputs: Mapping[str, Mapping[str, float | None]]) -> dict[str, Errors]:
    """Return errors with what is known of all kinds of inputs."""
    return {name: replace(found, rel_l2_by_inputs=dict(by_inputs[name])) for name, found in errors.items()}
