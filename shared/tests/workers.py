"""A worker in this process, with a plan so small that a test takes a fraction of a second."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes import TINY

from fluxbench import variants
from fluxbench.bench import events
from fluxbench.bench.events import Checked, Event, Failed, Phase, Timed
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.timing.plan import Plan
from fluxbench.variants._base import YES, Capabilities, Variant
from fluxbench.worker.request import Request
from fluxbench.worker.worker import Worker

Load = Callable[[AttentionCall], Attention]
# Two rounds of burst; of a block one window of warm-up and two that count, one call of each workload.
QUICK = Plan(
    max_rounds=2, min_rounds=2, burst_budget_s=0.0, first_rest_s=0.0, min_rest_s=0.0, chunk_s=0.0, warm_up_s=0.0,
    max_warm_up_s=0.0, min_block_s=0.0, max_block_s=0.0,
    stretch_s=0.0, settled_within=1e9, sample_s=0.0, paired_s=0.0,
)  # fmt: skip
ANYWHERE = Capabilities(
    dtypes=("bfloat16", "float16", "float32"), minimum=(5, 0), cpu=True, causal=YES, gqa=YES, backward=YES,
    separate_head_dims=True,
)  # fmt: skip
CHECKED = 6  # calls in which a kernel is checked: four kinds of inputs, and twice a ragged shape
honest: Load = variants.find("torch_math").variant.load


def variant(name: str, load: Load = honest, **fields: Any) -> Variant:
    """Return a variant that runs everywhere."""
    return Variant(name=name, label=name, load=load, **{"capabilities": ANYWHERE, **fields})


def register(monkeypatch: pytest.MonkeyPatch, *made: Variant) -> None:
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, *made))


def events_of(request: Request, plan: Plan = QUICK) -> list[Event]:
    """Return the events of a worker that carries out a request here, each read as strictly as those of a process.

    With one thread: several would wait for each other where the machine does something else, for 10 ms each time.
    """
    written = io.StringIO()
    worker = Worker(request, written)
    worker.plan = plan
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        worker.run()
    finally:
        torch.set_num_threads(threads)
    seen = [events.parse(line) for line in written.getvalue().splitlines()]
    return [event for event in seen if not isinstance(event, Phase)]


def given(
    monkeypatch: pytest.MonkeyPatch, load: Load, *, name: str = "made_up", plan: Plan = QUICK, **request: Any
) -> list[Event]:
    """Return the events of one worker that gets a variant with this `load`, and then torch_math."""
    register(monkeypatch, variant(name, load))
    asked = {"variants": (name, "torch_math"), "references": ("torch_math",), "workloads": (TINY,), **request}
    return events_of(Request(**{"device": "cpu", **asked}), plan)


def failures(seen: list[Event]) -> list[tuple[str, str, str]]:
    """Return who failed, how and why, in order."""
    return [(event.variant, event.status, event.reason) for event in seen if isinstance(event, Failed)]


def checks(seen: list[Event]) -> dict[str, Checked]:
    """Return what is known of each variant that was right, at its last workload."""
    return {event.variant: event for event in seen if isinstance(event, Checked)}


def trials(seen: list[Event]) -> list[Timed]:
    """Return the trials that gave times, in order."""
    return [event for event in seen if isinstance(event, Timed)]


def timed(seen: list[Event]) -> set[str]:
    """Return the variants that were timed."""
    return {trial.variant for trial in trials(seen)}


def wrapped(change: Callable[[Attention, tuple[torch.Tensor, torch.Tensor, torch.Tensor]], torch.Tensor]) -> Load:
    """Return a load of a kernel that gets the honest attention with q, k and v."""

    def load(call: AttentionCall) -> Attention:
        attend = honest(call)
        return lambda q, k, v: change(attend, (q, k, v))

    return load


def raising(error: Exception, from_call: int = 1) -> Load:
    """Return a load of an honest kernel that raises from a call on, counted from 1; the first `CHECKED` check it."""
    made = 0

    def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        nonlocal made
        made += 1
        if made >= from_call:
            raise error
        return attend(*inputs)

    return wrapped(change)
