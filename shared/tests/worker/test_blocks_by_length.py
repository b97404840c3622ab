"""A process whose workloads are of unlike lengths has a sustained block of each, on a GPU."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import Any

import pytest
import torch
from fakes import TINIER, TINY
from successions import graphs, like_a_gpu, measured
from workers import failures, honest, register, trials, variant

from fluxbench.bench.events import Failed, Lacked
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.records.status import Status
from fluxbench.worker import block, rows, trial
from fluxbench.worker.block import TrialBlock
from fluxbench.worker.request import Request


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """TINY has nine times the operations of TINIER."""
    like_a_gpu(monkeypatch)
    in_blocks = Request.in_blocks
    of_gpu = lambda self, names: in_blocks(dataclasses.replace(self, device="cuda"), names)  # noqa: E731
    monkeypatch.setattr(Request, "in_blocks", of_gpu)
    monkeypatch.setattr(block, "captured_by_name", graphs)


@pytest.fixture
def being_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The workloads of the block that is being taken, if one is."""
    now: list[tuple[str, ...]] = []
    take = TrialBlock.take

    def noting(self: TrialBlock, *given: Any) -> Any:
        now.append(tuple(self._calls))
        try:
            return take(self, *given)
        finally:
            now.clear()

    monkeypatch.setattr(TrialBlock, "take", noting)
    return now


@pytest.mark.parametrize("fullgraph", [True, False])
def test_blocks_of_one_length_follow_one_another_before_those_of_a_longer_one(
    monkeypatch: pytest.MonkeyPatch, *, fullgraph: bool
) -> None:
    """What is measured by itself has a block of each length too; whether it has graphs is decided for each."""
    taken: list[tuple[str, ...]] = []
    take = TrialBlock.take

    def noting(self: TrialBlock, *given: Any) -> Any:
        taken.append(tuple(self._calls))
        return take(self, *given)

    monkeypatch.setattr(TrialBlock, "take", noting)
    register(monkeypatch, variant("last", honest, compiles=True, fullgraph=fullgraph))
    names = ("last", "one", "torch_math")
    replays = {name: {"tiny": True, "tinier": False} for name in names}
    events = measured(monkeypatch, workloads=(TINY, TINIER), variants=names, replays=replays)
    assert failures(events) == []
    in_turn = 3 if fullgraph else 2
    assert taken == [("tinier",)] * in_turn + [("tiny",)] * in_turn + [("tinier",), ("tiny",)] * (3 - in_turn)
    for one in trials(events):
        assert [(list(its.samples_ms), its.replayed) for its in one.blocks] == [(["tinier"], False), (["tiny"], True)]
        busy_ms = sum(its.calls[name] * sum(ms) for its in one.blocks for name, ms in its.samples_ms.items())
        assert one.burst
        in_rounds = [sum(map(sum, one.burst.samples_ms.values())), sum(one.burst.control_ms)]
        beside = 0.0 if one.variant == "torch_math" else sum(map(sum, one.burst.reference_ms.values()))
        assert one.busy_s == pytest.approx((busy_ms + sum(in_rounds) + beside) / 1e3)


def test_graphs_of_a_variant_s_blocks_share_memory_and_the_longest_is_captured_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each block's own would be as much as all of its calls need, beside that of the other blocks."""
    captured: list[tuple[str, Any]] = []

    def noting(calls: Any, inputs: Any, pool: Any, **how: Any) -> Any:
        captured.append((*calls, pool))
        return graphs(calls, inputs, pool, **how)

    monkeypatch.setattr(block, "captured_by_name", noting)
    assert failures(measured(monkeypatch)) == []
    assert [name for name, _ in captured] == ["tiny", "tinier"] * 3
    pools = [pool for _, pool in captured]
    assert pools[::2] == pools[1::2]
    assert len(set(map(id, pools))) == 3


@pytest.mark.parametrize("fullgraph", [True, False])
def test_before_windows_of_long_calls_is_one_of_the_least_memory(
    monkeypatch: pytest.MonkeyPatch, being_taken: list[tuple[str, ...]], *, fullgraph: bool
) -> None:
    """One of their own length needs as much memory beside the graph: with 72 GB of an H200's 141 it was out."""
    lengths: list[int] = []

    def seen(call: AttentionCall) -> Attention:
        attend = honest(call)

        def attention(*qkv: torch.Tensor) -> torch.Tensor:
            if being_taken == [("tiny",)]:
                lengths.append(qkv[0].shape[1])
            return attend(*qkv)

        return attention

    register(monkeypatch, variant("last", seen, compiles=True, fullgraph=fullgraph))
    events = measured(monkeypatch, variants=("last", "one", "torch_math"))
    assert failures(events) == []
    [last] = [one for one in trials(events) if one.variant == "last"]
    shorter, longer = last.blocks
    assert last.burst
    assert shorter.lead_ms is None
    assert longer.lead_ms == pytest.approx(median(last.burst.samples_ms["tinier"]))
    own, least = (int(one.shape["seq_len_q"]) for one in (TINY, TINIER))
    windows = len(longer.windows)
    assert lengths.count(least) in (windows, windows + 1)  # one more may have been in the queue
    assert set(lengths) == {own, least}


def test_what_a_kernel_changes_in_the_call_before_a_window_is_found(
    monkeypatch: pytest.MonkeyPatch, being_taken: list[tuple[str, ...]]
) -> None:
    def spoils(call: AttentionCall) -> Attention:
        attend = honest(call)

        def attention(*qkv: torch.Tensor) -> torch.Tensor:
            out = attend(*qkv)
            if being_taken == [("tiny",)] and call.seq_len_q == TINIER.shape["seq_len_q"]:
                qkv[0].zero_()
            return out

        return attention

    events = measured(monkeypatch, loads={"one": spoils})
    failed = {(event.variant, event.workload, event.status) for event in events if isinstance(event, Failed)}
    assert failed == {("one", "tiny", Status.INCORRECT)}


def test_a_reference_without_burst_samples_has_the_same_call_before_its_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = measured(monkeypatch, variants=("one",))
    [reference] = [one for one in trials(events) if one.variant == "torch_math"]
    assert reference.burst is None
    assert [block.lead_ms is None for block in reference.blocks] == [True, False]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_memory_that_is_out_while_calls_are_timed_costs_a_workload(
    monkeypatch: pytest.MonkeyPatch, *, fullgraph: bool
) -> None:
    """Of a reference without burst samples calls are timed first: what is known then may be of some workloads alone."""
    real, asked = rows.warm_s, []

    def lacking(bound: Any, prepared: Any, stopwatch: Any) -> float:
        asked.append(prepared.workload.name)
        if prepared.workload.name == "tiny":
            raise torch.OutOfMemoryError("out of memory")
        return real(bound, prepared, stopwatch)

    monkeypatch.setattr(trial, "warm_s", lacking)
    register(monkeypatch, variant("last", honest, compiles=True, fullgraph=fullgraph))
    events = measured(monkeypatch, variants=("last",))
    assert "tiny" in asked
    assert {event.status for event in events if isinstance(event, Failed)} <= {Status.OUT_OF_MEMORY}
    assert any(isinstance(event, Failed | Lacked) for event in events)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_is_wrong_in_any_block_is_found(
    monkeypatch: pytest.MonkeyPatch, being_taken: list[tuple[str, ...]], *, fullgraph: bool
) -> None:
    def worse(call: AttentionCall) -> Attention:
        attend = honest(call)

        def attention(*qkv: torch.Tensor) -> torch.Tensor:
            out = attend(*qkv)
            return 1.5 * out if being_taken and call.seq_len_q == TINY.shape["seq_len_q"] else out

        return attention

    register(monkeypatch, variant("last", worse, compiles=True, fullgraph=fullgraph))
    events = measured(monkeypatch, variants=("last", "one", "torch_math"))
    failed = {(event.variant, event.workload, event.status) for event in events if isinstance(event, Failed)}
    assert failed == {("last", "tiny", Status.INCORRECT)}
    assert {one.variant: set(one.workloads) for one in trials(events)}["last"] == {"tinier"}
