"""Worker processes: started, listened to and ended. What became of one that did not finish is an `Exit`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fluxbench import variants
from fluxbench.bench import events
from fluxbench.bench.collected import Collected
from fluxbench.core import cores, progress
from fluxbench.device.model import Device
from fluxbench.environments.prepare import Environment
from fluxbench.records.schema import RecordError
from fluxbench.records.status import Status
from fluxbench.worker.request import Request

# A worker that is silent for this long hangs; the second while it says that it compiles: a whole model takes minutes.
SILENCE_LIMIT_S, COMPILING_LIMIT_S = 150.0, 450.0
WORKER = ("-m", "fluxbench.worker")  # what an interpreter of the measured environment is started with
_PLANNED = "planned.json"  # not of the files `request-N.json`
_POLL_S = 0.02
_CORES_LEFT = 4  # by compilers, for whoever measures meanwhile
_COMPILERS = 4  # that share the other cores at once: of as many cells, where most compile (`notebook.width`)
FIRST_COUNTS = 2  # as many steps as one of a later process: the first compiles, checks all and profiles
# Variables that workers do not inherit, or how they begin: of compilers; of threads and of what a CPU computes with; of
# what torch, cuBLAS and the driver do instead of what they do by themselves. Others tell where something is.
_DECIDING = (
    *("TORCHDYNAMO_", "TORCH_COMPILE_", "TORCHINDUCTOR_", "TRITON_INTERPRET"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_"),
    *("CUBLAS_", "CUBLASLT_", "TORCH_CUDNN_", "TORCH_BLAS_PREFER_", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
)
_HARMLESS = {"MKL_THREADING_LAYER", "KMP_DUPLICATE_LIB_OK"}  # without which some interpreters do not start
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class Pool:
    """Workers of a GPU that import what the named variants need, all at once, and wait for a request.

    None on a CPU, where what one imports another would be timed beside.
    """

    def __init__(
        self,
        folder: Path,
        environment: Environment,
        device: Device,
        names: Sequence[str],
        processes: int,
        planned: Request | None = None,
    ) -> None:
        """`planned`: what requests will be like, for which a worker that waits makes plans, see `worker.plans`."""
        self._imports_ahead = device.worker_kind != "cpu"
        count = processes if self._imports_ahead else 0
        more: tuple[str, ...] = ()
        if planned and count:
            asked = dataclasses.replace(planned, variants=tuple(names))
            (folder / _PLANNED).write_text(asked.to_json(), encoding="utf-8")
            more = (str(folder / _PLANNED),)
        self._start = functools.partial(_start, folder, environment, names, more=more)
        with contextlib.ExitStack() as stack:
            self._workers = [self._start(stack=stack) for _ in range(count)]
            self._stack = stack.pop_all()

    def add(self) -> None:
        """Start one more; none on a CPU."""
        if self._imports_ahead:
            self._workers.append(self._start(stack=self._stack))

    @property
    def waits(self) -> bool:
        """Whether one is left that has had no request."""
        return bool(self._workers)

    def next(self) -> subprocess.Popen[str] | None:
        """Return the first one that has had no request, or None."""
        return self._workers.pop(0) if self._workers else None

    def close(self) -> None:
        """End them all, those too that have had a request."""
        self._workers.clear()
        self._stack.close()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a worker died or had to be ended, and what it was at."""

    variant: str | None  # None where all variants were concerned
    workload: str | None  # None where all workloads were
    status: Status
    reason: str
    wrote: bool = True  # whether it had written any event


def run_worker(
    folder: Path,
    environment: Environment,
    request: Request,
    collected: Collected,
    deadline: float,
    worker: subprocess.Popen[str] | None = None,
) -> Exit | None:
    """Carry out a request in one worker, of a pool where it is given; return None where it finished."""
    number = len(list(folder.glob("request-*.json")))
    request_path, events_path = folder / f"request-{number}.json", folder / f"events-{number}.jsonl"
    request_path.write_text(request.to_json(), encoding="utf-8")
    events_path.touch()
    with contextlib.ExitStack() as stack:
        if worker is None or worker.poll() is not None:
            worker = _start(folder, environment, (), stack=stack)
        stack.callback(_end, worker)
        assert worker.stdin
        with contextlib.suppress(BrokenPipeError):  # it is gone already, and what it printed says why
            worker.stdin.write(json.dumps([str(request_path), str(events_path)]) + "\n")
            worker.stdin.flush()
        stack.callback(lambda: collected.end_phase(time.monotonic()))
        with events_path.open(encoding="utf-8") as file:
            return _collect(worker, file, collected, deadline, 1 if request.process else FIRST_COUNTS)


def _start(
    folder: Path,
    environment: Environment,
    names: Sequence[str],
    *,
    stack: contextlib.ExitStack,
    more: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start a worker that imports what the named variants need and waits; the stack ends it.

    What it prints goes to `log-PID.txt`. One that takes over from a dead one imports nothing before it writes what it
    is at: a library may take a process down at its import.
    """
    paths = [environment.variables.get("PYTHONPATH", ""), str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        **{name: value for name, value in os.environ.items() if not _decides(name)},
        **environment.variables,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONWARNINGS": "ignore",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts, by which the device was found
        "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, (cores.available() - _CORES_LEFT) // _COMPILERS)),
        # max-autotune would compile float32 matrix products in Triton for a minute at each length of torch_math, and
        # then take the library's all the same: 58.7 s at 4,224 tokens on an H200, torch 2.11.
        "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN",
    }
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="log-", suffix=".txt", delete=False) as log:
        worker = subprocess.Popen(
            [environment.python, *WORKER, "-", ",".join(names), *more],
            env=variables,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
    Path(log.name).rename(folder / f"log-{worker.pid}.txt")
    stack.callback(_end, worker)
    return worker


def _decides(name: str) -> bool:
    """Whether a variable decides what runs, or how fast: compiled forms are eager with TORCHDYNAMO_DISABLE."""
    return name in variants.VARIABLES or (name.startswith(_DECIDING) and name not in _HARMLESS)


class _Position:
    """What a worker is at, by its latest event."""

    def __init__(self) -> None:
        self.variant: str | None = None
        self.workload: str | None = None
        self.doing = ""
        self.wrote = False
        self.probing = self.compiling = False

    def update(self, event: events.Event) -> None:
        """Take in an event."""
        self.wrote = True
        match event:
            case events.Phase():
                self.compiling = event.name == "compiling"
            case events.Begin():
                self.variant, self.workload = event.variant, event.workload
                self.doing = "" if event.variant else "while inputs were made, "
            case events.TrialBegan():
                self.variant, self.workload, self.doing = event.variant, None, "while it was timed, "
            case events.Timed():
                self.variant, self.workload, self.doing = None, None, f"after {event.variant} was timed, "
            case events.Profiling():  # all is timed: what dies from here on costs no time
                self.variant, self.workload, self.doing = None, None, "after all was timed, "
            case events.Probing():
                self.probing = True

    def exit(self, status: Status, reason: str) -> Exit | None:
        """Return how the worker ended; None while it tries capabilities: then all is measured."""
        if self.probing:
            return None
        return Exit(
            variant=self.variant, workload=self.workload, status=status, reason=self.doing + reason, wrote=self.wrote
        )


def _collect(
    worker: subprocess.Popen[str], file: TextIO, collected: Collected, deadline: float, counts: int
) -> Exit | None:
    """Collect what a worker writes until it is done, dead, silent for too long or late; a step `counts` so many."""
    position = _Position()
    latest, is_late = time.monotonic(), False
    try:
        for event in _events(worker, file):
            now = time.monotonic()
            if event is None:
                was_late, is_late = is_late, collected.is_late(deadline)
                limit_s = COMPILING_LIMIT_S if position.compiling else SILENCE_LIMIT_S
                # Where it is late, what was written before is read once more.
                if not (was_late and is_late) and now - latest < limit_s:
                    continue
                late = f"the {collected.late}'s time was up" if is_late else f"silent for {limit_s:.0f} s"
                return position.exit(Status.TIMEOUT, f"{late}; the process was killed")
            latest = now
            collected.add(event)
            position.update(event)
            if isinstance(event, events.Begin):
                progress.say(variant=event.variant, workload=event.workload, counts=counts)
            if isinstance(event, events.Done):
                return None
    except RecordError as error:
        return position.exit(Status.ERROR, str(error))
    _end(worker)
    return position.exit(Status.CRASHED, _how_it_ended(worker, file))


def _events(worker: subprocess.Popen[str], file: TextIO) -> Iterator[events.Event | None]:
    """Yield each event of a worker, and None while there is none, until it is gone and all is read."""
    part = ""
    while True:
        gone = worker.poll() is not None
        part += file.read()
        *lines, part = part.split("\n")
        yield from (events.parse(line) for line in lines)
        if gone:
            return
        yield None
        time.sleep(_POLL_S)


def _end(worker: subprocess.Popen[str]) -> None:
    """Kill a worker with every process that it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _how_it_ended(worker: subprocess.Popen[str], file: TextIO) -> str:
    """Return how a worker ended, with the last line that it printed."""
    returncode, log_path = worker.returncode, Path(file.name).parent / f"log-{worker.pid}.txt"
    how = f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
    lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:160]}" if lines else ""
    return f"the process ended with {how}{last}"
