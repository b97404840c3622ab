"""CUDA graphs and streams of a machine without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from fluxbench.timing import graph


class Graph:
    """Makes the calls again in place of a replay."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def capture_begin(self, pool: object = None) -> None:
        """Capture nothing."""

    capture_end = capture_begin

    def replay(self) -> None:
        for call in self.calls:
            call()


class Stream:
    def wait_stream(self, other: Stream) -> None:
        """Wait for nothing."""


def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch capture graphs on a CPU."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(graph, "_stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 1 << 30))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
