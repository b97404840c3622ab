"""Every library's variant computes what it is asked for, in one call: mask, grouped heads, gradient, several sequences.

The libraries are the fakes of `libraries.py`, which are called as the real ones are.
"""

from __future__ import annotations

import calls
import libraries
import pytest
import torch
from fakes import CPU, GPU

from fluxbench import variants

LENGTHS = (53, 70)
OPERATIONS = ("attention", "attention_backward", "attention_training")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", libraries.FAKES)
def test_every_call_that_it_supports_is_right(name: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.FAKES[name](monkeypatch)
    with torch.inference_mode(operation == "attention"), torch.set_grad_enabled(False):
        assert calls.wrong_calls(variants.find(name).variant, GPU, operation) == {}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["torch_eager", "torch_flash", "torch_flash_det", "torch_math", "torch_native"])
def test_torch_computes_what_its_variants_support_on_a_cpu(name: str, operation: str) -> None:
    device = GPU if name.endswith("_det") else CPU  # where it is declared; torch has the kernel here too
    assert calls.wrong_calls(variants.find(name).variant, device, operation) == {}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", libraries.FAKES)
def test_sequences_of_several_lengths_do_not_see_each_other(
    name: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = variants.find(name).variant
    asked = calls.call(lengths=LENGTHS, causal=causal)
    if reason := variant.supports(GPU, asked):
        assert "several sequences in one call" in reason or "in its backward pass alone" in reason
        return
    libraries.FAKES[name](monkeypatch)
    q, k, v = calls.tensors()
    parts = zip(*(x.split(LENGTHS, dim=1) for x in (q, k, v)), strict=True)
    expected = torch.cat([libraries.attention(*part, causal=causal) for part in parts], 1)
    # SageAttention is given k less its mean, which is rounded.
    torch.testing.assert_close(variant.load(asked)(q, k, v), expected, atol=0.02, rtol=0)
