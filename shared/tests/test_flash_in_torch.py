"""FlashAttention-3 and -4 through torch, without a GPU: its choice of implementation, and FlexAttention's backend."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import signatures
import torch

from fluxbench.operations import inputs
from fluxbench.variants import flex_flash, torch_fa
from fluxbench.variants._base import Variant


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """Let torch forget a made-up package that it found for FA4: it keeps what it imported once."""
    yield
    importlib.import_module("torch.nn.attention._fa4")._fa4_import_module.cache_clear()


class Impls:
    """torch's choice of an implementation, noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active: str | None = None
        self.at_calls: list[str | None] = []
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def noting(*tensors: Any, **options: Any) -> Any:
            self.at_calls.append(self.active)
            return sdpa(*tensors, **options)

        def choose(name: str | None) -> None:
            self.active = name

        monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", choose)
        monkeypatch.setattr(torch.nn.attention, "restore_flash_attention_impl", lambda: choose(None))
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)


@pytest.mark.parametrize("variant", [torch_fa.FA3, torch_fa.FA4], ids=lambda variant: variant.name)
def test_torch_s_choice_holds_within_a_call_alone(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    impls = Impls(monkeypatch)
    attention = variant.load()
    assert impls.active is None
    assert signatures.wrong(attention, variant) is None
    name = {"torch_fa3": "FA3", "torch_fa4": "FA4"}[variant.name]
    assert (impls.at_calls[0], impls.active) == (name, None)


def test_torch_s_own_functions_activate_and_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    current = pytest.importorskip("torch.nn.attention").current_flash_attention_impl
    cute = signatures.module(monkeypatch, "flash_attn.cute.interface")
    monkeypatch.setattr(cute, "_flash_attn_fwd", None, raising=False)
    monkeypatch.setattr(cute, "_flash_attn_bwd", None, raising=False)
    seen = []
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def noting(*tensors: Any, **options: Any) -> Any:
        seen.append(current())
        return sdpa(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    attention = torch_fa.FA4.load()
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    attention(q, k, v)
    attention(q, k, v)
    assert (seen, current()) == (["FA4", "FA4"], None)


@pytest.mark.parametrize("name", ["activate_flash_attention_impl", "restore_flash_attention_impl"])
def test_a_torch_without_the_choice_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.nn.attention, name)
    with pytest.raises(ImportError, match=rf"torch .* has no torch.nn.attention.{name}; it needs a newer torch"):
        torch_fa.FA4.load()


def test_a_package_that_torch_s_choice_does_not_fit_says_so_and_leaves_nothing_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impls = Impls(monkeypatch)

    def unpack(*_: Any, **__: Any) -> None:
        _out, _lse = iter("five!")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", unpack)
    attention = torch_fa.FA4.load()
    with pytest.raises(ImportError, match=r"torch .*'s FA4 does not fit flash-attn-4 .*: too many values to unpack"):
        attention(*inputs.make(signatures.SMALL, "normal", seed=0, device="cpu"))
    assert impls.active is None


def test_a_name_that_torch_does_not_know_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise ValueError(f"Unknown flash attention impl '{name}'")

    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", unknown)
    with pytest.raises(ImportError, match=r"FA3 does not fit flash-attn-3 .*: Unknown flash attention impl 'FA3'"):
        torch_fa.FA3.load()


def test_flex_flash_asks_for_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    signatures.module(monkeypatch, "flash_attn.cute")
    asked: list[Any] = []

    def flex_attention(q: Any, k: Any, v: Any, *, kernel_options: Any, **rest: Any) -> Any:
        inspect.signature(real).bind(q, k, v, kernel_options=kernel_options, **rest)
        asked.append(kernel_options)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    real = flex.flex_attention
    monkeypatch.setattr(flex, "flex_attention", flex_attention)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    assert signatures.wrong(flex_flash.VARIANT.load(), flex_flash.VARIANT) is None
    assert asked == [{"BACKEND": "FLASH"}] * 2


def test_flex_flash_needs_a_torch_that_has_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    monkeypatch.delattr(flex, "FlexKernelOptions")
    with pytest.raises(ImportError, match="has no BACKEND option; it needs a newer torch"):
        flex_flash.VARIANT.load()
