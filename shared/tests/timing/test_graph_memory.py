"""A graph keeps the memory of its calls, which a call that the host launches may lack."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from captures import Graph, without_a_gpu

from fluxbench.timing import graph
from fluxbench.timing.graph import CapturedCalls, GraphPool, GraphRefused, captured_by_name


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_gpu(monkeypatch)


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        (1, "OutOfMemoryError: no memory"),  # at the first call on the stream
        (2, "OutOfMemoryError: no memory"),  # captured
        (3, "a call has too little memory beside that of its graph"),  # beside the graph
    ],
)
def test_a_call_without_memory_for_its_graph_or_beside_it_is_refused_for_want_of_memory(
    lacking: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def call(x: torch.Tensor) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == lacking:
            raise torch.OutOfMemoryError("no memory")
        return {"out": x * 2}

    class Ends(Graph):
        def capture_end(self, pool: object = None) -> None:
            if calls == lacking:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Ends)
    with pytest.raises(GraphRefused, match=f"^{reason}$") as refused:
        CapturedCalls(call, [torch.ones(2)])
    assert isinstance(refused.value.lack, torch.OutOfMemoryError)


@pytest.mark.parametrize("fails_in", ["call", "end"])
def test_torch_is_told_of_a_capture_that_failed_in_a_call_or_at_its_end(
    fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda device, pool: told.append(pool), raising=False)
    captures: list[None] = []

    class Ends(Graph):
        def capture_begin(self, pool: object = None) -> None:
            captures.append(None)

        def capture_end(self, pool: object = None) -> None:
            raise RuntimeError("capture invalidated")

    def call(x: torch.Tensor) -> dict[str, Any]:
        if captures and fails_in == "call":
            raise RuntimeError("it waits")
        return {"out": x * 2}

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Ends)
    with pytest.raises(GraphRefused, match="it waits" if fails_in == "call" else "capture invalidated"):
        CapturedCalls(call, [torch.ones(2)])
    assert told == [(0, 1)]


def test_what_replays_of_a_pool_return_is_told_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    outputs: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> dict[str, Any]:
        outputs.append(x * 2)
        return {"out": outputs[-1]}

    class Returns(Graph):
        value = 2.0

        def replay(self) -> None:
            outputs[-1].fill_(self.value)  # the last call was captured

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Returns)
    pool, made = GraphPool(torch.device("cpu")), []
    for value in (2.0, 3.0, 2.0):
        Returns.value = value
        made.append(CapturedCalls(call, [torch.ones(2)], pool))
    assert pool.refused() == {made[1]: "a replay returns another out than a call"}
    assert pool.refused() == {}


def test_a_long_call_is_made_once_before_its_capture_and_its_replay_is_compared_with_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(None))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 30))
    static = torch.zeros(2)  # a library's own buffer, which each call overwrites and returns
    calls: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> dict[str, Any]:
        calls.append(x)
        return {"out": static.copy_(x * 2)}

    class Returns(Graph):
        value = 2.0

        def replay(self) -> None:
            static.fill_(self.value)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Returns)
    given = {"step": call}, {"step": [torch.ones(2)]}, GraphPool(torch.device("cpu"))
    captured_by_name(*given, long=True)
    assert (len(calls), len(freed)) == (2, 2)  # before the capture, which gives memory back, and in it
    captured_by_name(*given, long=False)
    assert (len(calls), len(freed)) == (5, 2)
    Returns.value = 3.0
    with pytest.raises(GraphRefused, match="another out than a call"):
        captured_by_name(*given, long=True)


def test_of_large_calls_whose_graphs_share_memory_none_is_made_beside_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of 60 of 100 GB each, whose graphs take turns in 60 GB, which only graphs can use."""
    holding: weakref.WeakSet[Graph] = weakref.WeakSet()
    capturing: list[Graph] = []

    class Captures(Graph):
        def capture_begin(self, pool: object = None) -> None:
            capturing.append(self)

        def capture_end(self, pool: object = None) -> None:
            capturing.clear()

    def call(x: torch.Tensor) -> dict[str, Any]:
        if capturing:
            holding.update(capturing)
        elif holding:
            raise torch.OutOfMemoryError("no memory")
        return {"out": x * 2}

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Captures)
    monkeypatch.setattr(graph, "_differing", lambda differences: [None for _ in differences])
    names = ("one", "other")
    inputs = {name: [torch.ones(2)] for name in names}
    assert list(captured_by_name(dict.fromkeys(names, call), inputs, GraphPool(torch.device("cpu")), long=False)) == [
        *names
    ]


def test_graphs_after_one_that_was_refused_share_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = itertools.count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    begun: list[object] = []

    class Begins(Graph):
        def capture_begin(self, pool: object = None) -> None:
            begun.append(pool)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Begins)
    pool = GraphPool(torch.device("cpu"))

    def fails(x: torch.Tensor) -> dict[str, Any]:
        if len(begun) == 3:  # the pool's first graph, a call's, and this one's
            raise RuntimeError("it waits")
        return double(x)

    def double(x: torch.Tensor) -> dict[str, Any]:
        return {"out": x * 2}

    for call in (double, fails, double):
        with contextlib.suppress(GraphRefused):
            CapturedCalls(call, [torch.ones(2)], pool)
    assert begun == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("lacking", [1, 2])
def test_long_calls_that_lack_memory_are_captured_once_more(lacking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    tries, static = 0, torch.zeros(2)

    def call(x: torch.Tensor) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        if tries <= lacking:
            raise torch.OutOfMemoryError("no memory")
        return {"out": static.copy_(x * 2)}

    class Returns(Graph):
        def replay(self) -> None:
            static.fill_(2.0)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Returns)

    calls: dict[str, Callable[[Any], Mapping[str, object]]] = {"step": call}
    given = calls, {"step": [torch.ones(2)]}, GraphPool(torch.device("cpu"))
    if lacking > 1:
        with pytest.raises(GraphRefused, match="no memory"):
            captured_by_name(*given, long=True)
    else:
        assert list(captured_by_name(*given, long=True)) == ["step"]


def test_short_calls_without_memory_beside_their_graph_are_captured_once_more_in_other_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the first graph took is given back only if nothing holds its pool."""
    handles, begun, tries = itertools.count(), [], itertools.count(1)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    static = torch.zeros(2)

    class Begins(Graph):
        def capture_begin(self, pool: object = None) -> None:
            begun.append(pool)

        def replay(self) -> None:
            static.fill_(2.0)

    def call(x: torch.Tensor) -> dict[str, Any]:
        if next(tries) == 3:  # after one before the capture, and the captured one
            raise torch.OutOfMemoryError("no memory")
        return {"out": static.copy_(x * 2)}

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Begins)
    calls: dict[str, Callable[[Any], Mapping[str, object]]] = {"step": call}
    made = captured_by_name(calls, {"step": [torch.ones(2)]}, GraphPool(torch.device("cpu")), long=False)
    assert list(made) == ["step"]
    assert begun == [0, 0, 1, 1]  # the first graph of each pool, and a call's
    assert next(tries) == 6  # no further call beside the graph


@pytest.mark.parametrize(("kept", "gives_back"), [(60, True), (50, False)])
def test_what_torch_keeps_is_given_back_before_a_capture_that_may_need_as_much(
    kept: int, gives_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has just taken 60 GB needs as many again in its graph, where it cannot use those."""
    freed: list[None] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (55, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10 + kept)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(None))
    static = torch.zeros(2)

    class Returns(Graph):
        def replay(self) -> None:
            static.fill_(2.0)

    def call(x: torch.Tensor) -> dict[str, Any]:
        return {"out": static.copy_(x * 2)}

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Returns)
    CapturedCalls(call, [torch.ones(2)])
    assert bool(freed) == gives_back


@pytest.mark.parametrize(("within", "agrees"), [({}, False), ({"out": 0.02}, False), ({"out": 0.05}, True)])
def test_a_replay_may_differ_from_a_call_as_far_as_is_said(
    within: dict[str, float], agrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = torch.zeros(2)
    monkeypatch.setattr(Graph, "replay", lambda _: out.fill_(2.06))
    with contextlib.nullcontext() if agrees else pytest.raises(GraphRefused, match="another out than a call"):
        CapturedCalls(lambda _: {"out": out}, [None], before={"out": torch.full((2,), 2.0)}, within=within)


def test_what_was_captured_before_a_call_lacked_memory_refuses_no_graph_of_another_block() -> None:
    """A replay of it returns nothing; it is not replayed."""
    static = torch.zeros(2)

    def lacks(_: torch.Tensor) -> dict[str, Any]:
        raise torch.OutOfMemoryError("no memory")

    calls: dict[str, Callable[[Any], Mapping[str, object]]] = {"short": lacks, "long": lambda x: {"out": x * 2}}
    pool, inputs = GraphPool(torch.device("cpu")), [torch.ones(2)]
    with pytest.raises(GraphRefused, match="no memory"):
        captured_by_name(calls, dict.fromkeys(calls, inputs), pool, long=False)
    other = {"other": lambda x: {"out": static.copy_(x * 2)}}
    assert list(captured_by_name(other, {"other": inputs}, pool, long=False)) == ["other"]
