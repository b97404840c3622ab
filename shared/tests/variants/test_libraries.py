"""What a variant says where its library is missing, does not fit or refuses, and what the library chose."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import types
from typing import Any

import calls
import fake_cudnn
import libraries
import pytest
import signatures
import torch
from calls import call
from families import named

from fluxbench.variants import sageattention, xformers
from fluxbench.variants._determinism import deterministic_backward


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
    assert (variant.detail(), len(rebuild)) == ("fa3_fwd_interface", 4)
    own = libraries.install_flash_attn_3(monkeypatch, "flash_attn_interface", libraries.with_lse)
    assert calls.wrong(variant) is None
    assert (variant.detail(), len(rebuild), len(own)) == ("flash_attn_interface", 4, 4)


@pytest.mark.parametrize("name", ["torch_fa3", "torch_fa4"])
def test_torch_s_choice_holds_within_a_call_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = libraries.FlashInTorch(monkeypatch)
    attention = named(name).load(call())
    assert chosen.active is None
    attention(*calls.tensors())
    attention(*calls.tensors())
    assert (chosen.at_calls, chosen.active) == ([name.removeprefix("torch_").upper()] * 2, None)


@pytest.mark.parametrize(
    ("variant", "module", "missing"),
    [
        ("torch_fa4", "torch.nn.attention", "activate_flash_attention_impl"),
        ("torch_fa4", "torch.nn.attention", "restore_flash_attention_impl"),
        ("flex_flash", "torch.nn.attention.flex_attention", "FlexKernelOptions"),
    ],
)
def test_a_torch_without_the_choice_says_so(
    variant: str, module: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(importlib.import_module(module), missing)
    with pytest.raises(ImportError, match="it needs a newer"):
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

    def unknown(name: str) -> None:
        raise ValueError(f"Unknown flash attention impl '{name}'")

    monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", unknown)
    with pytest.raises(ImportError, match=r"FA3 does not fit flash-attn-3 .*: Unknown flash attention impl 'FA3'"):
        named("torch_fa3").load(call())


def test_a_compiled_call_of_flash_attn_3_has_the_channels_of_v(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_flash_attn_3(monkeypatch)
    attention = torch.compile(named("flash_attn_3").load(call(head_dim_v=32)), backend="eager", fullgraph=True)
    q, k, v = calls.tensors(head_dim_v=32)
    assert attention(q, k, v).sum(dim=3).shape == q.shape[:3]
    assert attention(q, k, v).equal(libraries.attention(q, k, v))


def test_the_rebuild_of_flash_attn_3_has_no_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.install_flash_attn_3(monkeypatch)
    with pytest.raises(ImportError, match=r"^fa3_fwd_interface has no backward pass; install flash_attn_interface"):
        named("flash_attn_3").load(call(backward=True))


# Deterministic backward passes.


@pytest.mark.parametrize("was_on", [False, True])
def test_torch_s_switch_is_on_during_the_backward_pass_alone(was_on: bool) -> None:
    seen: list[bool] = []

    class Attend(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            seen.append(torch.are_deterministic_algorithms_enabled())
            return q + k + v

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            seen.append(torch.are_deterministic_algorithms_enabled())
            return dout, 2 * dout, 3 * dout

    leaves = [x.requires_grad_() for x in calls.tensors()]
    torch.use_deterministic_algorithms(was_on)
    try:
        out = deterministic_backward(Attend.apply)(*leaves)
        found = [torch.autograd.grad(out, leaves, torch.ones_like(out), retain_graph=True) for _ in range(2)]
        after = torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert [[int(x[0, 0, 0, 0]) for x in each] for each in found] == [[1, 2, 3]] * 2
    assert (seen, after) == ([was_on, True, True], was_on)


def test_a_deterministic_variant_asks_its_library_for_it_and_the_other_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deterministic(name: str, given: list[dict[str, Any]]) -> bool:
        named(name).load(call(backward=True))(*calls.tensors())
        return bool(given[-1].get("deterministic", False))

    for name, function in (
        ("flash_attn_2", "flash_attn.flash_attn_func"),
        ("flash_attn_4", "flash_attn.cute.flash_attn_func"),
    ):
        libraries.FAKES[name](monkeypatch)
        answer = libraries.flash if name == "flash_attn_2" else libraries.with_lse(libraries.flash)
        given = signatures.install(monkeypatch, function, answer)
        assert [deterministic(name, given), deterministic(f"{name}_det", given)] == [False, True]
    assert "NVTE_ALLOW_NONDETERMINISTIC_ALGO" not in named("te_fused").variables
    assert named("te_fused_det").variables == {**named("te_fused").variables, "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}
    for name in ("cudnn_frontend", "cudnn_frontend_det"):
        log = fake_cudnn.install(monkeypatch)
        assert calls.wrong(named(name), "attention_backward") is None
        assert ("deterministic" in log) == name.endswith("_det")


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
    with pytest.raises(ImportError, match=r"SageAttention 2.x is not published .* has no sageattn_qk"):
        named(name).load(call())


# xFormers.


def test_an_xformers_that_was_built_for_another_torch_is_said_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Exception("xFormers was built for:\n    PyTorch 2.10.0+cu128 (you have 2.11.0+cu130)\n    Python 3.10")
    libraries.install_xformers(monkeypatch, failure=failure)
    with pytest.raises(
        ImportError, match=r"^xFormers was built for: PyTorch 2.10.0\+cu128 .*; install the xformers that"
    ):
        named("xformers").load(call())


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
