"""Start a worker: `PYTHONPATH=shared/src python -m fluxbench.worker request.json events.jsonl`.

With `-` and names of variants, separated by commas, in place of the paths: see `load_early` and `standby`. A third
argument is the path of a request like those that will come, for which plans are made meanwhile: see `make_ready`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fluxbench import variants
from fluxbench.core.memory_ledger import MemoryLedger
from fluxbench.operations.shapes import AttentionCall
from fluxbench.worker import plans
from fluxbench.worker.device_use import hold_context
from fluxbench.worker.needs import CONTEXT_BYTES
from fluxbench.worker.parent import exit_with
from fluxbench.worker.request import Request
from fluxbench.worker.state import ProcessState
from fluxbench.worker.worker import Worker

_ANY_CALL = AttentionCall(seq_len_q=1, seq_len_k=1, heads=1, kv_heads=1, head_dim_qk=64, head_dim_v=64)


def main(request_path: str, events_path: str, planned: str = "") -> int:
    """Carry out the request of one file and append events to the other."""
    exit_with(os.getppid())
    ours = {key: value for key, value in os.environ.items() if key in variants.VARIABLES}  # before a library sets any
    changed: dict[str, str] = {}
    began = imported = time.monotonic()
    if request_path == "-":
        names = events_path.split(",") if events_path else []
        changed = load_early(names)
        imported = time.monotonic()
        if planned:
            expected = Request.from_json(Path(planned).read_text(encoding="utf-8"))
            ledger = MemoryLedger(Path(expected.lock) if expected.lock else None)  # kept until this process ends
            make_ready(expected, ledger)
        request_path, events_path = standby()
    request = Request.from_json(Path(request_path).read_text(encoding="utf-8"))
    refuse_other_variables(request.variants, ours)
    with Path(events_path).open("a", encoding="utf-8") as events:
        worker = Worker(request, events, changed)
        worker.use.phase("importing", began)
        worker.use.phase("standby", imported)
        worker.run()
    return 0


def refuse_other_variables(names: Sequence[str], ours: Mapping[str, str]) -> None:
    """Raise `RuntimeError` where a variant's variables are not ours: its library may run another kernel."""
    for name in names:
        if ours != (wanted := variants.find(name).variant.variables):
            raise RuntimeError(f"{name} needs a process with {dict(wanted)}, this one has {dict(ours)}")


def load_early(names: Sequence[str]) -> dict[str, str]:
    """Import what takes seconds; return, by variant, what it changed of the process, which is put back.

    What some of `names` cannot import shows at their trial.
    """
    import torch.profiler

    if any(variants.find(name).compiles for name in names):
        import torch._inductor.compile_fx
    if torch.cuda.device_count():  # on a CPU nothing waits for the imports of another
        # The profiler imports the first when it starts (a second or more); only models' environments have the other.
        for name in ("torch._inductor.config", "diffusers.models.transformers.transformer_flux"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    state = ProcessState(torch.device("cpu"))  # of a GPU nothing is known yet
    changes = {}
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            variants.find(name).variant.load(_ANY_CALL)
        if changed := state.restore():
            changes[name] = changed
    return changes


def make_ready(expected: Request, ledger: MemoryLedger) -> None:
    """Make plans until there is a request, and say in the ledger what this process holds of the device meanwhile."""
    hold_context(ledger)  # which an import may have opened
    if expected.effort.plans:
        is_asked = lambda: bool(select.select([sys.stdin], [], [], 0)[0])  # noqa: E731
        plans.make_early(expected, is_asked, lambda held: ledger.hold(CONTEXT_BYTES + held))


def standby() -> list[str]:
    """Wait for a line with the paths of request and events; they end the process.

    So the processes of a cell start together, and only one at a time runs anything on the device.
    """
    line = sys.stdin.readline()
    if not line:  # whoever started it needs it no more
        sys.exit(0)
    paths: list[str] = json.loads(line)
    return paths


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
