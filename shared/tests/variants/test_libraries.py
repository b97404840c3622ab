"""What a variant says where its library is missing, does not fit or refuses, and what the library chose."""

from __future__ import annotations

import collections
import contextlib
import importlib
import inspect
import re
import sys
import types
from typing import Any

import calls
import fake_cudnn
import libraries
import pytest
import signatures
import torch
from calls import call

from fluxbench import variants
from fluxbench.variants import sageattention, xformers
from fluxbench.variants._base import Variant

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


def named(name: str) -> Variant:
    return variants.find(name).variant


def test_recorded_signatures_are_those_of_the_installed_packages() -> None:
    for name in signatures.RECORDED:
        module, _, function = name.rpartition(".")
        with contextlib.suppress(ImportError):
            real = inspect.signature(getattr(importlib.import_module(module), function))
            assert list(real.parameters) == list(signatures.signature(name).parameters), name


# FlashAttention-3, and its implementations in torch.


def test_flash_attn_3_prefers_its_own_interface_and_says_which_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = named("flash_attn_3")
    assert variant.detail
    rebuild = libraries.install_flash_attn_3(monkeypatch)
    assert calls.wrong(variant) is None
    assert (variant.detail(), len(rebuild)) == ("fa3_fwd_interface", 2)
    own = libraries.install_flash_attn_3(monkeypatch, "flash_attn_interface", libraries.with_lse)
    assert calls.wrong(variant) is None
    assert (variant.detail(), len(rebuild), len(own)) == ("flash_attn_interface", 2, 2)


@pytest.mark.parametrize("name", ["torch_fa3", "torch_fa4"])
def test_torch_s_choice_holds_within_a_call_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = libraries.FlashInTorch(monkeypatch)
    attention = named(name).load(call())
    assert chosen.active is None
    attention(*calls.tensors())
    attention(*calls.tensors())
    assert (chosen.at_calls, chosen.active) == ([name.removeprefix("torch_").upper()] * 2, None)


def test_torch_s_own_functions_activate_and_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    current = torch.nn.attention.current_flash_attention_impl
    cute = signatures.module(monkeypatch, "flash_attn.cute.interface")
    for function in ("_flash_attn_fwd", "_flash_attn_bwd"):
        monkeypatch.setattr(cute, function, None, raising=False)
    seen = []
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def noting(*tensors: Any, **options: Any) -> Any:
        seen.append(current())
        return sdpa(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    try:
        named("torch_fa4").load(call())(*calls.tensors())
    finally:  # torch keeps what it imported once
        importlib.import_module("torch.nn.attention._fa4")._fa4_import_module.cache_clear()
    assert (seen, current()) == (["FA4"], None)


@pytest.mark.parametrize(
    ("variant", "module", "missing", "words"),
    [
        *(
            ("torch_fa4", "torch.nn.attention", name, rf"torch .* has no torch.nn.attention.{name}; it needs a newer")
            for name in ("activate_flash_attention_impl", "restore_flash_attention_impl")
        ),
        ("flex_flash", "torch.nn.attention.flex_attention", "FlexKernelOptions", "no BACKEND option; it needs a newer"),
    ],
)
def test_a_torch_without_the_choice_says_so(
    variant: str, module: str, missing: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(importlib.import_module(module), missing)
    with pytest.raises(ImportError, match=words):
        named(variant).load(call())


def test_a_package_that_torch_s_choice_does_not_fit_says_so_and_leaves_nothing_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = libraries.FlashInTorch(monkeypatch)

    def unpack(*_: Any, **__: Any) -> None:
        _out, _lse = iter("five!")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", unpack)
    attention = named("torch_fa4").load(call())
    with pytest.raises(ImportError, match=r"torch .*'s FA4 does not fit flash-attn-4 .*: too many values to unpack"):
        attention(*calls.tensors())
    assert chosen.active is None


def test_a_name_that_torch_does_not_know_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise ValueError(f"Unknown flash attention impl '{name}'")

    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", unknown)
    with pytest.raises(ImportError, match=r"FA3 does not fit flash-attn-3 .*: Unknown flash attention impl 'FA3'"):
        named("torch_fa3").load(call())


# SageAttention.


def test_sageattention_is_given_keys_without_their_mean_and_changes_no_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    given = libraries.install_sage(monkeypatch)
    q, k, v = calls.tensors()
    k += 8
    before = k.clone()
    named("sage_int8_fp16_triton").load(call())(q, k, v)
    assert k.equal(before)
    assert given[0]["k"].float().mean(1).abs().max() < 0.1
    assert given[0]["smooth_k"] is False


def test_the_triton_kernel_of_2_x_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    chooses = libraries.install_sage(monkeypatch)
    triton = libraries.install_sage(monkeypatch, "sageattn_qk_int8_pv_fp16_triton")
    assert calls.wrong(sageattention.VARIANT) is None
    assert (len(chooses), len(triton)) == (0, 2)


@pytest.mark.parametrize("name", ["sage_int8_fp16_cuda", "sage_int8_fp8_sm90"])
def test_the_published_sageattention_has_no_cuda_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_sage(monkeypatch)
    words = (
        r"SageAttention 2.x is not published as a package, build .*: the sageattention that is here has no sageattn_qk"
    )
    with pytest.raises(ImportError, match=words):
        named(name).load(call())


@pytest.mark.parametrize("lengths", [(), (100, 23)])
def test_what_to_install_for_sageattention_is_said(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sageattention", None)
    with pytest.raises(ImportError, match=r"install sageattention==1\.0\.6: "):
        named("sage_int8_fp16_triton").load(call(lengths=lengths))


# Transformer Engine.


@pytest.mark.parametrize("name", ["te_fused", "te_flash", "te_unfused"])
def test_one_backend_alone_is_turned_on(name: str) -> None:
    variables = named(name).variables
    assert [key for key, value in variables.items() if value == "1"] == [
        f"NVTE_{name.removeprefix('te_').upper()}_ATTN"
    ]
    assert {key.removeprefix("NVTE_") for key, value in variables.items()} == {
        "FLASH_ATTN", "FUSED_ATTN", "UNFUSED_ATTN", "FLASH_ATTN_V3", "FLASH_ATTN_V4",
    }  # fmt: skip


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
    words = re.escape(str(error).removeprefix("/folder/").rstrip("."))
    with pytest.raises(ImportError, match=f"^{words}; install transformer-engine, its core and its torch part"):
        named("te_fused").load(call())


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"use_flash_attention": True, "flash_attention_backend": "2.8.3"}, "FlashAttention 2.8.3"),
        ({"use_fused_attention": True, "fused_attention_backend": 1}, "FusedAttention, sub-backend 1"),
        ({"use_unfused_attention": True}, "UnfusedDotProductAttention"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("name", ["te_fused", "te_flash", "te_unfused"])
def test_it_says_which_backend_transformer_engine_chose(
    name: str, kept: dict[str, Any], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = signatures.module(monkeypatch, f"{libraries.TE}.dot_product_attention")
    module._attention_backends = collections.defaultdict(lambda: None, kept)  # type: ignore[attr-defined]
    detail = named(name).detail
    assert detail
    assert detail() == words


# xFormers.


def test_an_xformers_that_was_built_for_another_torch_is_said_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_xformers(monkeypatch, failure=Exception(BUILT_FOR_ANOTHER))
    with pytest.raises(ImportError) as caught:
        named("xformers").load(call())
    assert str(caught.value) == (
        "xFormers can't load C++/CUDA extensions. xFormers was built for: PyTorch 2.10.0+cu128 with CUDA 1208 "
        "(you have 2.11.0+cu130); install the xformers that was built for this torch"
    )
    assert len(str(caught.value)) <= 200  # what a record's reason keeps of it


def test_xformers_list_of_operators_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**arguments: Any) -> Any:
        raise NotImplementedError(NO_OPERATOR)

    libraries.install_xformers(monkeypatch, answer=refuse)
    with pytest.raises(NotImplementedError) as caught:
        named("xformers").load(call())(*calls.tensors())
    assert str(caught.value) == (
        "xFormers has no operator for these inputs: fa3F@0.0.0: operator wasn't built - see `python -m xformers.info` "
        "for more info, cutlassF-pt: requires device with capability <= (9, 0) but your GPU has capability (12, 0) "
        "(too new)"
    )


@pytest.mark.parametrize(
    ("asked", "shapes"),
    [
        ({}, [[1, 123, 4, 64], [1, 123, 4, 64]]),
        ({"seq_len_q": 50, "backward": True}, [[1, 50, 4, 64], [1, 123, 4, 64]]),
        ({"kv_heads": 2, "causal": True}, [[1, 123, 2, 2, 64], [1, 123, 2, 2, 64]]),
    ],
)
def test_the_operator_that_xformers_chose_is_said(
    asked: dict[str, Any], shapes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries.install_xformers(monkeypatch)
    common = signatures.module(monkeypatch, "xformers.ops.fmha.common")
    common.Inputs = types.SimpleNamespace  # type: ignore[attr-defined]

    def dispatch(inp: Any, needs_gradient: bool) -> Any:
        assert [list(x.shape) for x in (inp.query, inp.key)] == shapes
        assert (inp.value.shape, inp.query.dtype) == (inp.key.shape, torch.bfloat16)
        assert (inp.attn_bias is not None, needs_gradient) == (asked.get("causal", False), asked.get("backward", False))
        return types.SimpleNamespace(NAME="fa2F@2.8.3")

    signatures.install(monkeypatch, "xformers.ops.fmha.dispatch._dispatch_fw", dispatch)
    attention = xformers.VARIANT.load(call(**asked))
    assert xformers.VARIANT.detail
    assert xformers.VARIANT.detail() is None  # nothing was called yet
    attention(*calls.tensors(**{key: value for key, value in asked.items() if key != "backward"}))
    assert xformers.VARIANT.detail() == "fa2F@2.8.3"


# cuDNN.


@pytest.mark.parametrize("name", ["cudnn_frontend", "cudnn_frontend_fp8"])
def test_a_graph_is_built_once_and_runs_on_the_current_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_cudnn.install(monkeypatch)
    attention = named(name).load(call())
    assert log == []  # a handle takes hold of the device
    attention(*calls.tensors())
    attention(*calls.tensors())
    assert log == ["build", "stream", "execute", "stream", "execute"]
    detail = named(name).detail
    assert detail
    assert detail() == "cuDNN 9.19.0"


@pytest.mark.parametrize("name", ["cudnn_frontend", "cudnn_frontend_fp8"])
def test_what_cudnn_refuses_is_said_in_its_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, refuse="no engine proposed a plan\nand more")
    with pytest.raises(NotImplementedError, match=r"^cuDNN 9.19.0 refuses the graph: no engine proposed a plan$"):
        named(name).load(call())(*calls.tensors())


def test_a_frontend_without_cudnn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, handle=False)
    with pytest.raises(ImportError, match=r"1.32.0 finds no cuDNN that works: Unable to find symbol cudnnCreate"):
        named("cudnn_frontend").load(call())(*calls.tensors())
