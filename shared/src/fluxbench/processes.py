"""Fresh worker processes: start them, listen to them, end them, and say what became of those that die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from fluxbench import progress
from fluxbench.environments import Environment
from fluxbench.hardware import Device
from fluxbench.observations import Observations
from fluxbench.records import Status
from fluxbench.requests import Request
from fluxbench.telemetry import Sampler
from fluxbench.workloads import Workload

# A worker that says nothing for this long hangs: the longest silent step is the compilation of one variant.
SILENCE_LIMIT_S = 150.0
WORKER = ("-m", "fluxbench.worker")  # what an interpreter of the measured environment is started with
_POLL_S = 0.02
_PACKAGE_ROOT = Path(__file__).resolve().parents[1]


def run_variants(
    folder: Path,
    environment: Environment,
    device: Device,
    shapes: tuple[Workload, ...],
    names: tuple[str, ...],
    references: tuple[str, ...],
    observed: Observations,
    *,
    processes: int,
    deadline: float,
) -> None:
    """Measure `names` at `shapes` in `processes` fresh processes, and take in what they see.

    Compiled kernels are kept in `folder`, so that the first process compiles and the others do not. At `deadline`
    (monotonic seconds) what is not measured becomes TIMEOUT.
    """
    with Sampler(device) as sampler:
        for process in range(processes):
            left = list(shapes)
            while left:
                skip = tuple(observed.failed)
                if all((name, shape.name) in observed.failed for name in names for shape in left):
                    break
                request = Request(
                    device=device.worker_kind,
                    workloads=tuple(left),
                    variants=names,
                    references=references,
                    process=process,
                    rounds=observed.rounds() if process else {},
                    skip=skip,
                )
                observed.readings = sampler.readings
                death = run_one(folder, environment, request, observed, deadline)
                if time.monotonic() >= deadline:
                    _out_of_time(names, shapes, observed, processes)
                    return
                if death is None:
                    break
                # What the worker was at has failed, and a fresh one goes on from there.
                at = [shape.name for shape in left].index(death.workload)
                for name in names if death.variant is None else (death.variant,):
                    observed.fail(name, death.workload, death.status, death.reason)
                left = left[at if death.variant else at + 1 :]


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a worker died or had to be ended, and what it was at."""

    variant: str | None  # None where all variants of the workload were concerned
    workload: str
    status: Status
    reason: str


def run_one(
    folder: Path, environment: Environment, request: Request, observed: Observations, deadline: float
) -> Death | None:
    """Run one worker; return None where it finished, else how it died."""
    number = len(list(folder.glob("request-*.json")))
    request_path, events_path, log_path = (
        folder / f"{stem}-{number}.{suffix}"
        for stem, suffix in (("request", "json"), ("events", "jsonl"), ("log", "txt"))
    )
    request_path.write_text(request.to_json(), encoding="utf-8")
    events_path.touch()
    paths = [environment.variables.get("PYTHONPATH", ""), str(_PACKAGE_ROOT)]
    variables = {
        **os.environ,
        **environment.variables,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONWARNINGS": "ignore",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # max-autotune would compile float32 matrix products in Triton for a minute at each length of torch_math, and
        # then take the library's all the same: 58.7 s at 4,224 tokens on an H200, torch 2.11.
        "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN",
    }
    ahead = [shape.name for shape in request.workloads]  # not finished by this worker
    variant: str | None = None

    def death(status: Status, reason: str) -> Death | None:
        if not request.workloads:
            return Death(variant=None, workload="", status=status, reason=reason)
        if not ahead:  # all was measured before
            return None
        when = "" if variant else "while inputs were made or all variants timed together, "
        return Death(variant=variant, workload=ahead[0], status=status, reason=when + reason)

    with log_path.open("w") as log, events_path.open(encoding="utf-8") as events:
        worker = subprocess.Popen(
            [environment.python, *WORKER, str(request_path), str(events_path)],
            env=variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            heard = time.monotonic()
            for event in _listen(worker, events):
                now = time.monotonic()
                if event is None:
                    if now < deadline and now - heard < SILENCE_LIMIT_S:
                        continue
                    late = (
                        "the cell's time was up" if now >= deadline else f"no sign of life for {SILENCE_LIMIT_S:.0f} s"
                    )
                    return death(Status.TIMEOUT, f"{late}; the process was ended")
                heard = now
                observed.add(event)
                if event["event"] == "begin":
                    progress.say(variant=event["variant"], workload=event["workload"])
                    variant, ahead = event["variant"], ahead[ahead.index(event["workload"]) :]
                if event["event"] == "timed":
                    variant, ahead = None, ahead[1:]
                if event["event"] == "done":
                    return None
        finally:
            _end(worker)
    return death(Status.CRASHED, _obituary(worker.returncode, log_path))


def _listen(worker: subprocess.Popen[bytes], events: TextIO) -> Iterator[dict[str, Any] | None]:
    """Yield each event of a worker, and None while there is none, until it is gone and all is read."""
    part = ""
    while True:
        gone = worker.poll() is not None
        part += events.read()
        *lines, part = part.split("\n")
        yield from (json.loads(line) for line in lines)
        if gone:
            return
        yield None
        time.sleep(_POLL_S)


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker with every process that it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _obituary(returncode: int, log_path: Path) -> str:
    """Say how a worker ended, with the last line that it printed."""
    how = f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
    lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:160]}" if lines else ""
    return f"the process ended with {how}{last}"


def _out_of_time(names: tuple[str, ...], shapes: tuple[Workload, ...], observed: Observations, processes: int) -> None:
    for shape in shapes:
        blocks = observed.blocks.get(shape.name, [])
        for name in names:
            if sum(name in block.samples_ms for block in blocks) < processes:
                reason = "the cell's time was up before it was measured; measure fewer variants or workloads in a cell"
                observed.fail(name, shape.name, Status.TIMEOUT, reason)
