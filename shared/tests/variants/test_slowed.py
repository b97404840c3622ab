"""Variants that are slower on purpose: on a clock that a test turns, and where no page lists them."""

from __future__ import annotations

import time
import types
from typing import Any

import pytest
from calls import call
from fakes import CPU, GPU

from fluxbench import variants
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import slowed, torch_flash, triton_flash
from fluxbench.variants._base import Capabilities, Variant
from fluxbench.variants.forms import EAGER, FormedVariant

CALL_S = 0.050


class Clock:
    """Stands still but for calls of the attention, and a little at each reading; each clock is of another variant."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls = 0
        self.asked: list[AttentionCall] = []
        self.base = Variant(
            name=f"made_up_{id(self)}",
            label="Made up",
            load=self.load,
            capabilities=Capabilities(dtypes=("bfloat16",), minimum=(8, 0)),
        )
        monkeypatch.setattr(time, "perf_counter", self.perf_counter)

    def perf_counter(self) -> float:
        self.now += 1e-7
        return self.now

    def load(self, asked: AttentionCall) -> Any:
        self.asked.append(asked)

        def attend(q: Any, k: Any, v: Any) -> str:
            self.now += CALL_S * asked.seq_len_q / 100
            self.calls += 1
            return "out"

        return attend

    def lasts_s(self, form: str, tokens: int = 100) -> float:
        """Return how long a call of a form lasts, after one that may time `plus_0`."""
        variant = next(
            each for each in slowed.of(FormedVariant(self.base, EAGER)) if each.name == f"{self.base.name}_{form}"
        )
        attention: Any = variant.load(call(tokens=tokens))
        x = types.SimpleNamespace(is_cuda=False, device="cpu")
        assert attention(x, x, x) == "out"
        began = self.now
        attention(x, x, x)
        return self.now - began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("form", "percent"), [("plus_0_twin", 0), ("plus_0_5", 0.5), ("plus_1", 1), ("plus_2", 2), ("plus_5", 5)]
)
def test_a_form_is_slower_than_plus_0_by_its_share_at_every_shape(clock: Clock, form: str, percent: float) -> None:
    for tokens in (100, 300):
        ratio = clock.lasts_s(form, tokens) / clock.lasts_s("plus_0", tokens)
        assert ratio == pytest.approx(1 + percent / 100, rel=1e-4)


def test_a_shape_is_timed_once_in_a_process_for_all_forms(clock: Clock) -> None:
    clock.lasts_s("plus_1")
    assert clock.calls == 8  # two calls, and six to time one
    clock.lasts_s("plus_5")
    assert clock.calls == 10
    clock.lasts_s("plus_5", tokens=200)
    assert clock.calls == 18
    assert {asked.seq_len_q for asked in clock.asked} == {100, 200}


def test_slowed_variants_are_found_and_listed_nowhere() -> None:
    names = {variant.name for variant in variants.CERTIFICATE}
    bases = (
        *("torch_flash", "torch_cudnn", "torch_math", "triton_flash"),
        *("torch_flash_compile_d", "torch_cudnn_compile_d", "flash_attn_3", "flash_attn_4"),
    )
    assert names == {f"{base}_{form}" for base in bases for form in slowed.FORMS}
    assert {variants.find(name).variant.name for name in names} == names
    assert not names & set(variants.NAMES)
    assert {name for name in names if variants.find(name).compiles} == {name for name in names if "compile_d" in name}


@pytest.mark.parametrize("base", [torch_flash.VARIANT, triton_flash.VARIANT], ids=lambda base: base.name)
def test_a_slowed_variant_is_what_its_base_is_without_a_backward_pass(base: Variant) -> None:
    slower = variants.find(f"{base.name}_plus_2").variant
    assert (slower.base, slower.names) == (base, (f"{base.name}_plus_2",))
    assert (slower.kernel_pattern, slower.packages, slower.jit) == (base.kernel_pattern, base.packages, base.jit)
    for device in (CPU, GPU):
        for asked in ({}, {"dim": 80}, {"kv_heads": 2}, {"causal": True}):
            assert (slower.supports(device, call(**asked)) is None) == (base.supports(device, call(**asked)) is None)
    assert "backward pass" in str(slower.supports(GPU, call(backward=True)))
