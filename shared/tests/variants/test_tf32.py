"""Unfused attention in TF32: the switch is on during its calls alone, and float32 libraries without one refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fakes import GPU, REPOSITORY, tokens

from fluxbench import operations, studies, variants
from fluxbench.core.settings import Settings
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.variants._tf32 import in_tf32


def switch() -> bool:
    return bool(torch.backends.cuda.matmul.allow_tf32)


@pytest.mark.parametrize("backward", [False, True])
def test_tf32_is_on_in_both_passes_and_off_outside(backward: bool) -> None:
    seen: list[tuple[str, bool]] = []

    class Noted(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append(("forward", switch()))
            return x * 2

        @staticmethod
        def backward(ctx: Any, dout: torch.Tensor) -> torch.Tensor:
            seen.append(("backward", switch()))
            return dout * 2

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return Noted.apply(q + k + v)

    x = [torch.ones(2, requires_grad=backward) for _ in range(3)]
    out = in_tf32(attend, backward=backward)(*x)
    assert torch.equal(out.detach(), torch.full((2,), 6.0))
    if backward:
        for _ in range(2):  # the graph of one forward pass serves several
            found = torch.autograd.grad(out, x, torch.ones(2), retain_graph=True)
            assert [float(each.sum()) for each in found] == [4.0] * 3
    assert seen == [("forward", True)] + [("backward", True)] * (2 * backward)
    assert not switch()

    def fails(*_: object) -> torch.Tensor:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        in_tf32(fails, backward=False)(*x)
    assert not switch()


def test_it_is_judged_as_tf32_and_takes_float32_alone() -> None:
    formed = variants.find("torch_math_tf32")
    assert (formed.variant.precision_class, formed.variant.holds_scores) == ("tf32", True)
    call = AttentionCall(seq_len_q=8, seq_len_k=8, heads=1, kv_heads=1, head_dim_qk=16, head_dim_v=16, dtype="float32")
    assert formed.supports(GPU, call) is None
    refused = formed.supports(GPU, AttentionCall(**{**vars(call), "dtype": "bfloat16"}))
    assert refused == "torch_math_tf32 takes float32, got bfloat16"
    workload = tokens("small", 40, "attention_training", dtype="float32")
    operation = operations.find(workload.operation)
    inputs = operation.inputs(workload.shape, "normal", 0, "cpu")
    with torch.set_grad_enabled(False):
        own = operation.bind(formed, workload.shape)(inputs)
        plain = operation.bind(variants.find("torch_math"), workload.shape)(inputs)
    assert own.keys() == plain.keys() == {"out", "dq", "dk", "dv"}
    assert all(torch.equal(own[name], plain[name]) for name in own)  # a CPU has no TF32


def test_torchs_efficient_kernel_of_float32_is_judged_as_tf32_under_a_name_of_its_own() -> None:
    own, plain = (variants.find(name).variant for name in ("torch_efficient_tf32", "torch_efficient"))
    assert (own.precision_class, plain.precision_class) == ("tf32", "exact")
    call = AttentionCall(seq_len_q=8, seq_len_k=8, heads=1, kv_heads=1, head_dim_qk=16, head_dim_v=16, dtype="float32")
    assert own.supports(GPU, call) is None
    assert own.kernel_pattern == plain.kernel_pattern


def test_float32_on_a_library_that_has_none_is_unsupported_and_the_other_rows_are_not() -> None:
    study = studies.find("scaling")
    settings = Settings(root=REPOSITORY, cache=REPOSITORY)
    workloads = study.workloads_on(GPU, settings)

    def reason(name: str, of: Workload) -> str | None:
        return variants.find(name).supports(GPU, operations.find(of.operation).attention(of.shape))

    found = {each.dtype: reason("torch_flash", each) for each in workloads if each.shape["head_dim_qk"] == 64}
    assert found == {"bfloat16": None, "float32": "torch_flash takes bfloat16 and float16, got float32"}
    assert [reason(name, each) for name in study.references for each in workloads] == [None] * 2 * len(workloads)
