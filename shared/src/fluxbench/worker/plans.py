"""Plans that a library makes for each shape at its first call, on the host: half a second each for cuDNN through torch.

They are kept by the process, and no file keeps them for another. So each process of a cell makes its own while it waits
for its turn, and what is missing then in a check. Others measure meanwhile: calls are captured for a CUDA graph that
nobody launches. What torch fills at the start of a capture runs on the device all the same, so many plans are made in
one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

import torch

from fluxbench import operations, variants
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.worker.device_use import cached_bytes
from fluxbench.worker.request import Request

_LARGEST_BYTES = 500_000_000  # that a call reads and writes, for which a plan is made while others use the memory
_AT_ONCE = 64  # plans of a capture
_KEPT_BYTES = 512 << 20  # of memory of captured graphs, which torch keeps for each by itself
_made: set[tuple[str, str]] = set()  # variants and workloads


def make(name: str, workload: Workload, device: torch.device) -> None:
    """Capture a call of a variant where that makes a plan, unless one was captured before; the device must be held.

    The plan of a backward pass alone is that of both passes together. What a call raises shows at its check.
    """
    if call := _missing(name, workload, device):
        with contextlib.suppress(Exception):
            _capture(call)


def make_early(
    request: Request, is_asked: Callable[[], bool], holds: Callable[[int], None] = lambda held: None
) -> None:
    """Make the plans of a request's variants and references, of the smallest workloads first, until it is asked for.

    `holds` is called with the bytes of the device's memory that torch may hold until its next call.
    """
    device = torch.device("cuda")
    every = dict.fromkeys((*request.references, *request.variants))
    small = [workload for workload in request.workloads if workload.cost.min_bytes <= _LARGEST_BYTES]
    todo = deque(
        (name, workload)
        for workload in sorted(small, key=lambda one: one.cost.min_bytes)
        for name in every
        if variants.find(name).variant.plans
    )

    def some() -> None:
        for _ in range(_AT_ONCE):
            if not todo or is_asked():
                return
            name, workload = todo.popleft()
            differentiates = operations.find(workload.operation).differentiates
            with torch.inference_mode(not differentiates), torch.set_grad_enabled(False):
                if call := _missing(name, workload, device):
                    call()

    had = bool(todo)
    while todo and not is_asked():
        holds(_KEPT_BYTES + _LARGEST_BYTES)
        with contextlib.suppress(Exception):  # which ends a capture, not what comes after it
            _capture(some)
        if cached_bytes(device) > _KEPT_BYTES:  # other workers use the device
            torch.cuda.empty_cache()
    if had:
        torch.cuda.empty_cache()
        holds(torch.cuda.memory_reserved(device))


def _missing(name: str, workload: Workload, device: torch.device) -> Callable[[], object] | None:
    """Return a call that makes a plan; None where it makes none, or was returned before."""
    formed, pair = variants.find(name), (name, workload.name)
    if device.type != "cuda" or formed.compiles or not formed.variant.plans or pair in _made:
        return None
    _made.add(pair)
    operation = operations.find(workload.operation)
    of = operation.attention(workload.shape)
    if of.retain_graph:
        return None
    return lambda: operation.bind(formed, workload.shape)(_unfilled(of, device))


def _unfilled(call: AttentionCall, device: torch.device) -> dict[str, torch.Tensor]:
    """Return q, k, v and dout of an attention, whose values are whatever the memory holds."""
    of_q, of_k = (call.batch, call.seq_len_q, call.heads), (call.batch, call.seq_len_k, call.kv_heads)
    sizes = {
        "q": (*of_q, call.head_dim_qk),
        "k": (*of_k, call.head_dim_qk),
        "v": (*of_k, call.head_dim_v),
        "dout": (*of_q, call.head_dim_v),
    }
    return {name: torch.empty(size, dtype=getattr(torch, call.dtype), device=device) for name, size in sizes.items()}


def _capture(call: Callable[[], object]) -> None:
    graph = torch.cuda.CUDAGraph(keep_graph=True)  # which leaves instantiating out
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="relaxed")  # a library may allocate at its first call
        try:
            call()
        finally:
            graph.capture_end()
    del graph
