"""Check and time a model's step that several GPUs of this host share, by diffusers' context parallelism.

    PYTHONPATH=shared/src python -m fluxbench.worker.shared_step flux1-1024px-step torch_cudnn_blocks 2 1 out.json

The numbers are the degrees of Ulysses and of ring attention; their product is the number of ranks, and 1 1 is one GPU.
Rank 0 judges its output as that of any step. Writes one JSON object, see `Shared`. By itself it forks the ranks, and
ends all once one fails; `torchrun --nproc-per-node 2 -m fluxbench.worker.shared_step ...` starts them too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fluxbench import variants
from fluxbench.core.errors import SetupError
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations import find, sets
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.sharing import Sharing
from fluxbench.operations.workload import Workload
from fluxbench.timing.profiler import kernel_times
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.worker.ranks import RankFailed, in_ranks

_SEED = 0
# A fabric without multicast must not be asked for it.
_WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
_COMMUNICATION = r"(?i)nccl"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the kernels of one rank's step take, in ms. Waiting is what its communication takes beyond that of the rank
    whose communication takes least: it was there before the others."""

    computing_ms: float
    communicating_ms: float
    waiting_ms: float
    span_ms: float


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What came of it: the time of a round is that of its slowest rank. `parts` by rank are empty on a CPU."""

    workload: str
    variant: str
    ulysses: int
    ring: int
    error_over_budget: float
    samples_ms: list[float]
    median_ms: float
    parts: list[Parts]


def main(name: str, variant: str, ulysses: str, ring: str, path: str, rounds: str = "20") -> int:
    """Measure one step; return 1 and print one sentence where that cannot be, or a rank fails."""
    try:
        [workload] = sets.named([name])
        sharing = Sharing(ulysses=int(ulysses), ring=int(ring))
        formed = variants.find(variant)
        if problem := sharing.problem(ModelShape.of(workload.shape)):
            raise SetupError(problem)
        gpus = torch.cuda.device_count()  # by NVML, which leaves forks usable
        devices = gpus or torch.accelerator.device_count()  # diffusers asks for the latter, 0 on a CPU
        if sharing.ranks > 1 and (not devices or (gpus and sharing.ranks > gpus)):
            raise SetupError(f"ranks must be at most the GPUs of this host, got {sharing.ranks} ranks and {gpus} GPUs")
        os.environ.update(_WITHOUT_MULTICAST)
        if "LOCAL_RANK" in os.environ:  # torchrun has started the ranks, and ends them
            if int(os.environ["WORLD_SIZE"]) != sharing.ranks:
                raise SetupError(f"torchrun must start {sharing.ranks} ranks, got {os.environ['WORLD_SIZE']}")
            _work(
                int(os.environ["LOCAL_RANK"]), workload, formed, sharing, bool(gpus), "env://", Path(path), int(rounds)
            )
            return 0
        with tempfile.TemporaryDirectory() as folder:
            meeting = f"file://{folder}/ranks"
            work = lambda rank: _work(rank, workload, formed, sharing, bool(gpus), meeting, Path(path), int(rounds))  # noqa: E731
            in_ranks(sharing.ranks, work)
    except (SetupError, RankFailed, ValueError) as error:
        print(f"fluxbench: {error}", file=sys.stderr)
        return 1
    return 0


def _work(
    rank: int, workload: Workload, formed: Any, sharing: Sharing, on_gpu: bool, meeting: str, path: Path, rounds: int
) -> None:
    from fluxbench.operations.models.step import step  # it imports diffusers, seconds that `main` may not need

    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=meeting, rank=rank, world_size=sharing.ranks)
    operation = find(workload.operation)
    with torch.inference_mode():
        inputs = operation.inputs(workload.shape, operation.input_kinds[0], _SEED, device)
        called = step(formed, ModelShape.of(workload.shape), device, sharing)
        out = called(inputs)
        error = _judged(out, workload, formed, device) if rank == 0 else 0.0
        dist.barrier()
        samples = _all([_step_ms(lambda: called(inputs), on_gpu) for _ in range(rounds)], sharing.ranks)
        parts = parts_of(_all(_kernels(lambda: called(inputs), device), sharing.ranks)) if on_gpu else []
    slowest = [max(round_ms) for round_ms in zip(*samples, strict=True)]
    if rank == 0:
        found = Shared(
            workload=workload.name, variant=formed.variant.name + formed.form.suffix, ulysses=sharing.ulysses,
            ring=sharing.ring, error_over_budget=error, samples_ms=slowest, median_ms=statistics.median(slowest),
            parts=parts,
        )  # fmt: skip
        path.write_text(json.dumps(dataclasses.asdict(found), indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()


def _judged(out: torch.Tensor, workload: Workload, formed: Any, device: torch.device) -> float:
    case = Case.make(workload, find(workload.operation).input_kinds[0], _SEED, device)
    errors, wrong = judge({"out": out}, case, formed.variant.quantized_budget_rel_l2, formed.variant.precision_class)
    if wrong:
        raise ValueError(f"the shared step is wrong: {wrong}")
    return errors["out"].budget_share


def _step_ms(call: Callable[[], object], on_gpu: bool) -> float:
    """Return the time of one step in ms, all ranks of which begin together."""
    dist.barrier()
    if on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if on_gpu:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began)


def _kernels(call: Callable[[], object], device: torch.device) -> tuple[float, float, float]:
    """Return what a step's kernels take in ms: computing, communicating, and from the first one's begin to the end."""
    part_of = lambda name: "communicating" if re.search(_COMMUNICATION, name) else "computing"  # noqa: E731
    found = kernel_times({"step": call}, Stopwatch(device).clear_cache, part_of)
    if not found:
        raise RuntimeError("the profiler recorded no kernels of a shared step")
    _, span, parts = found["step"]
    return parts.get("computing", 0.0), parts.get("communicating", 0.0), span


def parts_of(ranks: list[tuple[float, float, float]]) -> list[Parts]:
    """Return the parts of each rank, from what its kernels compute and communicate, and their span, in ms."""
    least = min(communicating for _, communicating, _ in ranks)
    return [
        Parts(computing_ms=computing, communicating_ms=least, waiting_ms=communicating - least, span_ms=span)
        for computing, communicating, span in ranks
    ]


def _all(own: Any, count: int) -> list[Any]:
    """Return what each rank has."""
    gathered: list[Any] = [None] * count
    dist.all_gather_object(gathered, own)
    return gathered


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
