"""A fake worker that plays a scenario in a real process."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes import CPU, TINIER, TINY, clean, executable, is_alive, until

from fluxbench import bench
from fluxbench.bench.collected import Collected
from fluxbench.bench.pool import Pool
from fluxbench.bench.processes import Batch
from fluxbench.device import detect
from fluxbench.device.model import Device
from fluxbench.environments.prepare import Environment
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.worker.request import USUAL, Effort, Request

BOTH = ("tiny", "tinier")  # the names of both workloads
# A worker that measures what it is asked for in no time. A scenario redefines `before`, called at each of its steps.
# `silent` lets time pass by the clock of `skip_silence`, before each of so many looks of its starter.
WORKER = """
import json, os, signal, subprocess, sys, time

def silent(looks=1 << 30):
    mark = os.path.join(os.path.dirname(sys.argv[0]), f"silent-{os.getpid()}-{looks}")
    open(mark, "w").close()
    while os.path.exists(mark):
        time.sleep(0.01)

if sys.argv[1:4] != ["-m", "fluxbench.worker", "-"]:
    sys.exit(f"started as {sys.argv}")
request_path, events_path = json.loads(sys.stdin.readline())
request = json.load(open(request_path))
events = open(events_path, "a")
process = request["process"]
ERRORS = {"rel_l2": 1e-3, "max_abs": 1e-2, "mean_abs": 1e-3, "mse": 1e-6, "cosine": 1.0, "nan_count": 0,
          "budget_rel_l2": 5e-3}
shapes = [shape["name"] for shape in request["workloads"]]

def emit(event, **fields):
    events.write(json.dumps({"event": event, **fields}) + "\\n")
    events.flush()

def before(step, variant=None, workload=None):
    pass

def mean_ms(name):
    return None  # of a sustained block; there is none

SCENARIO

def take(name, workloads, burst=True):
    emit("trial", variant=name)
    if before("time" if burst else "again", name) == "fails":
        return
    ms = {workload: [1.0, 1.1] for workload in workloads}
    taken = {"samples_ms": ms, "reference_ms": ms, "control_ms": [0.5, 0.6],
             "launch_ms": {each: 0.1 for each in workloads},
             "places": {each: [0, 1] for each in workloads}, "times": [[0.0, 0.1], [0.2, 0.3]]}
    emit("timed", variant=name, reference=reference, process=process, workloads=workloads, began=0.0, took_s=1.0,
         slept_s=0.0, **({"burst": taken} if burst else {}), blocks=blocks(mean_ms(name)))

def blocks(mean):
    mine = [each for each in shapes if each not in request["burst_alone"]]
    one = mean and {"samples_ms": {each: [mean, mean] for each in mine}, "calls": {each: 1 for each in mine},
           "windows": [[0.0, 0.1], [0.1, 0.2]], "warm_up": 0, "windows_a_sample": 1, "settled": True, "ahead_ms": 1.0}
    return [one] if one else []

before("ready")
emit("ready", versions={"torch": "made up"})
emit("control_kernel", description="made up")
for shapes in [[one] for one in shapes] if request["effort"]["held_bytes"] else [shapes]:
    for workload in shapes:
        emit("begin", variant=None, workload=workload)
        before("prepare", None, workload)
    reference = None
    for name in dict.fromkeys((*request["references"], *request["variants"])):
        if reference and name not in request["variants"]:
            continue
        workloads = []
        for workload in shapes:
            if [name, workload] not in request["skip"] + (request["done"] if reference else []):
                emit("begin", variant=name, workload=workload)
                if before("check", name, workload) == "fails":
                    emit("failed", variant=name, workload=workload, status="INCORRECT", reason="it is wrong")
                else:
                    emit("checked", variant=name, workload=workload, errors={"out": ERRORS}, kernels=[], clocks=None,
                         thorough=process == request["thorough_in"],
                         detail=None, memory=None, compile_s=None, graph_breaks=None)
                    workloads.append(workload)
        reference = reference or (name if workloads else None)
        if workloads:
            take(name, workloads)
            before("after", name)
    if reference:
        take(reference, shapes, burst=False)
emit("profiling")
before("profile")
for name in request["probe"]:
    emit("probing")
    before("probe", name)
    emit("probed", variant=name, found={"causal": {"status": "yes", "reason": None, "rel_l2": None, "budget": None}})
before("done")
emit("done")
"""


HEADER = """\
# /// script
# [tool.fluxbench]
# notebook = "{}"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# {}
# ///
"""


def interpreter(path: Path, scenario: str = "", log: Path | None = None) -> Path:
    """Write an interpreter that holds what cells need, and is a fake worker.

    To `log` it adds a line of JSON for each worker: its request and the variables that libraries read.
    """
    have = {"torch": "2.13.0", "numpy": "2.4.6", "transformer-engine": "2.0"}
    answer = json.dumps({"version": "3.12.3", "have": have, "folders": [str(path.parent)]})
    body = WORKER.replace(
        "if sys.argv[1:4]", f"if sys.argv[1] == '-c':\n    print({answer!r})\n    sys.exit()\nif sys.argv[1:4]"
    )
    noting = f"""
with open({str(log)!r}, "a") as log:
    ours = ("NVTE_", "FLASH_", "TORCH", "CUDA_")
    variables = {{name: value for name, value in os.environ.items() if name.startswith(ours)}}
    log.write(json.dumps({{"request": request, "variables": variables, "folder": os.getcwd()}}) + "\\n")
"""
    return executable(path, body.replace("SCENARIO", textwrap.dedent(scenario) + (noting if log else "")))


def log_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of such a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, header: str = "") -> Path:
    """Let this process run the cell `sdpa` of a CPU, with this header, in an empty folder; return the folder."""
    clean(monkeypatch)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(detect, "detect", lambda: CPU)
    monkeypatch.setenv("FLUXBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sdpa.py").write_text(header, encoding="utf-8")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "sdpa.py"), raising=False)
    return folder


def played(
    folder: Path,
    scenario: str,
    names: tuple[str, ...] = ("a", "b", "c"),
    shapes: tuple[Workload, ...] = (TINY, TINIER),
    deadline_s: float = 600.0,
    device: Device = CPU,
    worker: str = WORKER,
    most: int = 3,
    least: int = 3,
    saves: bool = True,
    effort: Effort = USUAL,
    burst_alone: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
    until_s: float = math.inf,
    lock: str | None = None,
    before: Collected | None = None,
) -> Collected:
    """Run `least` processes of the fake worker in a scenario and return what was collected, with what was `before`."""
    python = executable(folder / "python", worker.replace("SCENARIO", textwrap.dedent(scenario)))
    collected = before or Collected(until=time.monotonic() + until_s)
    environment = Environment(python=str(python))
    deadline = time.monotonic() + deadline_s
    batch = Batch(
        folder=folder, environment=environment, device=device, workloads=shapes, variants=names,
        references=references or names[:1],
        processes=least, most=max(least, most), saves=saves, sustained=True, probe=True, lock=lock,
        compiled=str(folder), cases=str(folder), effort=effort, burst_alone=burst_alone,
    )  # fmt: skip
    with contextlib.closing(Pool(folder, environment, device, names, 3)) as pool:
        batch.measure(collected, pool, deadline)
        batch.measure_alone(collected, pool, deadline)
    return collected


def outcomes(collected: Collected) -> dict[str, str]:
    """Return the number of processes that timed each pair, or the status of its failure: {"a at tiny": "3"}."""
    pairs = {(trial.timed.variant, workload) for trial in collected.trials for workload in trial.timed.workloads}
    timed = {f"{name} at {workload}": str(len(collected.taken(name, workload))) for name, workload in pairs}
    failed = {f"{name} at {workload}": failed.status.value for (name, workload), failed in collected.failed.items()}
    return timed | failed


ALL_PASSED = {f"{name} at {shape.name}": "3" for name in "abc" for shape in (TINY, TINIER)}


def started(folder: Path) -> int:
    return len(list(folder.glob("request-*.json")))


def is_gone(pid: int) -> bool:
    """Whether a process is gone, or is a zombie that nobody has waited for, or soon will be."""
    return until(lambda: not is_alive(pid))


LOOK_S = 100.0  # under the limit of silence, which two of them exceed


def skip_silence(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: ModuleType) -> None:
    """Give modules a clock that skips `LOOK_S` before each look for events while a worker of a folder is `silent`.

    So limits are reached at once by what is silent, and never by a process that starts slowly on a busy machine.
    """
    looks: Counter[str] = Counter()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        for mark in folder.glob("silent-*"):
            _, pid, most = mark.name.split("-")
            if is_alive(int(pid)):
                looks[mark.name] += 1
                if looks[mark.name] % int(most) == 0:
                    mark.unlink()

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + LOOK_S * looks.total(), sleep=sleep)
    for module in (*modules, bench.collected):
        monkeypatch.setattr(module, "time", clock)


def when(condition: str, action: str) -> str:
    """Return a scenario in which a worker does something before a step."""
    return f"""
def before(step, variant=None, workload=None):
    if {condition}:
        {action}
"""


def status_of(status: Status, *pairs: str) -> dict[str, str]:
    return dict.fromkeys(pairs, status.value)


def at_both(*names: str) -> list[str]:
    return [f"{name} at {workload}" for name in names for workload in BOTH]


def requests(folder: Path) -> list[Request]:
    return [Request.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("request-*.json"))]
