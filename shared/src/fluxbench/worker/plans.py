"""Plans that a library makes for each shape at its first call, on the host: half a second each for cuDNN through torch.

They are kept by the process, and no file keeps them for another. So each process of a cell makes its own while it waits
for its turn, and what is missing then before a check. Others measure meanwhile: a call is captured for a CUDA graph
that nobody launches, so that the device runs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from fluxbench import operations, variants
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.worker.device_use import cached_bytes
from fluxbench.worker.request import Request

_LARGEST_BYTES = 500_000_000  # that a call reads and writes, for which a plan is made while others use the memory
_KEPT_BYTES = 512 << 20  # of memory of captured graphs, which torch keeps for each by itself
_made: set[tuple[str, str]] = set()  # variants and workloads


def make(name: str, workload: Workload, device: torch.device) -> None:
    """Capture a call of a variant where that makes a plan, unless one was captured before.

    The plan of a backward pass alone is that of both passes together. What a call raises shows at its check.
    """
    formed, pair = variants.find(name), (name, workload.name)
    if device.type != "cuda" or formed.compiles or not formed.variant.plans or pair in _made:
        return
    _made.add(pair)
    operation = operations.find(workload.operation)
    if operation.attention(workload.shape).retain_graph:
        return
    with contextlib.suppress(Exception):
        inputs, bound = _unfilled(operation.attention(workload.shape), device), operation.bind(formed, workload.shape)
        _capture(lambda: bound(inputs))


def make_early(path: Path, is_asked: Callable[[], bool]) -> None:
    """Make the plans of a request's variants and references, of the smallest workloads first, until it is asked for."""
    request = Request.from_json(path.read_text(encoding="utf-8"))
    every = dict.fromkeys((*request.references, *request.variants))
    planning = [name for name in every if variants.find(name).variant.plans]
    for workload in sorted(request.workloads, key=lambda one: one.cost.min_bytes) if planning else ():
        differentiates = operations.find(workload.operation).differentiates
        if is_asked() or workload.cost.min_bytes > _LARGEST_BYTES:
            break
        with torch.inference_mode(not differentiates), torch.set_grad_enabled(False):
            for name in planning:
                make(name, workload, torch.device("cuda"))
                if cached_bytes(torch.device("cuda")) > _KEPT_BYTES:  # other workers use the device
                    torch.cuda.empty_cache()
    if planning:
        torch.cuda.empty_cache()


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
