"""Variants that are slower on purpose: on a clock that a test turns, and where no page lists them."""

from __future__ import annotations

import time
import types
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY

from fluxbench import variants
from fluxbench.bench import dependencies
from fluxbench.core.settings import Settings
from fluxbench.variants import slowed
from fluxbench.variants._base import Variant

SETTINGS = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")
CALL_S = 0.050


class Clock:
    """Stands still but for calls of the attention, and a little at each reading."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def perf_counter(self) -> float:
        self.now += 1e-7
        return self.now

    def attention(self, q: Any, k: Any, v: Any) -> str:
        self.now += CALL_S
        self.calls += 1
        return "out"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(slowed, "_calls", {})
    return clock


def forms(clock: Clock) -> dict[str, Any]:
    base = Variant(name="made_up", load=lambda: clock.attention)
    return {variant.name.removeprefix("made_up_"): variant.load() for variant in slowed.of(base)}


def lasts_s(clock: Clock, attention: Any) -> float:
    x = types.SimpleNamespace(is_cuda=False, shape=(1, 96, 2, 64), dtype="bfloat16", device="cpu")
    assert attention(x, x, x) == "out"  # which may calibrate
    began = clock.now
    attention(x, x, x)
    return clock.now - began


@pytest.mark.parametrize(("form", "percent"), [("plus_0_5", 0.5), ("plus_1", 1.0), ("plus_2", 2.0), ("plus_5", 5.0)])
def test_a_form_is_slower_than_plus_0_by_its_share(clock: Clock, form: str, percent: float) -> None:
    made = forms(clock)
    ratio = lasts_s(clock, made[form]) / lasts_s(clock, made["plus_0"])
    assert ratio == pytest.approx(1 + percent / 100, rel=1e-4)


def test_the_twin_is_the_same(clock: Clock) -> None:
    made = forms(clock)
    assert lasts_s(clock, made["plus_0_twin"]) == pytest.approx(lasts_s(clock, made["plus_0"]))


def test_a_shape_is_timed_once_in_a_process_for_all_forms(clock: Clock) -> None:
    made = forms(clock)
    lasts_s(clock, made["plus_1"])
    calls = clock.calls
    lasts_s(clock, made["plus_1"])
    lasts_s(clock, made["plus_5"])
    assert clock.calls == calls + 4


def test_slowed_variants_are_found_and_listed_nowhere() -> None:
    names = [variant.name for variant in variants.CERTIFICATE]
    assert len(names) == 4 * len(slowed.FORMS) == len(set(names))
    assert {variants.find(name)[0].name for name in names} == set(names)
    assert not set(names) & set(variants.NAMES)
    assert not any(variants.compiles_something(name) for name in names)


def test_a_slowed_variant_is_held_to_what_its_base_is_held_to() -> None:
    for name in ("torch_flash", "triton_flash"):
        base, slower = variants.find(name)[0], variants.find(f"{name}_plus_2")[0]
        assert (slower.kernel_pattern, slower.supports, slower.packages) == (
            base.kernel_pattern, base.supports, base.packages,
        )  # fmt: skip


def test_trials_on_a_gpu_are_of_three_kernels_at_three_lengths() -> None:
    names, settings = dependencies.trials(GPU, SETTINGS)
    assert len(names) == 18
    assert {name.partition("_plus_")[0] for name in names} == {"torch_flash", "torch_cudnn", "triton_flash"}
    assert settings.workloads == ("flux1-1024px-t128", "flux1-1024px-t384", "flux1-1024px-t512")


def test_trials_on_a_cpu_are_of_one_kernel_at_the_shortest_length() -> None:
    names, settings = dependencies.trials(CPU, SETTINGS)
    assert {name.partition("_plus_")[0] for name in names} == {"torch_flash"}
    assert settings.workloads == ("flux1-512px-t128",)


def test_each_slowed_variant_of_the_trials_exists() -> None:
    for device in (CPU, GPU):
        for name in dependencies.trials(device, SETTINGS)[0]:
            assert variants.find(name)
