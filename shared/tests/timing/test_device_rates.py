"""The device's own rates, from times that a stopwatch makes up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from clocks import ON_CPU, small_cache

from fluxbench.timing.device_rates import EVENTS, measure_rates
from fluxbench.timing.stopwatch import Stopwatch


class Paced(Stopwatch):
    """Between two events lie 20 ms after a product, 250 ms after a copy, and 2 µs after a spin; the first are slow."""

    pace_ms = 0.0
    events = 0
    spun = 0

    def spin(self, launch_s: float, calls: int) -> None:
        self.pace_ms = 0.002
        self.spun += 1

    def record(self) -> None:
        self.events += 1

    def between_ms(self) -> list[float]:
        count, self.events = self.events, 0
        return [self.pace_ms] * (count - 1)


def test_rates_are_of_the_median_times_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    stopwatch = Paced(ON_CPU)

    def paced(*pace_ms: float) -> Callable[..., None]:
        first, then = pace_ms
        paces = iter([first])

        def call(*_: object, **__: object) -> None:
            stopwatch.pace_ms = next(paces, then)

        return call

    copies: list[int] = []

    def ones(size: int, **_: object) -> object:
        copies.append(size)
        return SimpleNamespace(copy_=paced(1000.0, 250.0))

    monkeypatch.setattr(torch, "mm", paced(2000.0, 20.0))
    monkeypatch.setattr(torch, "ones", ones)
    assert measure_rates(ON_CPU, stopwatch) == {
        "matmul_tflops": pytest.approx(2 * 1024**3 / 0.02 / 1e12),
        "matmul_size": 1024,
        "copy_gb_s": pytest.approx(2 * 2**28 / 0.25 / 1e9),
        "event_us": pytest.approx(2.0),
    }
    assert copies == [1 << 28] * 2
    assert stopwatch.spun == 1
    assert EVENTS > 100


@pytest.mark.parametrize(("ns_a_product", "size"), [(0.2, 1024), (0.9, 512), (1000.0, 256)])
def test_a_product_that_would_take_a_cpu_long_is_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch, ns_a_product: float, size: int
) -> None:
    """Two cores without bfloat16 units take 0.9 ns a product at n = 512, and 2 to 4 s for one of n = 1024."""
    small_cache(monkeypatch)
    stopwatch = Paced(ON_CPU)

    def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        stopwatch.pace_ms = ns_a_product * len(a) ** 3 / 1e6

    def copy(_: object) -> None:
        stopwatch.pace_ms = 250.0

    monkeypatch.setattr(torch, "mm", matmul)
    monkeypatch.setattr(torch, "ones", lambda size, **_: SimpleNamespace(copy_=copy))
    rates = measure_rates(ON_CPU, stopwatch)
    assert rates["matmul_size"] == size
    assert rates["matmul_tflops"] == pytest.approx(2e-3 / ns_a_product)
