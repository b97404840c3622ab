"""Transformer Engine without a GPU: how its modules are made and called, and what is said where it does not load."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass, replace
from typing import Any

import pytest
import signatures
import torch

from fluxbench.operations import inputs
from fluxbench.variants import transformer_engine
from fluxbench.variants._base import Variant

GROUPED = replace(signatures.SMALL, kv_heads=2)
BATCHES = replace(signatures.SMALL, batch=2)
VARIANTS = [transformer_engine.FUSED, transformer_engine.FLASH, transformer_engine.UNFUSED]
TE = "transformer_engine.pytorch.attention.dot_product_attention"


def named(variant: Variant) -> str:
    return variant.name


class DotProductAttention:
    """Attention as its arguments say; its defaults are [seq_len, batch, heads, head_dim] and a causal mask."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = {"qkv_format": "sbhd", "attn_mask_type": "causal", "num_gqa_groups": None, **arguments}
        self.training = True

    def train(self, mode: bool = True) -> DotProductAttention:
        self.training = mode
        return self

    def __call__(self, *positional: Any, **keywords: Any) -> Any:
        call = signatures.signature("transformer_engine.pytorch.DotProductAttention.forward").bind(
            *positional, **keywords
        )
        q, k, v = (call.arguments[f"{name}_layer"] for name in ("query", "key", "value"))
        heads, groups = self.arguments["num_attention_heads"], self.arguments["num_gqa_groups"]
        assert (heads, groups or heads, self.arguments["kv_channels"]) == (q.shape[-2], k.shape[-2], q.shape[-1])
        if self.arguments["qkv_format"] == "thd":
            assert self.arguments["attn_mask_type"] == "padding"
            assert call.arguments["cu_seqlens_q"].equal(call.arguments["cu_seqlens_kv"])
            return signatures.varlen(q, k, v, call.arguments["cu_seqlens_q"]).flatten(1)
        causal = {"no_mask": False, "causal": True}[self.arguments["attn_mask_type"]]
        if self.arguments["qkv_format"] == "sbhd":
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return signatures.attention(q, k, v, causal=causal).flatten(2)


def install_te(monkeypatch: pytest.MonkeyPatch, flash: str = "2.8.3", module: Any = None) -> list[dict[str, Any]]:
    """Let Transformer Engine be imported, with this version of flash-attn; return the modules that are made."""
    utilities = signatures.module(monkeypatch, f"{TE}.utils")
    utilities.FlashAttentionUtils = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_installed=flash == "2.8.3", version=flash
    )
    name = "transformer_engine.pytorch.DotProductAttention"
    return signatures.install(monkeypatch, name, module or DotProductAttention)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_transformer_engine_is_called_as_it_is_published(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    install_te(monkeypatch)
    for workload in (signatures.SMALL, GROUPED, BATCHES):
        assert signatures.wrong(variant.load(), variant, workload) is None
    assert variant.capabilities
    assert callable(variant.capabilities.causal)
    assert signatures.wrong(variant.capabilities.causal(), variant, causal=True) is None
    assert callable(variant.capabilities.varlen)
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    expected = signatures.varlen(q[0], k[0], v[0], torch.tensor([0, 43, 123]))[None]
    assert variant.capabilities.varlen((43, 80))(q, k, v).equal(expected)


def test_transformer_engine_makes_a_module_for_each_number_of_heads_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = install_te(monkeypatch)
    attention = transformer_engine.FUSED.load()
    for workload in (signatures.SMALL, replace(signatures.SMALL, seq_len=64), GROUPED):
        attention(*inputs.make(workload, "normal", seed=0, device="cpu"))
    assert [(call["num_attention_heads"], call["num_gqa_groups"]) for call in made] == [(4, 4), (4, 2)]


@pytest.mark.parametrize(
    ("variant", "on"),
    [
        (transformer_engine.FUSED, "NVTE_FUSED_ATTN"),
        (transformer_engine.FLASH, "NVTE_FLASH_ATTN"),
        (transformer_engine.UNFUSED, "NVTE_UNFUSED_ATTN"),
    ],
)
def test_one_backend_alone_is_turned_on(variant: Variant, on: str) -> None:
    assert [name for name, value in variant.variables.items() if value == "1"] == [on]
    assert set(transformer_engine.FUSED.variables) == set(variant.variables)


def test_making_its_module_breaks_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return signatures.attention(q, k, v).flatten(2)

    def make(**arguments: Any) -> Module:
        torch._dynamo.graph_break()  # where it is traced
        return Module()

    made = install_te(monkeypatch, module=make)
    compiled = torch.compile(transformer_engine.FUSED.load(), backend="eager", fullgraph=True, dynamic=False)
    with torch.inference_mode():
        for workload in (signatures.SMALL, signatures.SMALL, GROUPED):
            q, k, v = inputs.make(workload, "normal", seed=0, device="cpu")
            assert compiled(q, k, v).equal(signatures.attention(q, k, v))
    assert len(made) == 2


def test_a_compiled_module_keeps_what_it_chose_and_an_eager_one_after_it_chooses_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, Any] = {"attention_params": None}
    chosen = []

    @dataclass
    class Parameters:
        seq_len: int

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def choose(seq_len: int) -> None:
        chosen.append(seq_len)

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            parameters = Parameters(q.shape[1])
            if kept["attention_params"] is None or parameters != kept["attention_params"]:
                kept["attention_params"] = parameters
                choose(parameters.seq_len)
            return signatures.attention(q, k, v).flatten(2)

    install_te(monkeypatch, module=lambda **_: Module())
    signatures.module(monkeypatch, f"{TE}.dot_product_attention")._attention_backends = kept  # type: ignore[attr-defined]
    several = [inputs.make(replace(signatures.SMALL, seq_len=n), "normal", 0, "cpu") for n in (64, 96, 64, 96, 64)]
    with torch.inference_mode():
        compiled = torch.compile(transformer_engine.FUSED.load(), backend="eager", dynamic=False)
        for q, k, v in several:
            assert compiled(q, k, v).equal(signatures.attention(q, k, v))
        assert chosen == [64, 96]
        eager = transformer_engine.FUSED.load()
        for q, k, v in several:
            eager(q, k, v)
    assert chosen == [64, 96, 64, 96, 64, 96, 64]


@pytest.mark.parametrize(("version", "found"), [("0", "none"), ("2.9.1", "2.9.1")])
def test_a_flash_attn_that_it_does_not_take_is_said(version: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install_te(monkeypatch, flash=version)
    with pytest.raises(ImportError, match=f"takes flash-attn 2 and finds {found}; install flash-attn==2.8.3"):
        transformer_engine.FLASH.load()
    transformer_engine.FUSED.load()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("/folder/transformer_engine_torch.so: undefined symbol: _ZN3c10"),
        AssertionError("Could not find TE core package `transformer-engine-cu*`."),
        FileNotFoundError("Could not find shared object file for Transformer Engine torch lib."),
    ],
)
def test_a_transformer_engine_that_does_not_load_is_said_in_its_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> Any:
        raise error

    module = signatures.module(monkeypatch, "transformer_engine.pytorch")
    module.__getattr__ = fail  # type: ignore[method-assign]
    with pytest.raises(ImportError, match=re.escape(str(error).removeprefix("/folder/").rstrip("."))) as said:
        transformer_engine.FUSED.load()
    assert "/folder" not in str(said.value)
    assert "install transformer-engine, its core and its torch part" in str(said.value)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"use_flash_attention": True, "flash_attention_backend": "2.8.3"}, "FlashAttention 2.8.3"),
        ({"use_fused_attention": True, "fused_attention_backend": 1}, "FusedAttention, sub-backend 1"),
        ({"use_unfused_attention": True}, "UnfusedDotProductAttention"),
        ({}, None),
    ],
)
def test_it_says_which_backend_was_chosen(
    chosen: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ("use_flash_attention", "flash_attention_backend", "use_fused_attention", "fused_attention_backend")
    module = signatures.module(monkeypatch, f"{TE}.dot_product_attention")
    module._attention_backends = {  # type: ignore[attr-defined]
        **dict.fromkeys((*nothing, "use_unfused_attention")),
        **chosen,
    }
    assert transformer_engine.chosen() == said
