"""Fresh worker processes: start them, listen to them, end them, and say what became of those that die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from fluxbench.bench.observations import Observations
from fluxbench.core import progress
from fluxbench.device.detection import Device
from fluxbench.environments.prepare import Environment
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import Status
from fluxbench.timing.telemetry import Sampler
from fluxbench.worker.request import Request

# A worker that says nothing for this long hangs: the longest silent step is the compilation of one variant.
SILENCE_LIMIT_S = 150.0
WORKER = ("-m", "fluxbench.worker")  # what an interpreter of the measured environment is started with
_POLL_S = 0.02
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class Waiting:
    """Workers of a GPU that import what the named variants need, all at once, and wait for their turn.

    None on a CPU, where what one imports another would be timed beside.
    """

    def __init__(
        self, folder: Path, environment: Environment, device: Device, names: Sequence[str], processes: int
    ) -> None:
        count = 0 if device.worker_kind == "cpu" else processes
        with contextlib.ExitStack() as stack:
            self._workers = [_start(folder, environment, names, stack) for _ in range(count)]
            self._stack = stack.pop_all()

    def next(self) -> subprocess.Popen[str] | None:
        """Return one that nobody has had, or None."""
        return self._workers.pop() if self._workers else None

    def close(self) -> None:
        """End them all, those too that have had their turn."""
        self._workers.clear()
        self._stack.close()


def run_variants(
    folder: Path,
    environment: Environment,
    device: Device,
    shapes: tuple[Workload, ...],
    names: tuple[str, ...],
    references: tuple[str, ...],
    observed: Observations,
    waiting: Waiting,
    *,
    processes: int,
    deadline: float,
    sustained: bool = True,
) -> None:
    """Measure `names` at `shapes` in `processes` fresh processes, and take in what they see.

    Compiled kernels are kept in `folder`, so that the first process compiles and the others do not. At `deadline`
    (monotonic seconds) what is not measured becomes TIMEOUT. Without `sustained` there are burst samples alone.
    `waiting` are workers of the same folder, environment and variants.
    """
    with Sampler(device, readings=observed.readings):
        for process in range(processes):
            while True:
                turned = {turn.variant for turn in observed.of_process(process) if turn.burst}
                open_ = [n for n in names if any((n, shape.name) not in observed.failed for shape in shapes)]
                left = tuple(name for name in open_ if name not in turned)
                if not left:
                    break
                request = Request(
                    device=device.worker_kind,
                    workloads=tuple(s for s in shapes if any((n, s.name) not in observed.failed for n in left)),
                    variants=left,
                    references=references,
                    process=process,
                    sustained=sustained,
                    probe=sustained and process == processes - 1,
                    skip=tuple(observed.failed),
                    clock_mhz=device.sm_clock_max_mhz,
                )
                worker = waiting.next()
                death = run_one(folder, environment, request, observed, deadline, worker)
                if time.monotonic() >= deadline:
                    _out_of_time(names, shapes, observed, processes)
                    return
                if death is None:
                    break
                if worker and not death.heard:  # while it imported: the next ones say what they are about to import
                    waiting.close()
                    continue
                # What the worker was at has failed, and a fresh one goes on with the rest.
                done = {turn.variant for turn in observed.of_process(process) if turn.burst}
                if death.variant is None and death.workload is None and done - turned:
                    continue  # it was between two turns
                at = [death.workload] if death.workload else [shape.name for shape in shapes]
                for name in left if death.variant is None else (death.variant,):
                    for workload in at:
                        observed.fail(name, workload, death.status, death.reason)


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a worker died or had to be ended, and what it was at."""

    variant: str | None  # None where all variants were concerned
    workload: str | None  # None where all workloads were
    status: Status
    reason: str
    heard: bool = True  # whether it had said anything


def run_one(
    folder: Path,
    environment: Environment,
    request: Request,
    observed: Observations,
    deadline: float,
    worker: subprocess.Popen[str] | None = None,
) -> Death | None:
    """Run one worker, a waiting one where it is given; return None where it finished, else how it died."""
    number = len(list(folder.glob("request-*.json")))
    request_path, events_path = folder / f"request-{number}.json", folder / f"events-{number}.jsonl"
    request_path.write_text(request.to_json(), encoding="utf-8")
    events_path.touch()
    with contextlib.ExitStack() as stack:
        if worker is None or worker.poll() is not None:
            worker = _start(folder, environment, (), stack)
        stack.callback(_end, worker)
        assert worker.stdin
        with contextlib.suppress(BrokenPipeError):  # it is gone already, and what it printed says why
            worker.stdin.write(json.dumps([str(request_path), str(events_path)]) + "\n")
            worker.stdin.flush()
        with events_path.open(encoding="utf-8") as events:
            return _heard(worker, request, events, observed, deadline)


def _start(
    folder: Path, environment: Environment, names: Sequence[str], stack: contextlib.ExitStack
) -> subprocess.Popen[str]:
    """Start a worker that imports what the named variants need and waits; the stack ends it.

    What it prints goes to `log-PID.txt`. One that takes over from a dead one imports nothing before it says what it is
    at: a library may take a process down at its import.
    """
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
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="log-", suffix=".txt", delete=False) as log:
        worker = subprocess.Popen(
            [environment.python, *WORKER, "-", ",".join(names)],
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


def _heard(
    worker: subprocess.Popen[str], request: Request, events: TextIO, observed: Observations, deadline: float
) -> Death | None:
    """Take in what a worker says until it is done, dead, silent for too long or late.

    Once it probes capabilities all is measured, and however it ends is no death.
    """
    variant: str | None = None
    workload: str | None = None
    when = ""
    probing = False

    def death(status: Status, reason: str) -> Death:
        return Death(variant=variant, workload=workload, status=status, reason=when + reason, heard=said)

    said = False
    heard = time.monotonic()
    for event in _listen(worker, events):
        now = time.monotonic()
        if event is None:
            if now < deadline and now - heard < SILENCE_LIMIT_S:
                continue
            late = "the cell's time was up" if now >= deadline else f"no sign of life for {SILENCE_LIMIT_S:.0f} s"
            return None if probing else death(Status.TIMEOUT, f"{late}; the process was ended")
        heard, said = now, True
        observed.add(event)
        match event["event"]:
            case "begin":
                progress.say(variant=event["variant"], workload=event["workload"])
                variant, workload = event["variant"], event["workload"]
                when = "" if variant else "while inputs were made, "
            case "turn":
                variant, workload, when = event["variant"], None, "while it was timed, "
            case "timed":
                variant, workload, when = None, None, f"after {event['variant']} was timed, "
            case "probing":
                probing = True
            case "done":
                return None
    _end(worker)
    return None if probing else death(Status.CRASHED, _obituary(worker, events))


def _listen(worker: subprocess.Popen[str], events: TextIO) -> Iterator[dict[str, Any] | None]:
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


def _end(worker: subprocess.Popen[str]) -> None:
    """Kill a worker with every process that it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _obituary(worker: subprocess.Popen[str], events: TextIO) -> str:
    """Say how a worker ended, with the last line that it printed."""
    returncode, log_path = worker.returncode, Path(events.name).parent / f"log-{worker.pid}.txt"
    how = f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
    lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:160]}" if lines else ""
    return f"the process ended with {how}{last}"


def _out_of_time(names: tuple[str, ...], shapes: tuple[Workload, ...], observed: Observations, processes: int) -> None:
    for shape in shapes:
        for name in names:
            if len(observed.taken(name, shape.name)) < processes:
                reason = "the cell's time was up before it was measured; measure fewer variants or workloads in a cell"
                observed.fail(name, shape.name, Status.TIMEOUT, reason)
