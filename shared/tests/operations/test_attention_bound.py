"""How a kernel is bound to attention, its gradient and decoding: its outputs, and what is run when."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from calls import close, shape

from fluxbench import operations
from fluxbench.operations.shapes import AttentionCall


class Kernel:
    """Naive attention as a kernel; it notes what it is asked for, and how often."""

    def __init__(self, change: Any = lambda out: out, inputs: Any = lambda *inputs: inputs) -> None:
        self.asked: list[AttentionCall] = []
        self.calls, self.change, self.inputs = 0, change, inputs

    compiles = compiles_model = compiles_blocks = False
    diffusers = ""

    def eager(self, call: Any) -> Any:
        return self.attention(call)

    def in_form(self, call: Any, function: Any) -> Any:
        return function

    def attention(self, call: AttentionCall) -> Any:
        self.asked.append(call)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            q, k, v = self.inputs(q, k, v)
            scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / call.head_dim_qk**0.5
            return self.change(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v.double()))

        return attend


@pytest.mark.parametrize("name", ["attention", "attention_backward", "attention_training", "decode"])
def test_a_bound_kernel_gives_the_outputs_by_name(name: str) -> None:
    operation, kernel = operations.find(name), Kernel()
    of = shape(seq_len_q=1, seq_len_k=33)
    bound = operation.bind(kernel, of)
    inputs = operation.inputs(of, "normal", 0, "cpu")
    with torch.inference_mode(not operation.differentiates), torch.set_grad_enabled(False):
        close(dict(bound(inputs)), operation.reference(of, inputs, torch.float64), 3e-3)
    asked = {"backward": operation.differentiates, "retain_graph": name == "attention_backward"}
    assert kernel.asked == [AttentionCall.of(of, **asked)]
    assert not any(x.requires_grad for x in inputs.values())


def test_the_forward_pass_of_a_gradient_is_run_once_for_several_calls() -> None:
    operation, kernel = operations.find("attention_backward"), Kernel()
    bound = operation.bind(kernel, shape())
    prepared = bound.prepared(operation.inputs(shape(), "normal", 0, "cpu"))
    first, second = bound.call(prepared), bound.call(prepared)
    assert kernel.calls == 1
    assert all(torch.equal(first[name], second[name]) for name in ("dq", "dk", "dv"))
    assert all(isinstance(x, torch.Tensor) and x.is_contiguous() for x in first.values())


def test_training_runs_both_passes_in_each_call_and_accumulates_nothing() -> None:
    operation, kernel = operations.find("attention_training"), Kernel()
    bound = operation.bind(kernel, shape())
    inputs = operation.inputs(shape(), "normal", 0, "cpu")
    first, second = bound.call(bound.prepared(inputs)), bound.call(bound.prepared(inputs))
    assert bound.can_be_captured  # nothing of a call is computed before it
    assert kernel.calls == 2
    assert list(first) == ["out", "dq", "dk", "dv"]
    for name, x in first.items():
        assert isinstance(x, torch.Tensor)
        assert torch.equal(x, second[name])
        assert not x.requires_grad
    assert all(x.grad is None and not x.requires_grad for x in inputs.values())


@pytest.mark.parametrize("name", ["attention_backward", "attention_training"])
def test_a_kernel_without_a_gradient_is_said_to_have_none(name: str) -> None:
    operation = operations.find(name)
    inputs = operation.inputs(shape(), "normal", 0, "cpu")
    kernels: dict[str, Any] = {
        "q, k and v": Kernel(lambda out: out.detach()),
        "k and v": Kernel(inputs=lambda q, k, v: (q, k.detach(), v.detach())),
        "q": Kernel(inputs=lambda q, k, v: (q.detach(), k, v)),
    }
    for missing, kernel in kernels.items():
        with pytest.raises(NotImplementedError, match=f"no gradient with respect to {missing}$"):
            operation.bind(kernel, shape())(inputs)
