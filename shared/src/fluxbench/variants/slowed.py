"""A variant that is slower on purpose, by a known share of a call: what the certificate's trials are made of.

Every form is the base's attention followed by a spin, so that all of them launch as many kernels. `plus_0` and its twin
spin for a microsecond, the others longer by their share of a call of `plus_0`. That is timed once in a process for each
shape, at the clock of the moment: a GPU spins for cycles, as an attention that its arithmetic limits takes a number of
cycles. What a spin really adds to a measured call is known from the samples alone, and the certificate prints it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants._base import NO, Variant
from fluxbench.variants.forms import EAGER, FormedVariant

FORMS = {"plus_0": 0.0, "plus_0_twin": 0.0, "plus_0_5": 0.5, "plus_1": 1.0, "plus_2": 2.0, "plus_5": 5.0}  # percent
_LEAST_CYCLES, _LEAST_S = 2000, 1e-6  # the spin of `plus_0`
_SPINS = (500_000, 1_500_000)  # cycles; their difference leaves out what a launch costs
_HEAD_START_CYCLES = 4_000_000  # 2 ms, in which the host gets ahead of the device
_calls: dict[tuple[object, ...], float] = {}  # lengths of calls of `plus_0`, by base, call and device


def of(formed: FormedVariant) -> tuple[Variant, ...]:
    """Return the forms of a variant: `torch_flash_plus_0`, `torch_flash_plus_0_twin`, `torch_flash_plus_0_5`, ..."""
    base, name = formed.variant, formed.variant.name + formed.form.suffix
    return tuple(
        dataclasses.replace(
            base,
            name=f"{name}_{form}",
            label=f"{base.label}{formed.form.label}, slowed by {percent:g}%{' (twin)' * form.endswith('_twin')}",
            load=_slower(name, formed.attention, percent),
            diffusers="",
            capabilities=dataclasses.replace(base.capabilities, backward=NO),  # the spin follows the forward pass alone
            forms=(EAGER,),
            compiles=formed.compiles,
            base=base,
        )
        for form, percent in FORMS.items()
    )


def _slower(
    name: str, base: Callable[[AttentionCall], Attention], percent: float
) -> Callable[[AttentionCall], Attention]:
    """Return the `load` of a form that spins for this share of a call."""

    def load(call: AttentionCall) -> Attention:
        attention = base(call)

        def attend_and_spin(q: Any, k: Any, v: Any, share: float = percent / 100) -> Any:
            length = 0.0
            if share:
                key = (name, call, str(q.device))
                if key not in _calls:
                    measure = _cycles if q.is_cuda else _seconds
                    _calls[key] = measure(lambda: attend_and_spin(q, k, v, 0.0))
                length = share * _calls[key]
            out = attention(q, k, v)
            (_spin_gpu if q.is_cuda else _spin_cpu)(length)
            return out

        return attend_and_spin

    return load


def _spin_gpu(cycles: float) -> None:
    import torch

    torch.cuda._sleep(_LEAST_CYCLES + round(cycles))


def _spin_cpu(seconds: float) -> None:
    until = time.perf_counter() + _LEAST_S + seconds
    while time.perf_counter() < until:
        pass


def _cycles(call: Callable[[], object]) -> float:
    """Return how many cycles of the GPU's clock a call lasts."""
    import torch

    spins_ms = [_median_ms(functools.partial(torch.cuda._sleep, cycles)) for cycles in _SPINS]
    return _median_ms(call) * (_SPINS[1] - _SPINS[0]) / (spins_ms[1] - spins_ms[0])


def _median_ms(call: Callable[[], object]) -> float:
    """Return the median time of a call between two events, of 20 after 5, back to back."""
    import torch

    torch.cuda._sleep(_HEAD_START_CYCLES)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(26)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    times_ms: list[float] = [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]
    return statistics.median(times_ms[5:])


def _seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call in seconds, of 5 after one: a CPU takes long."""
    call()
    times_s = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began)
    return statistics.median(times_s)
