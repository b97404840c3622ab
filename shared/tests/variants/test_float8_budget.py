"""The budget of flash_attn_3_fp8 is what rounding to float8 with a scale for each head makes, and little more."""

from __future__ import annotations

from typing import Any

import torch
from calls import shape

from fluxbench import operations
from fluxbench.variants import flash_attn_3

BUDGET = flash_attn_3.FLOAT8.quantized_budget_rel_l2 or 0.0


def test_the_budget_is_what_rounding_to_float8_makes() -> None:
    operation, of = operations.find("attention"), shape(tokens=1152, heads=1, dim=128)
    errors = {}
    for kind in ("normal", "flux"):  # those for which budgets of quantized variants are declared
        inputs = operation.inputs(of, kind, 0, "cpu")
        exact = operation.reference(of, inputs, torch.float64)["out"]
        q, k, v = (rounded(inputs[name].float(), inputs[name].abs().max().float())[0, :, 0] for name in "qkv")
        scores = q @ k.T * q.shape[-1] ** -0.5
        weights = torch.exp(scores - scores.amax(1, keepdim=True))
        out = (rounded(weights, torch.tensor(448 / 256)) @ v / weights.sum(1, keepdim=True)).bfloat16()
        errors[kind] = float((out[None, :, None] - exact).norm() / exact.norm())
    assert 0.8 * BUDGET < max(errors.values()) < BUDGET, errors


def rounded(x: Any, largest: Any) -> Any:
    """Return what is left of values in float8, with a scale for this largest one."""
    return (x * (448 / largest)).to(torch.float8_e4m3fn).float() * (largest / 448)
