"""One variant at one workload: built, called on each kind of inputs, and found right or not."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fluxbench.correctness.judging import Case, judge, poison, restore
from fluxbench.operations.inputs import Inputs
from fluxbench.records.schema import INPUTS, Correctness, Status
from fluxbench.timing.profiler import Profile, compile_counters, peak_memory_of, profile_call
from fluxbench.timing.regimes import Call
from fluxbench.variants._base import Form, Variant, build, part_of

_LEAST_COMPILE_S = 0.05  # by which a first call is longer where a library compiled a kernel in it


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A variant that was right."""

    call: Call
    seen: Mapping[str, Any]  # what the event "checked" says of it


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A variant that was wrong, or ran another kernel than its name promises."""

    status: Status
    reason: str
    errors: Correctness | None


def check(variant: Variant, form: Form, device: torch.device, cases: Sequence[Case]) -> Checked | Failed:
    """Build a variant and check it on each case, under the profiler from the second on; what it raises gets through.

    `cases` are of the kinds of inputs in `records.INPUTS`, in that order; there may be fewer.
    """
    attention = build(variant, form)

    def call(inputs: Inputs) -> torch.Tensor:
        return attention(*inputs)

    before = compile_counters()
    worst: Correctness | None = None
    by_inputs: dict[str, float | None] = {}
    profile: Profile | None = None
    durations = []
    for kind, case in zip(INPUTS[: len(cases)], cases, strict=True):
        kept = tuple(x.clone() for x in case.inputs)
        poison(case.inputs[0])
        started = time.perf_counter()
        if case is cases[0]:
            out = _finished(call, case.inputs, device)
        else:
            out, profile = profile_call(call, case.inputs, functools.partial(part_of, variant))
        durations.append(time.perf_counter() - started)
        changed = restore(case.inputs, kept)
        errors, wrong = judge(
            out, case, precision_class=variant.precision_class, quantized_budget=variant.quantized_budget_rel_l2
        )
        if errors:
            by_inputs[kind] = errors.rel_l2
        if wrong := wrong or changed:
            return Failed(status=Status.INCORRECT, reason=wrong, errors=_on_all(errors, by_inputs))
        worst = _worse(worst, errors)
    worst = _on_all(worst, by_inputs)
    if device.type == "cuda":  # the profiler's own start would count as the call's
        started = time.perf_counter()
        _finished(call, cases[0].inputs, device)
        durations.append(time.perf_counter() - started)
    compiled = compile_counters() - before
    if fallback := _fallback(variant, device, profile.kernels if profile else []):
        return Failed(status=Status.ERROR, reason=fallback, errors=worst)
    seen = {
        "correctness": dataclasses.asdict(worst) if worst else None,
        "kernels": profile.kernels if profile else [],
        "clocks": [profile.wall_ms, profile.profiler_ms] if profile and device.type == "cpu" else None,
        "peak_memory_bytes": peak_memory_of(call, cases[0].inputs),
        "compile_s": _compile_s(durations, variant.jit, compiled.graphs),
        "graph_breaks": compiled.graph_breaks if compiled.graphs else None,
        "detail": _said_by(variant),
    }
    return Checked(call=call, seen=seen)


def _finished(call: Call, inputs: Inputs, device: torch.device) -> torch.Tensor:
    """Return what a call gives, once the device is done with it."""
    out = call(inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return out


def _compile_s(durations: list[float], jit: bool, graphs: int) -> float | None:
    """Return by how much the first call was longer than a warm one; None where nothing was compiled."""
    longer_s = max(0.0, durations[0] - durations[-1])
    return longer_s if graphs or (jit and longer_s > _LEAST_COMPILE_S) else None


def _said_by(variant: Variant) -> str | None:
    """Return what the library says that it chose; where it is asked by private names, another version may not say."""
    try:
        return variant.detail() if variant.detail else None
    except Exception:  # noqa: BLE001 - what it says decides nothing
        traceback.print_exc()
        return None


def _worse(first: Correctness | None, second: Correctness | None) -> Correctness | None:
    """Return the errors that use up more of their budget."""
    if first is None or second is None:
        return first or second
    return max(first, second, key=lambda errors: (errors.rel_l2 or 0) / errors.budget_rel_l2)


def _on_all(errors: Correctness | None, by_inputs: Mapping[str, float | None]) -> Correctness | None:
    """Return errors with what is known of all kinds of inputs."""
    return dataclasses.replace(errors, rel_l2_by_inputs=dict(by_inputs)) if errors else None


def _fallback(variant: Variant, device: torch.device, kernels: list[dict[str, Any]]) -> str | None:
    """Say which other kernel ran in place of the one that the variant's name promises, or None."""
    if device.type != "cuda" or variant.kernel_pattern is None or not kernels:
        return None
    if any(re.search(variant.kernel_pattern, kernel["name"]) for kernel in kernels):
        return None
    return f"another kernel ran than {variant.name} stands for: {kernels[0]['name']}"
