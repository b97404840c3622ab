"""Copied and compiled forms: the same values, in one graph."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any

import calls
import libraries
import pytest
import signatures
import torch
from calls import call
from fakes import GPU

from fluxbench import variants
from fluxbench.variants import forms
from fluxbench.variants._base import YES, Capabilities, Variant
from fluxbench.variants.forms import FormedVariant

ANY = Capabilities(dtypes=("bfloat16",), minimum=(8, 0))


@pytest.fixture(autouse=True)
def _compile_anew() -> None:
    torch.compiler.reset()


def compiled(name: str, **asked: Any) -> Any:
    """Return a variant's attention as one graph that is traced, and run as it is."""
    attention = variants.find(name).variant.load(call(**asked))
    return torch.compile(attention, fullgraph=True, dynamic=False, backend="eager")


def test_a_copy_is_given_the_same_values_with_heads_first_in_memory() -> None:
    given: list[torch.Tensor] = []
    made = Variant(name="made_up", label="", load=lambda call: lambda *inputs: given.extend(inputs), capabilities=ANY)
    inputs = calls.tensors(kv_heads=2)
    FormedVariant(made, forms.COPY).attention(call(kv_heads=2))(*inputs)
    for x, copy in zip(inputs, given, strict=True):
        assert copy.equal(x)
        assert copy.transpose(1, 2).is_contiguous()
        assert copy.data_ptr() != x.data_ptr()


def test_a_compiled_form_is_compiled_in_its_mode_in_one_graph_unless_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compile_nothing(function: Any, **options: Any) -> Any:
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    q, k, v = calls.tensors()
    for whole, form in ((True, forms.COMPILE_DEFAULT), (False, forms.COMPILE_MAX_AUTOTUNE)):
        made = Variant(
            name="made_up", label="", load=lambda call: lambda *qkv: qkv[0] + 1, capabilities=ANY, fullgraph=whole
        )
        assert FormedVariant(made, form).attention(call())(q, k, v).equal(q + 1)
    assert [(each["mode"], each["fullgraph"]) for each in asked] == [("default", True), ("max-autotune", False)]
    assert not any(each["dynamic"] for each in asked)


def test_a_compiled_backward_pass_runs_several_times_also_where_both_passes_were_compiled_before() -> None:
    import torch._functorch.config

    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax((q * k).sigmoid() * v, -1).exp()

    made = Variant(name="made_up", label="", load=lambda call: attend, capabilities=replace(ANY, backward=YES))
    leaves = [x.requires_grad_() for x in calls.tensors()]
    found = []
    with torch._functorch.config.patch(donated_buffer=True):  # torch's default
        for retain_graph, times in ((False, 1), (True, 2), (False, 1), (True, 2)):
            asked: dict[str, Any] = {"backward": True, "retain_graph": retain_graph}
            out = FormedVariant(made, forms.COMPILE_DEFAULT).attention(call(**asked))(*leaves)
            for _ in range(times):
                found.append(torch.autograd.grad(out.sum(), leaves, retain_graph=retain_graph))
    assert all(one.equal(other) for each in found[1:] for one, other in zip(found[0], each, strict=True))
    autotuned = FormedVariant(made, forms.COMPILE_MAX_AUTOTUNE)
    asked = {"backward": True, "retain_graph": True}
    assert "only until the next forward pass" in str(autotuned.supports(GPU, call(**asked)))
    assert autotuned.supports(GPU, call(backward=True)) is None


def test_flex_compiles_a_graph_that_may_be_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._functorch.config

    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    with torch._functorch.config.patch(donated_buffer=True):
        variants.find("flex").attention(call(backward=True, retain_graph=True))
        assert torch._functorch.config.donated_buffer is False


@pytest.mark.parametrize("name", ["flash_attn_3", "flash_attn_3_fp8"])
def test_flash_attn_3_compiles_in_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = libraries.install_flash_attn_3(monkeypatch)
    eager = variants.find(name).variant.load(call(kv_heads=2, causal=True))
    inputs = calls.tensors(kv_heads=2)
    with torch.inference_mode():
        expected = eager(*inputs)
        assert compiled(name, kv_heads=2, causal=True)(*inputs).equal(expected)
    assert [each["causal"] for each in given] == [True, True]  # the fake is traced, the package is not


@pytest.mark.parametrize("name", ["xformers", "te_fused"])
def test_what_a_variant_keeps_breaks_no_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(q: Any, k: Any, v: Any, **_: Any) -> Any:
        return libraries.attention(q, k, v)

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return attend(q, k, v).flatten(2)

    libraries.install_xformers(monkeypatch)
    importlib.import_module("xformers.ops").memory_efficient_attention = attend  # type: ignore[attr-defined]
    libraries.install_te(monkeypatch, module=lambda *_, **__: Module())
    q, k, v = calls.tensors()
    with torch.inference_mode():
        assert compiled(name)(q, k, v).equal(libraries.attention(q, k, v))


def test_flex_is_compiled_for_more_lengths_than_torch_allows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.config

    compiles = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compiles(function, backend="eager", **options))
    with torch._dynamo.config.patch(recompile_limit=2):
        for tokens in (5, 6, 7, 9):
            q = torch.randn(1, tokens, 1, 16)
            out = variants.find("flex").attention(call(tokens=tokens, heads=1, dim=16, dtype="float32"))(q, q, q)
            torch.testing.assert_close(out, libraries.attention(q, q, q))


def test_a_causal_mask_of_flex_is_made_beside_the_graph() -> None:
    asked = {"tokens": 64, "heads": 2, "causal": True}
    q, k, v = calls.tensors(tokens=64, heads=2)
    with torch.inference_mode():
        out = compiled("flex_eager", **asked)(q, k, v)
    torch.testing.assert_close(out, libraries.attention(q, k, v, causal=True), atol=0.02, rtol=0)


def test_a_compiled_module_keeps_what_it_chose_and_an_eager_one_after_it_chooses_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, Any] = {"attention_params": None}
    chosen: list[int] = []

    @dataclass
    class Parameters:
        seq_len: int

    choose = torch._dynamo.disable(chosen.append)

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            parameters = Parameters(q.shape[1])
            if kept["attention_params"] is None or parameters != kept["attention_params"]:
                kept["attention_params"] = parameters
                choose(parameters.seq_len)
            return libraries.attention(q, k, v).flatten(2)

    libraries.install_te(monkeypatch, module=lambda *_, **__: Module())
    module = signatures.module(monkeypatch, f"{libraries.TE}.dot_product_attention")
    module._attention_backends = kept  # type: ignore[attr-defined]
    load = variants.find("te_fused").variant.load
    with torch.inference_mode():
        for tokens in (64, 96):
            attention = torch.compile(load(call(tokens=tokens)), backend="eager", dynamic=False)
            for _ in range(2):
                q, k, v = calls.tensors(tokens=tokens)
                assert attention(q, k, v).equal(libraries.attention(q, k, v))
        eager = load(call(tokens=64))
        for _ in range(2):
            eager(*calls.tensors(tokens=64))
    assert chosen == [64, 96, 64]
