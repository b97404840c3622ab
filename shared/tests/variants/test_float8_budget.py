"""The budget of flash_attn_3_fp8 is what rounding to float8 with a scale for each head makes, and little more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from calls import shape

from fluxbench import operations
from fluxbench.variants import flash_attn_3

BUDGET = flash_attn_3.FLOAT8.quantized_budget_rel_l2 or 0.0


def test_values_of_one_scale_for_all_heads_are_over_the_budget_where_heads_differ() -> None:
    """What per-head scales are for: a head that is far smaller than another keeps its digits."""
    kernel = pytest.importorskip("fluxbench.kernels.float8")
    v = operations.find("attention").inputs(shape(), "normal", 0, "cpu")["v"]
    v *= torch.tensor([1, 1e-5, 1, 1])[:, None].bfloat16()
    errors = []
    for groups in (4, 1):
        (_, _, v8), (_, _, descale) = kernel.quantize_per_head(v, v, v, groups=groups)
        back = v8.float() * descale.repeat_interleave(4 // groups, 1)[:, None, :, None]
        errors.append(float((back - v)[:, :, 1].norm() / v[:, :, 1].norm()))
    assert errors[0] < BUDGET < errors[1]


def test_the_budget_is_what_rounding_to_float8_makes() -> None:
    operation, of = operations.find("attention"), shape(tokens=1152, heads=1, dim=128)
    errors = {}
    for kind in operation.input_kinds:
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
