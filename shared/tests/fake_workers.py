"""A fake worker that plays a scenario in a real process."""

from __future__ import annotations

import contextlib
import os
import textwrap
import time
from pathlib import Path

from fakes import CPU, TINIER, TINY, executable

from fluxbench.bench.observations import Observations
from fluxbench.bench.processes import Waiting, run_variants
from fluxbench.device.detection import Device
from fluxbench.environments.prepare import Environment
from fluxbench.operations.workloads import Workload

# A worker that measures what it is asked for in no time. A scenario redefines `before`, called at each of its steps.
WORKER = """
import json, os, signal, subprocess, sys, time

if sys.argv[1:4] != ["-m", "fluxbench.worker", "-"]:
    sys.exit(f"started as {sys.argv}")
request_path, events_path = json.loads(sys.stdin.readline())
request = json.load(open(request_path))
events = open(events_path, "a")
process = request["process"]
shapes = [shape["name"] for shape in request["workloads"]]

def emit(event, **fields):
    events.write(json.dumps({"event": event, **fields}) + "\\n")
    events.flush()

def before(step, variant=None, workload=None):
    pass

SCENARIO

def take(name, workloads, burst=True):
    emit("turn", variant=name)
    if before("time" if burst else "again", name) == "fails":
        return
    ms = {workload: [1.0, 1.1] for workload in workloads}
    times = [[0.0, 0.1], [0.2, 0.3]]
    taken = {"burst": {"samples_ms": ms, "reference_ms": ms, "sentinel_ms": [], "launch_ms": ms, "times": times}}
    emit("timed", variant=name, reference=reference, process=process, workloads=workloads, began=0.0, ended=1.0,
         **(taken if burst else {}))

before("ready")
emit("ready", versions={"torch": "made up"})
for workload in shapes:
    emit("begin", variant=None, workload=workload)
    before("prepare", None, workload)
reference = None
for name in dict.fromkeys((*request["references"], *request["variants"])):
    workloads = []
    for workload in shapes:
        if [name, workload] not in request["skip"]:
            emit("begin", variant=name, workload=workload)
            if before("check", name, workload) == "fails":
                emit("failed", variant=name, workload=workload, status="INCORRECT", reason="it is wrong")
            else:
                emit("checked", variant=name, workload=workload)
                workloads.append(workload)
    reference = reference or (name if workloads else None)
    if workloads:
        take(name, workloads)
        before("after", name)
if reference:
    take(reference, shapes, burst=False)
for name in request["variants"] if request["probe"] else ():
    emit("probing", variant=name)
    before("probe", name)
    emit("probed", variant=name, found={"causal": "yes"})
before("done")
emit("done")
"""


def played(
    folder: Path,
    scenario: str,
    names: tuple[str, ...] = ("a", "b", "c"),
    shapes: tuple[Workload, ...] = (TINY, TINIER),
    deadline_s: float = 60.0,
    device: Device = CPU,
    worker: str = WORKER,
) -> Observations:
    """Run three processes of the fake worker in a scenario and return what was observed."""
    python = executable(folder / "python", worker.replace("SCENARIO", textwrap.dedent(scenario)))
    observed = Observations()
    environment = Environment(python=str(python))
    deadline = time.monotonic() + deadline_s
    with contextlib.closing(Waiting(folder, environment, device, names, 3)) as waiting:
        run_variants(
            folder, environment, device, shapes, names, names[:1], observed, waiting, processes=3, deadline=deadline
        )
    return observed


def outcomes(observed: Observations) -> dict[str, str]:
    """Return the number of processes that timed each pair, or the status of its failure: {"a at tiny": "3"}."""
    pairs = {(turn.variant, workload) for turn in observed.turns for workload in turn.workloads}
    found = {f"{name} at {workload}": str(len(observed.taken(name, workload))) for name, workload in pairs}
    return found | {f"{name} at {workload}": status for (name, workload), (status, _, _) in observed.failed.items()}


ALL_PASSED = {f"{name} at {shape.name}": "3" for name in "abc" for shape in (TINY, TINIER)}


def started(folder: Path) -> int:
    return len(list(folder.glob("request-*.json")))


def is_gone(pid: int) -> bool:
    """Whether a process is gone, or is a zombie that nobody has waited for, within two seconds."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except (ProcessLookupError, FileNotFoundError):
            return True
        if "State:\tZ" in status:
            return True
        time.sleep(0.02)
    return False
