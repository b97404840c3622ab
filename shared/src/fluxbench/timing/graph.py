"""Calls in succession as one CUDA graph: the device does not wait for the host to launch them."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fluxbench.timing.burst import copies
from fluxbench.timing.memory import is_out_of_memory

# Relative L2 difference of a replayed and a launched call: kernels that sum atomically vary a little.
AGREE_WITHIN = 0.01
# Where less than this share of a GPU is free, or less than torch keeps for later, that is given back before a capture,
# which cannot use it: a call needs no more than one has left just before. Not before each one, as `torch.cuda.graph`
# does: many short ones would mostly wait for the driver.
_SPARE = 0.25
SPARE_OF_SHORT = 2 << 30  # bytes, of calls of less than a millisecond


class GraphRefused(RuntimeError):
    """Calls that cannot be captured, or that a replay does not repeat; the message says why."""

    @property
    def lack(self) -> BaseException | None:
        """What was raised where memory was out; None where something else is why."""
        return self.__cause__ if self.__cause__ and is_out_of_memory(self.__cause__) else None


class GraphPool:
    """Memory of a GPU that several graphs share: only what one of them returns is kept apart from the others' memory.

    Each graph would otherwise have memory of its own, of 20 MB at least. They must be replayed one after the other, and
    what one returns be used before the next replay. Whether a replay of theirs returns what a call does is told of all
    together, by `refused`: each answer would be waited for as long as other workers use the device.
    """

    def __init__(self, device: torch.device, spare: int | None = None) -> None:
        """`spare`: bytes that must be free before a capture; None: a share of the GPU."""
        self.spare, self._device = spare, device
        self.made: list[CapturedCalls] = []  # that it is not known of yet
        self._firsts: list[Any] = []  # the first graph of each memory

    @functools.cached_property
    def handle(self) -> Any:
        """What a capture names the pool by. It must have a graph before another one can join, which is made here."""
        handle = torch.cuda.graph_pool_handle()
        first = torch.cuda.CUDAGraph()
        with torch.cuda.stream(_stream()):
            first.capture_begin(pool=handle)
            torch.empty(1, device=self._device).fill_(0)
            first.capture_end()
        self._firsts.append(first)
        return handle

    def leave(self) -> None:
        """Let later graphs share other memory: torch goes on to take that of a failed capture for one that lasts.

        Graphs that last keep what they share; what none of them holds can then be given back.
        """
        self.__dict__.pop("handle", None)
        self._firsts.clear()

    def refused(self) -> dict[object, str]:
        """Return which graphs, of those made since the last call of this, do not return what a call does, and why."""
        made, self.made = self.made, []
        differing = _differing(made)
        return {graph: why for graph, why in zip(made, differing, strict=True) if why}


class CapturedCalls:
    """Calls that were captured once, with the inputs that they then had; a replay reads what these tensors hold now.

    Raises `GraphRefused` where a call cannot be captured (it waits for the device, or uses another stream), where a
    replay returns something else than a call, and where a call has no memory beside the graph's own. `pool`: shared
    with other graphs, it tells what replays return; None: the graph has one of its own. `before`: what the last of the
    calls returned on the stream of captures (`called_before`), with which a replay is then compared, so that no call is
    made beside the graph. `within`: how far they may differ, relative L2 by output, where not within `AGREE_WITHIN`.
    """

    def __init__(
        self,
        call: Callable[[Any], Mapping[str, object]],
        inputs: Sequence[Any],
        pool: GraphPool | None = None,
        before: Mapping[str, object] | None = None,
        within: Mapping[str, float] | None = None,
    ) -> None:
        self.within = within or {}
        with _refused(pool), _on_stream():
            self._graph = torch.cuda.CUDAGraph()
            if before is None:
                call(inputs[0])  # what a library prepares at its first call on a stream; not the call that is compared
            free, total = torch.cuda.mem_get_info()
            if before is not None or free < ((pool and pool.spare) or _needed(total)):
                torch.cuda.empty_cache()
            handle = pool.handle if pool else torch.cuda.graph_pool_handle()
            self._graph.capture_begin(pool=handle)
            try:
                for each in inputs:
                    self._outputs = call(each)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # that of its end says no more than that a call has failed
                    self._end(handle)
                raise
            self._end(handle)
        try:
            self.differences = self._differences(lambda: call(inputs[-1]) if before is None else before)
        except torch.OutOfMemoryError as error:
            raise GraphRefused("a call has too little memory beside that of its graph") from error
        if pool:
            pool.made.append(self)
        elif why := _differing([self])[0]:
            raise GraphRefused(why)

    def __call__(self, _inputs: Sequence[Any]) -> Mapping[str, object]:
        """Replay the calls, and return what the last of them returns, in memory that the next replay overwrites."""
        self._graph.replay()
        return self._outputs

    def _end(self, handle: Any) -> None:
        """End the capture, which fails where it was invalid.

        Until torch's allocator is told of that, it gives nothing back: of 2.11 pytorch/pytorch 180395.
        """
        try:
            self._graph.capture_end()
        except RuntimeError:
            with contextlib.suppress(RuntimeError, AttributeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), handle)
            raise

    def _differences(self, call: Callable[[], Mapping[str, object]]) -> dict[str, torch.Tensor]:
        """Return the relative L2 difference of each output of a replay from that of a call."""
        for out in self._outputs.values():
            if isinstance(out, torch.Tensor):
                out.fill_(float("nan"))
        self._graph.replay()
        expected = call()
        found = {}
        for name, out in self._outputs.items():
            other = expected[name]
            if isinstance(out, torch.Tensor) and isinstance(other, torch.Tensor):
                found[name] = (out.double() - other.double()).norm() / other.double().norm()
        return found


def captured_by_name(
    calls: Mapping[str, Callable[[Any], Mapping[str, object]]],
    inputs: Mapping[str, Sequence[Any]],
    pool: GraphPool,
    *,
    long: bool,
    within: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, CapturedCalls]:
    """Return each of some calls, with all inputs of its name, as a graph; `within` of it as `CapturedCalls` has it.

    They share the memory of `pool`, as those of a model's steps would each keep gigabytes. The last is made first:
    where it needs most, the others find enough. Where calls are `long`, or lack memory beside graphs, all are made once
    before the first capture, and none beside graphs. What lacks memory is tried once more. Raises `GraphRefused`.
    """
    try:
        return _captured(calls, inputs, pool, within or {}, long=long)
    except GraphRefused as error:
        if not error.lack:
            raise
    pool.leave()
    gc.collect()  # what was captured holds memory
    return _captured(calls, inputs, pool, within or {}, long=True)


def _captured(
    calls: Mapping[str, Callable[[Any], Mapping[str, object]]],
    inputs: Mapping[str, Sequence[Any]],
    pool: GraphPool,
    within: Mapping[str, Mapping[str, float]],
    *,
    long: bool,
) -> dict[str, CapturedCalls]:
    names = [*calls][::-1]
    before = {name: called_before(calls[name], inputs[name]) for name in names} if long else {}
    try:
        graphs = {
            name: CapturedCalls(calls[name], inputs[name], pool, before.get(name), within.get(name)) for name in names
        }
    except GraphRefused:
        pool.made.clear()  # nothing is replayed of what was made
        raise
    for why in pool.refused().values():
        raise GraphRefused(why)
    return {name: graphs[name] for name in calls}


def called_before(call: Callable[[Any], Mapping[str, object]], inputs: Sequence[Any]) -> dict[str, object]:
    """Return a copy of what the last of some calls returns, on the stream of captures, of which there are none yet.

    What torch keeps for another stream is of no use there, so it is given back. Raises `GraphRefused`.
    """
    with _refused(None), _on_stream():
        torch.cuda.empty_cache()
        return copies(call(inputs[-1]))


def _differing(graphs: Sequence[CapturedCalls]) -> list[str | None]:
    """Return why graphs are refused, or None, by how replays differ; the device is waited for once."""
    each = [difference for one in graphs for difference in one.differences.values()]
    errors = iter(torch.stack(each).tolist() if each else [])
    found: list[str | None] = []
    for one in graphs:
        names = [name for name in one.differences if not next(errors) <= one.within.get(name, AGREE_WITHIN)]
        found.append(f"a replay returns another {names[0]} than a call" if names else None)
    return found


def _needed(total: int) -> float:
    """Return how many of a GPU's bytes must be free before a capture of calls that may take any, after one of them."""
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return max(_SPARE * total, float(cached))


@contextlib.contextmanager
def _refused(pool: GraphPool | None) -> Iterator[None]:
    """Raise `GraphRefused` for whatever is raised, after which graphs of the pool share other memory."""
    try:
        yield
    except Exception as error:
        if pool:
            pool.leave()
        line = str(error).strip().splitlines() or [""]
        raise GraphRefused(f"{type(error).__name__}: {line[0][:200]}") from error


@contextlib.contextmanager
def _on_stream() -> Iterator[None]:
    """Let work be put on the stream of captures, in order with that before and after it."""
    stream = _stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@functools.cache
def _stream() -> torch.cuda.Stream:
    """Return the stream of all captures of this process: what is taken on one is of no use on another."""
    return torch.cuda.Stream()
