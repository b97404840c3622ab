"""Calls in succession as one CUDA graph; what cannot be captured, or is not repeated by a replay, is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fluxbench.timing.graph import CapturedCalls, GraphPool, GraphRefused

pytestmark = pytest.mark.gpu
Outputs = dict[str, object]


def slots() -> list[torch.Tensor]:
    return [torch.full((256,), float(value), device="cuda") for value in (1, 2)]


def double(x: torch.Tensor) -> Outputs:
    return {"out": x * 2}


def test_a_replay_returns_the_last_call_for_what_its_inputs_hold_then() -> None:
    inputs = slots()
    graph = CapturedCalls(double, inputs)
    inputs[-1].fill_(5)
    out = graph(inputs)["out"]
    assert isinstance(out, torch.Tensor)
    assert out.unique().tolist() == [10.0]


def test_a_call_that_waits_for_the_device_is_refused_and_the_device_stays_usable() -> None:
    with pytest.raises(GraphRefused, match="captur"):
        CapturedCalls(lambda x: {"out": x * float(x.sum().item())}, slots())
    assert torch.ones(2, device="cuda").sum().item() == 2


@pytest.mark.parametrize("is_shared", [False, True])
def test_memory_is_given_back_after_a_capture_that_failed(is_shared: bool) -> None:
    pool = GraphPool(torch.device("cuda")) if is_shared else None
    with pytest.raises(GraphRefused):
        CapturedCalls(lambda x: {"out": x * float(x.sum().item())}, slots(), pool)
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    del kept
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before - (1 << 30)


def test_calls_that_lack_memory_in_their_capture_say_so() -> None:
    def takes_all_in_a_graph(x: torch.Tensor) -> Outputs:
        torch.empty((1 << 50) if torch.cuda.is_current_stream_capturing() else 1, dtype=torch.uint8, device="cuda")
        return {"out": x * 2}

    with pytest.raises(GraphRefused) as refused:
        CapturedCalls(takes_all_in_a_graph, slots(), GraphPool(torch.device("cuda")))
    assert isinstance(refused.value.lack, torch.OutOfMemoryError)


def test_a_call_whose_work_is_not_in_the_graph_is_refused() -> None:
    def returns_what_it_was_given_last_time(x: torch.Tensor, kept: list[torch.Tensor] = []) -> Outputs:  # noqa: B006
        if not torch.cuda.is_current_stream_capturing():
            kept.append(x * 2)
        return {"out": torch.zeros_like(x) if torch.cuda.is_current_stream_capturing() else kept[-1]}

    with pytest.raises(GraphRefused, match="a replay returns another out than a call"):
        CapturedCalls(returns_what_it_was_given_last_time, slots())


def test_graphs_that_share_memory_return_their_own_outputs_in_any_order_after_one_was_refused() -> None:
    pool, inputs = GraphPool(torch.device("cuda")), slots()
    with pytest.raises(GraphRefused):
        CapturedCalls(lambda x: {"out": x * float(x.sum().item())}, inputs, pool)

    def times(by: int) -> Callable[[torch.Tensor], Outputs]:
        return lambda x: {"out": (x + 1) * by}

    graphs = [CapturedCalls(times(by), inputs, pool) for by in (1, 2, 3)]
    for index in (2, 0, 1, 2, 1, 0):
        out = graphs[index](inputs)["out"]
        assert isinstance(out, torch.Tensor)
        assert out.unique().tolist() == [3.0 * (index + 1)]
    del graphs[0], out
    assert CapturedCalls(double, inputs, pool)(inputs)["out"].unique().tolist() == [4.0]  # type: ignore[attr-defined]
