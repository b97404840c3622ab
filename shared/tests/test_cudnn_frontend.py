"""cuDNN's graphs without a GPU: what they describe, where they run, and what is said where cuDNN refuses."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import fake_cudnn
import pytest
import signatures

from fluxbench.operations import inputs
from fluxbench.variants import cudnn_frontend
from fluxbench.variants._base import Variant

GROUPED = replace(signatures.SMALL, kv_heads=2)
BATCHES = replace(signatures.SMALL, batch=2)
VARIANTS = [cudnn_frontend.VARIANT, cudnn_frontend.FLOAT8]


def named(variant: Variant) -> str:
    return variant.name


@pytest.fixture(autouse=True)
def _float8(monkeypatch: pytest.MonkeyPatch) -> None:
    quantization = types.ModuleType("fluxbench.kernels.float8")
    quantization.quantize_per_head = fake_cudnn.quantize_per_head  # type: ignore[attr-defined]
    quantization.dequantize = fake_cudnn.dequantize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fluxbench.kernels.float8", quantization)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_the_graph_computes_attention(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch)
    attention = variant.load()
    for workload in (signatures.SMALL, GROUPED, BATCHES, replace(signatures.SMALL, dtype="float16")):
        assert signatures.wrong(attention, variant, workload) is None
    assert variant.capabilities
    assert callable(variant.capabilities.causal)
    assert signatures.wrong(variant.capabilities.causal(), variant, causal=True) is None
    assert variant.detail
    assert variant.detail() == "cuDNN 9.19.0"


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_a_graph_is_built_once_for_a_shape_and_runs_on_the_current_stream(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fake_cudnn.install(monkeypatch)
    attention = variant.load()
    for workload in (signatures.SMALL, signatures.SMALL, GROUPED):
        attention(*inputs.make(workload, "normal", seed=0, device="cpu"))
    assert log == ["build", "stream", "execute", "stream", "execute", "build", "stream", "execute"]


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_what_cudnn_refuses_is_said_in_its_words(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, refuse="no engine proposed a plan\nand more")
    with pytest.raises(NotImplementedError, match=r"^cuDNN 9.19.0 refuses the graph: no engine proposed a plan$"):
        variant.load()(*inputs.make(signatures.SMALL, "normal", seed=0, device="cpu"))


def test_a_frontend_without_cudnn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, handle=False)
    with pytest.raises(ImportError, match=r"1.32.0 finds no cuDNN that works: Unable to find symbol cudnnCreate"):
        cudnn_frontend.VARIANT.load()(*inputs.make(signatures.SMALL, "normal", seed=0, device="cpu"))
