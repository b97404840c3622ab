"""xFormers without a GPU: how it is called, which operator it chose, and what is said where it has none."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import signatures
import torch

from fluxbench.operations import inputs
from fluxbench.variants import xformers

GROUPED = replace(signatures.SMALL, kv_heads=2)
BATCHES = replace(signatures.SMALL, batch=2)

BUILT_FOR_ANOTHER = """xFormers can't load C++/CUDA extensions. xFormers was built for:
    PyTorch 2.10.0+cu128 with CUDA 1208 (you have 2.11.0+cu130)
    Python  3.10.19 (you have 3.12.3)
  Please reinstall xformers (see the documentation)
  Memory-efficient attention, SwiGLU, sparse and more won't be available.
"""
NO_OPERATOR = """No operator found for `memory_efficient_attention_forward` with inputs:
     query       : shape=(1, 123, 4, 64) (torch.bfloat16)
`fa3F@0.0.0` is not supported because:
    operator wasn't built - see `python -m xformers.info` for more info
`cutlassF-pt` is not supported because:
    requires device with capability <= (9, 0) but your GPU has capability (12, 0) (too new)"""


def install_xformers(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None, answer: Any = None) -> None:
    """Let xFormers be imported, whose C++ extension may have failed to load."""

    class LowerTriangularMask:
        pass

    def attend(query: Any, key: Any, value: Any, attn_bias: Any = None) -> Any:
        if query.ndim == 5:  # the groups of grouped heads
            out = signatures.attention(query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3))
            return out.view(query.shape)
        if isinstance(attn_bias, list):
            return signatures.varlen(query[0], key[0], value[0], torch.tensor([0, *attn_bias]).cumsum(0))[None]
        return signatures.attention(query, key, value, causal=isinstance(attn_bias, LowerTriangularMask))

    signatures.module(monkeypatch, "xformers._cpp_lib")._cpp_library_load_exception = (  # type: ignore[attr-defined]
        failure
    )
    signatures.install(monkeypatch, "xformers.ops.memory_efficient_attention", answer or attend)
    signatures.module(monkeypatch, "xformers.ops").LowerTriangularMask = (  # type: ignore[attr-defined]
        LowerTriangularMask
    )
    biases = "xformers.ops.fmha.attn_bias.BlockDiagonalMask"
    signatures.install(monkeypatch, f"{biases}.from_seqlens", lambda q_seqlen: q_seqlen)


def test_xformers_is_called_as_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    install_xformers(monkeypatch)
    variant = xformers.VARIANT
    for workload in (signatures.SMALL, BATCHES):
        assert signatures.wrong(variant.load(), variant, workload) is None
    assert variant.capabilities
    assert callable(variant.capabilities.gqa)
    assert signatures.wrong(variant.capabilities.gqa(), variant, GROUPED) is None
    assert callable(variant.capabilities.causal)
    assert signatures.wrong(variant.capabilities.causal(), variant, causal=True) is None
    assert callable(variant.capabilities.varlen)
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    expected = signatures.varlen(q[0], k[0], v[0], torch.tensor([0, 43, 123]))[None]
    assert variant.capabilities.varlen((43, 80))(q, k, v).equal(expected)


def test_an_xformers_that_was_built_for_another_torch_is_said_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install_xformers(monkeypatch, failure=Exception(BUILT_FOR_ANOTHER))
    with pytest.raises(ImportError) as said:
        xformers.VARIANT.load()
    assert str(said.value) == (
        "xFormers can't load C++/CUDA extensions. xFormers was built for: PyTorch 2.10.0+cu128 with CUDA 1208 "
        "(you have 2.11.0+cu130); install the xformers that was built for this torch"
    )
    assert len(str(said.value)) <= 200  # what a record's reason keeps of it


def test_its_list_of_operators_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**arguments: Any) -> Any:
        raise NotImplementedError(NO_OPERATOR)

    install_xformers(monkeypatch, answer=refuse)
    with pytest.raises(NotImplementedError) as said:
        xformers.VARIANT.load()(*inputs.make(signatures.SMALL, "normal", seed=0, device="cpu"))
    assert str(said.value) == (
        "xFormers has no operator for these inputs: fa3F@0.0.0: operator wasn't built - see `python -m xformers.info` "
        "for more info, cutlassF-pt: requires device with capability <= (9, 0) but your GPU has capability (12, 0) "
        "(too new)"
    )


def test_the_operator_that_it_chose_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install_xformers(monkeypatch)
    signatures.module(monkeypatch, "xformers.ops.fmha.common").Inputs = (  # type: ignore[attr-defined]
        types.SimpleNamespace
    )

    def dispatch(inp: Any, needs_gradient: bool) -> Any:
        assert (inp.query.shape, inp.query.dtype, needs_gradient) == ((1, 123, 4, 64), torch.bfloat16, False)
        return types.SimpleNamespace(NAME="fa2F@2.8.3")

    signatures.install(monkeypatch, "xformers.ops.fmha.dispatch._dispatch_fw", dispatch)
    monkeypatch.setattr(xformers, "_called", {})
    assert xformers.VARIANT.detail
    assert xformers.VARIANT.detail() is None
    xformers.VARIANT.load()(*inputs.make(signatures.SMALL, "normal", seed=0, device="cpu"))
    assert xformers.VARIANT.detail() == "fa2F@2.8.3"


def test_keeping_what_it_was_called_with_breaks_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    install_xformers(monkeypatch)
    operations = sys.modules["xformers.ops"]
    operations.memory_efficient_attention = (  # type: ignore[attr-defined]
        lambda q, k, v, attn_bias: signatures.attention(q, k, v)
    )
    monkeypatch.setattr(xformers, "_called", {})
    compiled = torch.compile(xformers.VARIANT.load(), backend="eager", fullgraph=True, dynamic=False)
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    with torch.inference_mode():
        assert compiled(q, k, v).equal(signatures.attention(q, k, v))
    assert xformers._called == {"size": (1, 123, 4, 64), "dtype": torch.bfloat16, "device": torch.device("cpu")}
