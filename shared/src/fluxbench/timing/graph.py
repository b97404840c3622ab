"""Calls in succession as one CUDA graph: the device does not wait for the host to launch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_AGREE_WITHIN = (
    0.01  # relative L2 difference of a replayed and a launched call: kernels that sum atomically vary a little
)
# Where less than this share of a GPU is free, what torch keeps for later is given back before a capture, which
# cannot use it. Not before each one, as `torch.cuda.graph` does: many short ones would mostly wait for the driver.
_SPARE = 0.25
SPARE_OF_SHORT = 2 << 30  # bytes, of calls of less than a millisecond


class GraphRefused(RuntimeError):
    """Calls that cannot be captured, or that a replay does not repeat; the message says why."""


class GraphPool:
    """Memory of a GPU that several graphs share: only what one of them returns is kept apart from the others' memory.

    Each graph would otherwise have memory of its own, of 20 MB at least. They must be replayed one after the other, and
    what one returns be used before the next replay.
    """

    def __init__(self, device: torch.device, spare: int | None = None) -> None:
        """`spare`: bytes that must be free before a capture; None: a share of the GPU."""
        self.spare = spare
        self.handle = torch.cuda.graph_pool_handle()
        self._first = torch.cuda.CUDAGraph()  # a pool must have a graph before another one can join
        with torch.cuda.stream(torch.cuda.Stream(device)):
            self._first.capture_begin(pool=self.handle)
            torch.empty(1, device=device).fill_(0)
            self._first.capture_end()


class CapturedCalls:
    """Calls that were captured once, with the inputs that they then had; a replay reads what these tensors hold now.

    Raises `GraphRefused` where a call cannot be captured (it waits for the device, or uses another stream), where a
    replay returns something else than a call, and where a call has no memory beside the graph's own. `pool`: shared
    with other graphs; None: the graph has one of its own.
    """

    def __init__(
        self, call: Callable[[Any], Mapping[str, object]], inputs: Sequence[Any], pool: GraphPool | None = None
    ) -> None:
        try:
            self._graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                call(inputs[-1])  # what a library prepares at its first call on a stream
                torch.cuda.synchronize()
                free, total = torch.cuda.mem_get_info()
                if free < ((pool and pool.spare) or _SPARE * total):
                    torch.cuda.empty_cache()
                self._graph.capture_begin(pool=pool.handle if pool else None)
                try:
                    for each in inputs:
                        self._outputs = call(each)
                finally:
                    self._graph.capture_end()
        except Exception as error:
            line = str(error).strip().splitlines() or [""]
            raise GraphRefused(f"{type(error).__name__}: {line[0][:200]}") from error
        try:
            self._check(call, inputs[-1])
        except torch.OutOfMemoryError as error:
            raise GraphRefused("a call has too little memory beside that of its graph") from error

    def __call__(self, _inputs: Sequence[Any]) -> Mapping[str, object]:
        """Replay the calls, and return what the last of them returns, in memory that the next replay overwrites."""
        self._graph.replay()
        return self._outputs

    def _check(self, call: Callable[[Any], Mapping[str, object]], last: Any) -> None:
        for out in self._outputs.values():
            if isinstance(out, torch.Tensor):
                out.fill_(float("nan"))
        self._graph.replay()
        expected = call(last)
        for name, out in self._outputs.items():
            other = expected[name]
            if isinstance(out, torch.Tensor) and isinstance(other, torch.Tensor):
                error = (out.double() - other.double()).norm() / other.double().norm()
                if not error <= _AGREE_WITHIN:
                    raise GraphRefused(f"a replay returns another {name} than a call")
