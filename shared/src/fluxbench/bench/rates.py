"""The rates that this device reaches itself, measured in fresh processes: `rates.json`."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from pathlib import Path

from fluxbench.bench import dependencies
from fluxbench.bench.collected import Collected
from fluxbench.bench.measuring import PROCESSES, deadline_of, device_lock, scratch
from fluxbench.bench.pool import Pool, run_worker
from fluxbench.core.device_lock import order
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_text
from fluxbench.core.settings import Settings
from fluxbench.device import detect, targets
from fluxbench.device.model import Device
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.worker.request import Request

FILE = "rates.json"


def measure_rates(cell: Cell, settings: Settings, started: float) -> None:
    """Write `rates.json`: medians over the processes (see `timing.device_rates`), or a `reason` why there are none.

    Of the copy, `copy_gb_s_low` and `_high` are the smallest and the largest rate of a process. `phases` are what the
    processes did when, as in the samples of other cells.
    """
    device, collected = detect.detect(), Collected(until=settings.until)
    try:
        found: dict[str, object] = {**_rates(cell, device, settings, collected, deadline_of(started, settings))}
    except SetupError as error:
        found = {"reason": str(error)}
    found |= {
        "phases": collected.phases_in_files,
        "processes": PROCESSES,
        "fingerprint": dict(dependencies.of(cell, device, settings)),
    }
    write_text(Path(FILE), json.dumps(found, indent=1) + "\n")


def _rates(cell: Cell, device: Device, settings: Settings, collected: Collected, deadline: float) -> dict[str, float]:
    if collected.is_late(deadline):
        raise SetupError(collected.out_of_time)
    began = time.monotonic()
    environment = environments.prepare(
        cell.packages, targets.of(device, settings.root, cell.notebook), settings, cell.lock
    )
    collected.phases.append(("environment", began, time.monotonic()))
    request = Request(
        device=device.worker_kind,
        workloads=(),
        variants=(),
        references=(),
        rates=True,
        clock_mhz=device.sm_clock_max_mhz,
        lock=device_lock(settings),
        order=order(),
    )
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(scratch(cell, settings)))
        pool = stack.enter_context(contextlib.closing(Pool(folder, environment, device, (), PROCESSES)))
        for _ in range(PROCESSES):
            if exit_ := run_worker(folder, environment, request, collected, deadline, pool.next()):
                raise SetupError(exit_.reason)
    if not collected.rates:
        raise SetupError("torch cannot use this device")
    copies = [each["copy_gb_s"] for each in collected.rates]
    medians = {key: statistics.median(each[key] for each in collected.rates) for key in collected.rates[0]}
    return {**medians, "copy_gb_s_low": min(copies), "copy_gb_s_high": max(copies)}
