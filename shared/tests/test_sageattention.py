"""SageAttention without a GPU: how its functions are called, and what is said where one is missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import signatures
import torch

from fluxbench.operations import inputs
from fluxbench.variants import sageattention
from fluxbench.variants._base import Variant

GROUPED = replace(signatures.SMALL, kv_heads=2)
BATCHES = replace(signatures.SMALL, batch=2)


def named(variant: Variant) -> str:
    return variant.name


def sage(q: Any, k: Any, v: Any, tensor_layout: str = "HND", is_causal: bool = False, smooth_k: bool = True) -> Any:
    """Attend as 1.0.6 does where it does not quantize: it smooths its caller's k, and heads come first by default."""
    assert tensor_layout == "NHD"
    if smooth_k:
        k -= k.mean(dim=1, keepdim=True)
    return signatures.attention(q, k, v, causal=is_causal)


SAGE = [
    (sageattention.VARIANT, "sageattention.sageattn"),
    (sageattention.VARIANT, "sageattention.sageattn_qk_int8_pv_fp16_triton"),
    (sageattention.CUDA, "sageattention.sageattn_qk_int8_pv_fp16_cuda"),
    (sageattention.SM90, "sageattention.sageattn_qk_int8_pv_fp8_cuda_sm90"),
]


@pytest.mark.parametrize(("variant", "function"), SAGE)
def test_sageattention_is_called_as_it_is_published(
    variant: Variant, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = signatures.install(monkeypatch, function, sage)
    for workload in (signatures.SMALL, GROUPED, BATCHES):
        assert signatures.wrong(variant.load(), variant, workload) is None
    assert variant.capabilities
    assert callable(variant.capabilities.causal)
    assert signatures.wrong(variant.capabilities.causal(), variant, causal=True) is None
    assert len(calls) == 8


def test_sageattention_does_not_change_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, "sageattention.sageattn", sage)
    q, k, v = inputs.make(signatures.SMALL, "flux", seed=0, device="cpu")
    before = k.clone()
    sageattention.VARIANT.load()(q, k, v)
    assert k.equal(before)


def test_sageattention_is_given_keys_without_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = signatures.install(monkeypatch, "sageattention.sageattn", sage)
    q, k, v = inputs.make(signatures.SMALL, "flux", seed=0, device="cpu")
    sageattention.VARIANT.load()(q, k, v)
    assert k.float().mean(1).abs().max() > 7  # the channels with outliers
    assert calls[0]["k"].float().mean(1).abs().max() < 0.1


def test_sageattention_takes_sequences_of_several_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(q: Any, k: Any, v: Any, cu_seqlens_q: Any, smooth_k: bool, **rest: Any) -> Any:
        assert (smooth_k, rest["max_seqlen_q"], rest["max_seqlen_k"]) == (False, 80, 80)
        assert cu_seqlens_q.equal(rest["cu_seqlens_k"])
        return signatures.varlen(q, k, v, cu_seqlens_q)

    signatures.install(monkeypatch, "sageattention.sageattn_varlen", answer)
    assert sageattention.VARIANT.capabilities
    assert callable(sageattention.VARIANT.capabilities.varlen)
    q, k, v = inputs.make(signatures.SMALL, "normal", seed=0, device="cpu")
    expected = signatures.varlen(q[0], k[0], v[0], torch.tensor([0, 43, 123]))[None]
    torch.testing.assert_close(
        sageattention.VARIANT.capabilities.varlen((43, 80))(q, k, v), expected, atol=0.02, rtol=0
    )


@pytest.mark.parametrize("variant", [sageattention.CUDA, sageattention.SM90], ids=named)
def test_the_published_sageattention_has_no_cuda_kernels(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, "sageattention.sageattn", sage)
    with pytest.raises(
        ImportError, match=r"SageAttention 2.x is not published as a package, .* has no sageattn_qk_int8"
    ):
        variant.load()


@pytest.mark.parametrize(
    ("variant", "remedy"),
    [
        (sageattention.VARIANT, "install sageattention==1.0.6: "),
        (sageattention.SM90, "SageAttention 2.x is not published as a package, build it from its source: "),
    ],
)
def test_a_missing_sageattention_is_said(variant: Variant, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sageattention", None)
    with pytest.raises(ImportError, match=remedy):
        variant.load()
