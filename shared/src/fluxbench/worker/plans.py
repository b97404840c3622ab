"""Plans that a library makes for each shape at its first call, on the host: half a second each for cuDNN through torch.

They are kept by the process, and no file keeps them for another. So each process of a cell makes its own while it waits
for its turn, and what is missing then before a check. Neither holds the device: a call of each runs there for a moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from fluxbench import operations, variants
from fluxbench.operations.workload import Workload
from fluxbench.worker.request import Request

_LARGEST_BYTES = 500_000_000  # that a call reads and writes, for which a plan is made while others use the memory
_made: set[tuple[str, str]] = set()  # variants and workloads


def make(name: str, workload: Workload, device: torch.device, *, wanted: bool = True) -> None:
    """Call a variant once where that makes a plan that is `wanted`, unless it was called so before.

    What it raises shows at its check.
    """
    formed, pair = variants.find(name), (name, workload.name)
    if not wanted or device.type != "cuda" or formed.compiles or not formed.variant.plans or pair in _made:
        return
    _made.add(pair)
    operation = operations.find(workload.operation)
    with contextlib.suppress(Exception):
        inputs = operation.inputs(workload.shape, operation.input_kinds[0], 0, device)
        operation.bind(formed, workload.shape)(inputs)
        torch.cuda.synchronize(device)


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
    if planning:
        torch.cuda.empty_cache()
