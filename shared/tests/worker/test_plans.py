"""Plans of a library are made before a process's turn, of the smallest workloads first, until it is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes import tokens
from workers import honest, register, variant

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.worker import plans
from fluxbench.worker.request import Request

WORKLOADS = (
    tokens("long", 24),
    tokens("short", 8),
    tokens("both", 16, "attention_training"),
    tokens("backward", 16, "attention_backward"),  # whose plan that of both makes
)
GPU = torch.device("cuda")


captures: list[int] = []  # how many calls were made up to each capture's end


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Give a variant that makes plans and notes the length of a call and whether it has a gradient; on the CPU."""
    seen: list[tuple[int, bool]] = []
    captures.clear()

    def captured(call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            captures.append(len(seen))

    def load(call: AttentionCall) -> Attention:
        attend = honest(call)

        def noted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            seen.append((q.shape[1], q.requires_grad))
            if call.seq_len_q == 24:
                raise RuntimeError("no plan")
            return attend(q, k, v)

        return noted

    register(monkeypatch, variant("planning", load, plans=True))
    register(monkeypatch, variant("plain", load))
    unfilled = plans._unfilled
    monkeypatch.setattr(plans, "_unfilled", lambda call, device: unfilled(call, torch.device("cpu")))
    monkeypatch.setattr(plans, "_capture", captured)
    monkeypatch.setattr(plans, "_made", set())
    return seen


ASKED = Request(device="cuda", workloads=WORKLOADS, variants=("plain", "planning"), references=("planning",))


def test_each_plan_is_made_once_and_a_refusal_is_left_to_the_check(called: list[Any]) -> None:
    held: list[int] = []
    plans.make_early(ASKED, lambda: False, held.append)
    assert held[-1] < min(held[:-1])  # others count on what a capture may take, and then on the rest
    assert called == [(8, False), (24, False), (16, True)]
    assert captures == [2, 3], "all in one, until one is refused"
    plans.make("planning", WORKLOADS[1], GPU)
    assert len(called) == 3


def test_none_is_made_once_the_process_is_asked_or_on_a_cpu(called: list[Any]) -> None:
    turns = itertools.chain([False, False], itertools.repeat(True))
    plans.make_early(ASKED, lambda: next(turns))
    plans.make("planning", WORKLOADS[0], torch.device("cpu"))
    plans.make("plain", WORKLOADS[0], GPU)
    assert called == [(8, False)]


@pytest.mark.gpu
@pytest.mark.parametrize("workload", [WORKLOADS[0], WORKLOADS[2]], ids=lambda workload: workload.operation)
def test_a_plan_is_made_without_a_kernel_on_the_device(monkeypatch: pytest.MonkeyPatch, workload: Workload) -> None:
    calls, ran = [], torch.zeros((), device="cuda")

    def load(call: AttentionCall) -> Attention:
        def counted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out = honest(call)(q, k, v)
            ran.add_(1)
            calls.append(out.shape)
            return out

        return counted

    register(monkeypatch, variant("planning", load, plans=True))
    plans.make("planning", workload, GPU)
    torch.cuda.synchronize()
    assert len(calls) == 1
    assert float(ran) == 0
    torch.zeros(8, device="cuda").add_(1).sum().item()  # the process goes on
