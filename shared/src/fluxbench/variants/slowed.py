"""A variant that is slower on purpose, by a known share of a call: what the certificate's trials are made of.

Every form is the base's attention followed by other work, so that all of them launch as many kernels: on a GPU by
matrix products on all multiprocessors (`kernels.products`), which a power limit slows as it does the attention, on a
CPU by reading the clock. `plus_0` and its twin work for about a microsecond, the others longer by their share of a call
of `plus_0`. That is timed once in a process for each shape, at the clock of the moment. What is really added to a
measured call is known from the samples alone, and the certificate prints it.
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
_LEAST_PRODUCTS, _LEAST_S = 4, 1e-6  # the work of `plus_0`
_PRODUCTS = (2_000, 6_000)  # some 0.3 and 1 ms on an H200; their difference leaves out what a launch costs
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
            capabilities=dataclasses.replace(base.capabilities, backward=NO),  # the work follows the forward pass alone
            forms=(EAGER,),
            compiles=formed.compiles,
            base=base,
        )
        for form, percent in FORMS.items()
    )


def _slower(
    name: str, base: Callable[[AttentionCall], Attention], percent: float
) -> Callable[[AttentionCall], Attention]:
    """Return the `load` of a form that works on for this share of a call."""

    def load(call: AttentionCall) -> Attention:
        attention = base(call)

        def attend_and_work(q: Any, k: Any, v: Any, share: float = percent / 100) -> Any:
            length = 0.0
            if share:
                key = (name, call, str(q.device))
                if key not in _calls:
                    measure = _products if q.is_cuda else _seconds
                    _calls[key] = measure(lambda: attend_and_work(q, k, v, 0.0))
                length = share * _calls[key]
            out = attention(q, k, v)
            (_work_gpu if q.is_cuda else _work_cpu)(length)
            return out

        return attend_and_work

    return load


def _work_gpu(count: float) -> None:
    import torch

    from fluxbench.kernels.products import multiply

    multiply(_LEAST_PRODUCTS + round(count), torch.device("cuda", torch.cuda.current_device()))


def _work_cpu(seconds: float) -> None:
    until = time.perf_counter() + _LEAST_S + seconds
    while time.perf_counter() < until:
        pass


def _products(call: Callable[[], object]) -> float:
    """Return how many matrix products of a program take as long as a call."""
    few_ms, many_ms = (_median_ms(functools.partial(_work_gpu, count)) for count in _PRODUCTS)
    return _median_ms(call) * (_PRODUCTS[1] - _PRODUCTS[0]) / (many_ms - few_ms)


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
