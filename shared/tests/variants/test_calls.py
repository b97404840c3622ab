"""Every library's variant computes what it is asked for, in one call: mask, grouped heads, gradient, several sequences.

The libraries are the fakes of `libraries.py`, which are called as the real ones are.
"""

from __future__ import annotations

import calls
import libraries
import pytest
import torch
from calls import CALLS
from fakes import CPU, GPU

from fluxbench import variants
from fluxbench.operations.shapes import AttentionCall

LENGTHS = (53, 70)
IN_TORCH = {"torch_flash", "torch_cudnn", "torch_efficient", "torch_math", "torch_native"}
REAL = IN_TORCH | {"triton_flash"}
ALL = {variant.name for variant in variants.REGISTRY}


def test_every_library_has_a_fake() -> None:
    assert libraries.FAKES.keys() == ALL - REAL


@pytest.mark.parametrize("operation", ["attention", "attention_backward"])
@pytest.mark.parametrize("name", libraries.FAKES)
def test_every_call_that_it_supports_is_right(name: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.FAKES[name](monkeypatch)
    variant = variants.find(name).variant
    backward = operation == "attention_backward"
    supported = [
        key for key, asked in CALLS.items() if variant.supports(GPU, calls.call(**asked, backward=backward)) is None
    ]
    with torch.inference_mode(not backward), torch.set_grad_enabled(False):
        assert {key: calls.wrong(variant, operation, **CALLS[key]) for key in supported} == dict.fromkeys(supported)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", libraries.FAKES)
def test_sequences_of_several_lengths_do_not_see_each_other(
    name: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = variants.find(name).variant
    asked = calls.call(lengths=LENGTHS, causal=causal)
    if reason := variant.supports(GPU, asked):
        assert "several sequences in one call" in reason
        return
    libraries.FAKES[name](monkeypatch)
    q, k, v = calls.tensors()
    parts = zip(*(x.split(LENGTHS, dim=1) for x in (q, k, v)), strict=True)
    expected = torch.cat([libraries.attention(*part, causal=causal) for part in parts], 1)
    # SageAttention is given k less its mean, which is rounded.
    torch.testing.assert_close(variant.load(asked)(q, k, v), expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("name", IN_TORCH)
def test_torch_computes_what_its_variants_support_on_a_cpu(name: str) -> None:
    variant = variants.find(name).variant
    for operation in ("attention", "attention_backward"):
        backward = operation == "attention_backward"
        for key, asked in {**CALLS, "two head dims": {"head_dim_v": 32}, "float32": {"dtype": "float32"}}.items():
            call: AttentionCall = calls.call(**asked, backward=backward)
            if variant.supports(CPU, call) is None:
                assert calls.wrong(variant, operation, **asked) is None, (operation, key)
