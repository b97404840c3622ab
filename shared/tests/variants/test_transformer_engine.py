"""Transformer Engine: its one backend, what it says where it does not load, and its backward pass."""

from __future__ import annotations

import collections
import gc
import weakref
from typing import Any

import calls
import libraries
import pytest
import signatures
import torch
from calls import call
from families import named


@pytest.mark.parametrize("name", ["te_fused", "te_flash", "te_unfused"])
def test_one_backend_alone_is_turned_on(name: str) -> None:
    variables = named(name).variables
    own = f"NVTE_{name.removeprefix('te_').upper()}_ATTN"
    others = ("FLASH_ATTN", "FUSED_ATTN", "UNFUSED_ATTN", "FLASH_ATTN_V3", "FLASH_ATTN_V4")
    assert variables == {**{f"NVTE_{other}": "0" for other in others}, own: "1"}


@pytest.mark.parametrize(("version", "words"), [("0", "none"), ("2.9.1", "2.9.1")])
def test_a_flash_attn_that_it_does_not_take_is_said(version: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_te(monkeypatch, flash=version)
    with pytest.raises(ImportError, match=f"takes flash-attn 2 and finds {words}; install flash-attn==2.8.3"):
        named("te_flash").load(call())
    named("te_fused").load(call())


@pytest.mark.parametrize(
    "error",
    [
        ImportError("/folder/transformer_engine_torch.so: undefined symbol: _ZN3c10"),
        AssertionError("Could not find TE core package `transformer-engine-cu*`."),
        FileNotFoundError("Could not find shared object file"),
    ],
)
def test_a_transformer_engine_that_does_not_load_is_said_in_its_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> Any:
        raise error

    module = signatures.module(monkeypatch, "transformer_engine.pytorch")
    module.__getattr__ = fail  # type: ignore[method-assign]
    with pytest.raises(ImportError, match="; install transformer-engine, its core and its torch part"):
        named("te_fused").load(call())


def test_it_says_which_backend_transformer_engine_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    module = signatures.module(monkeypatch, f"{libraries.TE}.dot_product_attention")
    detail = named("te_fused").detail
    assert detail
    for kept, words in (
        ({"use_flash_attention": True, "flash_attention_backend": "2.8.3"}, "FlashAttention 2.8.3"),
        ({"use_fused_attention": True, "fused_attention_backend": 1}, "FusedAttention, sub-backend 1"),
        ({"use_unfused_attention": True}, "UnfusedDotProductAttention"),
        ({}, None),
    ):
        module._attention_backends = collections.defaultdict(lambda: None, kept)  # type: ignore[attr-defined]
        assert detail() == words


def test_transformer_engine_s_fused_backward_pass_runs_several_times_and_leaves_no_memory_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts: list[weakref.ref[Any]] = []

    class Fused(torch.autograd.Function):  # type: ignore[misc]
        """As `FusedAttnFunc` of 2.20.2: its backward pass drops two fields of its context."""

        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            contexts.append(weakref.ref(ctx))
            ctx.tensor_objects, ctx.backward_objects = [2], 3
            return q + k + v

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            scale = ctx.tensor_objects[0] * ctx.backward_objects
            ctx.tensor_objects = ctx.backward_objects = None
            return scale * dout, dout, dout

    class Module:
        def train(self, mode: bool) -> Module:
            return self

        def __call__(self, q: Any, k: Any, v: Any) -> Any:
            return Fused.apply(q, k, v).flatten(2)

    libraries.install_te(monkeypatch, module=lambda *_, **__: Module())
    leaves = [x.requires_grad_() for x in calls.tensors()]
    out = named("te_fused").load(call(backward=True, retain_graph=True))(*leaves)
    for _ in range(3):
        dq, _, _ = torch.autograd.grad(out, leaves, torch.ones_like(out), retain_graph=True)
        assert dq.eq(6).all()
    gc.disable()
    try:
        del out
        assert contexts[0]() is None  # at once, without a garbage collection
    finally:
        gc.enable()
    once = named("te_fused").load(call(backward=True))(*leaves)
    torch.autograd.grad(once, leaves, torch.ones_like(once), retain_graph=True)
    with pytest.raises(TypeError):
        torch.autograd.grad(once, leaves, torch.ones_like(once))
