"""Trials of honest kernels on a CPU, whose calls take as long as they are told to."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

from clocks import ON_CPU, Clock
from fakes import tokens
from workers import QUICK, honest, variant

from fluxbench import operations
from fluxbench.operations.protocol import Bound
from fluxbench.operations.workload import Workload
from fluxbench.timing.control_kernel import ControlKernel
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants.forms import EAGER, FormedVariant
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.trial import Trial

SMALL, SMALLER = tokens("small", 48), tokens("smaller", 33)
VARIANT = variant("flex")


def prepared(workload: Workload = SMALL) -> PreparedWorkload:
    """Return a workload as a later process has it."""
    return PreparedWorkload.make(workload, ON_CPU, 1)


def bound(workload: Workload = SMALL) -> Bound:
    """Return an honest call."""
    return operations.find(workload.operation).bind(FormedVariant(variant("right", honest), EAGER), workload.shape)


HONEST = bound()


def paced(clock: Clock, seconds: float | Iterator[float], inner: Bound = HONEST) -> Bound:
    """Return an honest call that takes so long, or that long at each call."""
    durations = itertools.repeat(seconds) if isinstance(seconds, float) else seconds

    def call(prepared: Any) -> Mapping[str, object]:
        clock.now += next(durations)
        return inner.call(prepared)

    return Bound(call, inner.prepare)


def trial(
    workloads: Mapping[str, PreparedWorkload],
    calls: Bound | Mapping[str, Bound] | None,
    *,
    reference: Bound = HONEST,
    control: ControlKernel | None = None,
    seed: int = 0,
    stopwatch: Stopwatch | None = None,
    plan: Plan = QUICK,
    replays: bool | None = None,
) -> Trial:
    """Return the trial of a variant beside a reference; None: that of the reference."""
    by_workload = calls if isinstance(calls, Mapping) else dict.fromkeys(workloads, calls or reference)
    return Trial(
        "flex" if calls else "torch_flash", VARIANT, by_workload,
        ("torch_flash", dict.fromkeys(workloads, reference)),
        workloads, control, stopwatch or Stopwatch(ON_CPU), plan, random.Random(seed), replays,
    )  # fmt: skip
