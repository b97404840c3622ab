"""What a measuring cell calls: gate on hardware, run workers, and turn what they saw into records.

A worker that crashes, hangs or runs out of memory costs one status; a fresh one goes on with the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec

from fluxbench import variants
from fluxbench.bench import dependencies
from fluxbench.bench.observations import Observations, to_samples, to_sentinel
from fluxbench.bench.processes import Waiting, run_one, run_variants
from fluxbench.bench.recording import to_record
from fluxbench.core import progress
from fluxbench.core.settings import Settings, SetupError, full_disk
from fluxbench.device import detection as hardware
from fluxbench.device import targets
from fluxbench.device.detection import Device
from fluxbench.device.peaks import Peak, peak
from fluxbench.environments import cell
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.operations.workloads import Workload
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Status
from fluxbench.report.tables import tables
from fluxbench.worker.request import Request

PROCESSES = 3
UVNOTE_LIMIT_S = 300.0  # uvnote ends a cell then, and shows nothing of it

P = ParamSpec("P")


def deadline_of(started: float, settings: Settings) -> float:
    """Return when to stop measuring (monotonic seconds), so that what is not measured can still be said."""
    limit_s = settings.cell_limit_s or UVNOTE_LIMIT_S
    return started + limit_s - min(30.0, limit_s / 4)


def one_sentence(function: Callable[P, None]) -> Callable[P, None]:
    """Let a cell end with one sentence and exit code 1 where the machine or the request is not as it must be."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except SetupError as error:
            sys.exit(f"fluxbench: {error}")
        except OSError as error:
            if not (sentence := full_disk(error)):
                raise
            sys.exit(f"fluxbench: {sentence}")

    return wrapped


@one_sentence
def measure(*names: str) -> None:
    """Check and time the named variants at this machine's workloads, print their times, and write `<cell>.jsonl`.

    Ends the cell with one sentence where a name is unknown or the cell's header is malformed; anything else that goes
    wrong is a status in the records.
    """
    started = time.monotonic()
    settings = Settings.load()
    this = cell.current()
    chosen = _known(variants.find, names)
    device = hardware.detect()
    observed = Observations()
    found = measure_cell(this, list(chosen), device, settings, deadline_of(started, settings), observed)
    records.write(Path(f"{this.id}.jsonl"), found)
    records.write_text(Path(f"{this.id}.samples.json"), to_samples(observed))
    if observed.probed:
        probed = {"schema": records.SCHEMA, "variants": observed.probed}
        records.write_text(Path(f"{this.id}.capabilities.json"), json.dumps(probed, indent=1) + "\n")
    if sentinel := to_sentinel(observed):
        records.write_text(Path(f"{this.id}.sentinel.json"), sentinel.to_json() + "\n")
    if observed.others:
        print(f"Another process was using the device: {'; '.join(observed.others)}. Times may be too long.\n")
    print(tables.timing_table(found), tables.method_note(found), sep="\n\n")


@one_sentence
def ceilings() -> None:
    """Measure what this device reaches at most, print it beside the data sheet, and write `ceilings.json`.

    The file holds the medians over the processes, see `fluxbench.ceilings` for the keys, or a `reason` where they could
    not be measured.
    """
    settings = Settings.load()
    deadline = deadline_of(time.monotonic(), settings)
    this = cell.current()
    device = hardware.detect()
    observed = Observations()
    try:
        environment = environments.prepare(this.packages, targets.of(device, settings.root), settings, this.lock)
        request = Request(
            device=device.worker_kind,
            workloads=(),
            variants=(),
            references=(),
            ceilings=True,
            clock_mhz=device.sm_clock_max_mhz,
        )
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(_scratch(this, settings)))
            waiting = stack.enter_context(contextlib.closing(Waiting(folder, environment, device, (), PROCESSES)))
            for _ in range(PROCESSES):
                death = run_one(folder, environment, request, observed, deadline, waiting.next())
                if death:
                    raise SetupError(death.reason)
        if not observed.ceilings:
            raise SetupError("torch cannot use this device")
        rates = {key: statistics.median(seen[key] for seen in observed.ceilings) for key in observed.ceilings[0]}
        found: dict[str, object] = {**rates}
        print(_against_peak(rates, peak(device)))
    except SetupError as error:
        found = {"reason": str(error)}
        print(f"The device's own rates could not be measured: {error}.")
    marks = {**found, "fingerprint": dict(dependencies.of(this, (), device, settings))}
    records.write_text(Path("ceilings.json"), json.dumps(marks, indent=1) + "\n")


def _against_peak(found: dict[str, float], sheet: Peak | None) -> str:
    """Say what was reached, and which share of the data sheet's rate that is, where there is a data sheet."""
    rates = (
        (f"bfloat16 matrix product, n = {found['matmul_size']:.0f}", found["matmul_tflops"], "TFLOP/s", "bf16_tflops"),
        ("copy within the device's memory", found["copy_gb_s"], "GB/s", "memory_gb_s"),
    )
    lines = []
    for what, rate, unit, name in rates:
        limit = getattr(sheet, name, None)
        share = f"{rate / limit:.0%} of the data sheet's {limit:,g}" if limit else "peak unknown"
        lines.append(f"{what:<36}{rate:>10,.1f} {unit:<8} {share}")
    lines.append(f"{'between two events, nothing in it':<36}{found['event_us']:>10,.2f} µs")
    return "\n".join([f"Medians over {PROCESSES} fresh processes, rates under load.", *lines])


def measure_cell(
    this: Cell,
    names: list[str],
    device: Device,
    settings: Settings,
    deadline: float,
    observed: Observations,
    *,
    sustained: bool = True,
) -> list[Record]:
    """Return one record for every variant and workload, in that order; what was seen goes to `observed`.

    `deadline` is a monotonic time in seconds. Without `sustained` there are burst times alone.
    """
    shapes = dependencies.default_workloads(device, settings)
    target = targets.of(device, settings.root)
    left_out = () if settings.all else target.leaves_out
    wanted = []
    marks = dependencies.of(this, names, device, settings)
    for name in names:
        variant, _ = variants.find(name)
        for shape in shapes:
            reason = variant.supports(device, shape)
            if not reason and any(fnmatch.fnmatch(name, pattern) for pattern in left_out):
                reason = f"left out of the page of target {target.name!r} for its time; FLUXBENCH_ALL=1 measures it"
            if reason:
                observed.fail(name, shape.name, Status.UNSUPPORTED, reason)
            elif name not in wanted:
                wanted.append(name)
    if wanted:
        observed.others = list(hardware.other_processes(device))
        _run(this, wanted, shapes, device, settings, deadline, observed, sustained=sustained)
        observed.others = list(dict.fromkeys([*observed.others, *hardware.other_processes(device)]))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return [
        to_record(observed, this, name, shape, fingerprint=marks, measured_at=now, processes=PROCESSES, device=device)
        for name in names
        for shape in shapes
    ]


def _run(
    this: Cell,
    wanted: list[str],
    shapes: tuple[Workload, ...],
    device: Device,
    settings: Settings,
    deadline: float,
    observed: Observations,
    *,
    sustained: bool,
) -> None:
    references = tuple(
        name for name in variants.REFERENCES if not any(variants.find(name)[0].supports(device, s) for s in shapes)
    )
    try:
        environment = environments.prepare(this.packages, targets.of(device, settings.root), settings, this.lock)
    except SetupError as error:
        for name in wanted:
            for shape in shapes:
                observed.fail(name, shape.name, Status.UNAVAILABLE, str(error))
        return
    progress.say(steps=PROCESSES * len(shapes) * len(wanted))
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}  # by variables, which a library reads at its import
    for name in wanted:
        groups.setdefault(tuple(sorted(variants.find(name)[0].variables.items())), []).append(name)
    with contextlib.ExitStack() as stack:
        several = []
        for variables, names in groups.items():  # those of all groups import at once: it takes longer than measuring
            folder = Path(stack.enter_context(_scratch(this, settings)))
            its = dataclasses.replace(environment, variables={**environment.variables, **dict(variables)})
            waiting = stack.enter_context(contextlib.closing(Waiting(folder, its, device, names, PROCESSES)))
            several.append((folder, its, tuple(names), waiting))
        for folder, its, chosen, waiting in several:
            run_variants(
                folder,
                its,
                device,
                shapes,
                chosen,
                references,
                observed,
                waiting,
                processes=PROCESSES,
                deadline=deadline,
                sustained=sustained,
            )
            waiting.close()


def _scratch(this: Cell, settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for requests, events and compiled kernels that is gone after the cell."""
    runs = settings.cache / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=runs, prefix=f"{this.id}-", ignore_cleanup_errors=True)


def _known(find: Callable[[str], object], names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise SetupError("a measuring cell must name at least one variant, got none")
    for name in names:
        try:
            find(name)
        except KeyError as error:
            raise SetupError(str(error.args[0])) from error
    return tuple(dict.fromkeys(names))
