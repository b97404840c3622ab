"""All workloads of a request with their inputs, as far as the device's memory goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from fluxbench import operations
from fluxbench.correctness.kept import Kept
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing.plan import Plan
from fluxbench.worker.failures import first_sentence
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.request import Request
from fluxbench.worker.trial import Wrong


def prepare(
    request: Request,
    device: torch.device,
    plan: Plan,
    emit: Callable[..., None],
    fail: Callable[[Workload, Wrong], None],
) -> dict[str, PreparedWorkload]:
    """Return the workloads by name, in the order of the request, each announced by an event "begin".

    `fail` is called with each workload whose inputs do not fit in memory; it is left out. The largest comes first: what
    exists once in a process (`operations.held`) is allocated for it.
    """
    made = {}
    for workload in sorted(request.workloads, key=lambda each: -each.cost.min_bytes):
        emit("begin", variant=None, workload=workload.name)
        try:
            made[workload.name] = PreparedWorkload.make(
                workload, device, request.process, most=plan.max_rounds, share=1 / len(request.workloads),
                all_kinds=request.is_thorough, sustained=request.sustained,
                cases=_kept(request, device, emit, request.cases), contents=_kept(request, device, emit, ""),
            )  # fmt: skip
        except torch.OutOfMemoryError as error:
            fail(workload, Wrong(Status.OUT_OF_MEMORY, f"its inputs do not fit: {first_sentence(error)}"))
    return {workload.name: made[workload.name] for workload in request.workloads if workload.name in made}


def fills_memory(workload: Workload) -> bool:
    """Whether an operation says that inputs of a workload exist once, since a copy may not fit on the device."""
    holds = getattr(operations.find(workload.operation), "holds", None)
    return bool(holds and holds(workload.shape))


def _kept(request: Request, device: torch.device, emit: Callable[..., None], folder: str | None) -> Kept | None:
    """Return what is kept in a folder, on a CPU, where references take seconds."""
    if folder is None or device.type != "cpu":
        return None
    note = lambda name, digest: emit("kept", name=name, sha256=digest)  # noqa: E731
    return Kept(Path(folder), request.kept, note, trusts=request.trusts)
