"""What a measuring cell calls: gate on hardware, run workers, and turn what they wrote into records.

A worker that crashes, hangs or runs out of memory costs one status; a fresh one goes on with the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fluxbench import studies, variants
from fluxbench.bench import compiler_caches, dependencies, recording, samples
from fluxbench.bench.collected import Collected, Pair
from fluxbench.bench.early import Early
from fluxbench.bench.events import Failed
from fluxbench.bench.gate import gate, known, refused, unsupported
from fluxbench.bench.pool import Pool
from fluxbench.bench.processes import POOLED, Batch
from fluxbench.bench.recording import Context
from fluxbench.bench.side_by_side import measure_all
from fluxbench.bench.timings import LEAST
from fluxbench.bench.unfinished import Unfinished
from fluxbench.core import progress
from fluxbench.core.device_lock import folder as lock_folder
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_gzip, write_text
from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia, targets
from fluxbench.device.model import Device
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.schema import SCHEMA, Record
from fluxbench.records.status import Status
from fluxbench.timing import energy
from fluxbench.worker.request import Effort, Request, inputs_of

PROCESSES = 3
MOST_PROCESSES = 5  # of a GPU
_ALONE_OF_LONG = 3  # processes of a single variant whose calls last up to a second
UVNOTE_LIMIT_S = 300.0  # uvnote ends a cell then, and shows nothing of it


def deadline_of(started: float, settings: Settings) -> float:
    """Return when to stop measuring (monotonic seconds), so that there is time left to write what is not measured."""
    limit_s = settings.cell_limit_s or UVNOTE_LIMIT_S
    return started + limit_s - min(30.0, limit_s / 4)


def measure_variants(cell: Cell, settings: Settings, started: float) -> None:
    """Check and time a cell's variants at this machine's workloads, and write its files."""
    device = detect.detect()
    collected = Collected()
    least = settings.processes or PROCESSES
    most = least if device.worker_kind == "cpu" else max(least, MOST_PROCESSES)
    deadline, early = deadline_of(started, settings), progress.is_heard()
    found = measure(
        cell, cell.variants, device, settings, deadline, collected, (least, most), early=early, resumes=True
    )
    files.write(Path(f"{cell.id}.jsonl"), found)
    references_failed = [failed for failed in collected.failed.values() if failed.variant not in cell.variants]
    write_gzip(Path(f"{cell.id}.samples.json.gz"), samples.to_json(collected, references_failed))
    _print_failed(references_failed)
    if collected.probed:
        probed = {"schema": SCHEMA, "variants": msgspec.to_builtins(collected.probed)}
        write_text(Path(f"{cell.id}.capabilities.json"), json.dumps(probed, indent=1) + "\n")
    if control := samples.control_times(collected):
        write_text(Path(f"{cell.id}.control.json"), control.to_json() + "\n")


def _print_failed(references: Iterable[Failed]) -> None:
    """Print why references failed, a sentence for each reason."""
    workloads: dict[tuple[str, Status, str], list[str]] = {}
    for failed in references:
        workloads.setdefault((failed.variant, failed.status, failed.reason), []).append(failed.workload)
    for (name, status, reason), of_reason in workloads.items():
        print(f"The reference {name} failed at {', '.join(of_reason)}: {status}, {reason}.")


def measure(
    cell: Cell,
    names: Iterable[str],
    device: Device,
    settings: Settings,
    deadline: float,
    collected: Collected,
    processes: tuple[int, int] = (PROCESSES, PROCESSES),
    early: bool = False,
    resumes: bool = False,
) -> list[Record]:
    """Return one record for every variant and workload, in that order; what workers wrote goes to `collected`.

    `deadline` is a monotonic time in seconds. `processes`: how many at least, and at most, where what is known is not
    enough. On a GPU a study may need fewer, see `processes_on_gpu`. `early`: also write the first variants' records
    while the cell goes on, see `bench.early`. `resumes`: go on with what a build that was stopped had measured, and
    keep what this one measures until all is, see `bench.unfinished`. Raises `SetupError` where a study, a variant or a
    workload is unknown.
    """
    names = known(names)
    study = studies.find(cell.study)
    workloads = study.workloads_on(device, settings)
    depends = dependencies.of(cell, device, settings)
    wanted = gate(names, workloads, targets.of(device, settings.root, cell.notebook), device, settings, collected)
    if device.worker_kind != "cpu":
        processes = processes_on_gpu(study.effort, wanted, *processes, asked=bool(settings.processes))
    context = Context(
        cell=cell,
        device=device,
        processes=processes[0],
        fingerprint=depends,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        powers={},
    )
    if early:
        collected.heard = Early(collected, wanted, workloads, context).hear
    collected.until = settings.until
    if wanted:
        collected.others = list(nvidia.other_processes(device))
        with Unfinished.of(settings, cell, depends) if resumes else contextlib.nullcontext() as unfinished:
            _run(cell, wanted, workloads, device, settings, deadline, collected, processes, unfinished)
        collected.others = list(dict.fromkeys([*collected.others, *nvidia.other_processes(device)]))
    if collected.cut:
        progress.say(partly=True)
    context = dataclasses.replace(
        context, measured_at=datetime.now(UTC).isoformat(timespec="seconds"), powers=powers(collected)
    )
    return list(recording.of_cell(collected, names, workloads, context))


def processes_on_gpu(
    effort: Effort, names: Sequence[str], least: int, most: int, *, asked: bool = False
) -> tuple[int, int]:
    """Return in how many processes a GPU measures a cell's variants at least and at most, where these are usual.

    Intervals are of all variants of a cell, so calls of up to a second need two, unless more are `asked` for; a single
    variant needs three.
    """
    if effort.long:
        few = least if asked else LEAST if len(names) > 1 else _ALONE_OF_LONG
        return few, few
    return least, max(least, min(most, effort.most or most))


def device_lock(settings: Settings) -> str:
    """Return the folder of the lock that workers take before they use the device."""
    return str(lock_folder(settings.cache).absolute())


def scratch(cell: Cell, settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for requests and events that is gone after the cell."""
    runs = settings.cache / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=runs, prefix=f"{cell.id}-", ignore_cleanup_errors=True)


def _run(
    cell: Cell,
    wanted: list[str],
    workloads: tuple[Workload, ...],
    device: Device,
    settings: Settings,
    deadline: float,
    collected: Collected,
    processes: tuple[int, int],
    unfinished: Unfinished | None = None,
) -> None:
    """Measure what can run, in workers of the measured environment; UNAVAILABLE where that cannot be had.

    `processes`: how many at least, and at most.
    """
    study, (least, most) = studies.find(cell.study), processes
    effort = study.effort_on(device, workloads)
    began = time.monotonic()

    def fail(status: Status, reason: str) -> None:
        for name, workload in itertools.product(wanted, workloads):
            collected.fail(name, workload.name, status, reason)

    # So late that it need not make an environment, unless a build before has measured some of it.
    if collected.is_late(deadline) and not (unfinished and unfinished.is_there):
        collected.cut = True
        fail(Status.TIMEOUT, collected.out_of_time)
        return
    try:
        target = targets.of(device, settings.root, cell.notebook)
        environment = environments.prepare(cell.packages, target, settings, cell.lock)
        packages = environments.describe(cell.packages, target, settings, cell.lock)
        collected.phases.append(("environment", began, time.monotonic()))
    except SetupError as error:
        fail(Status.UNAVAILABLE, str(error))
        return
    compiled = settings.cache / "compiled" / f"{cell.notebook}-{cell.id}"
    compiled.mkdir(parents=True, exist_ok=True)
    caches = compiler_caches.variables(compiled, {"device": device.name, "driver": device.driver or "", **packages})
    with contextlib.ExitStack() as stack:
        batches = []
        possible = [workload for workload in workloads if not refused(workload, device)]
        for number, together in enumerate(_by_process(possible)):
            in_burst = tuple(one.name for one in together if not study.sustains(one.operation, device))
            sustains = len(in_burst) < len(together)
            references = tuple(
                name
                for name in study.references
                if not any(unsupported(name, device, workload) for workload in together)
            )
            for variables, names in _by_variables(wanted).items():  # workers of all batches import at once
                folder = Path(stack.enter_context(scratch(cell, settings)))
                with_variables = dataclasses.replace(
                    environment, variables={**environment.variables, **dict(variables), **caches}
                )
                planned = Request(
                    device=device.worker_kind, workloads=together, variants=(), references=references,
                    effort=effort, lock=device_lock(settings),
                )  # fmt: skip
                pool = Pool(folder, with_variables, device, names, min(least, POOLED), planned)
                stack.enter_context(contextlib.closing(pool))
                batch = Batch(
                    folder=folder,
                    environment=with_variables,
                    device=device,
                    workloads=together,
                    variants=tuple(names),
                    references=references,
                    processes=least,
                    most=most,
                    saves=not settings.processes,
                    sustained=sustains,
                    burst_alone=in_burst if sustains else (),
                    whole_up_to=study.whole_up_to,
                    probe=sustains and not number and cell.measures == "variants" and effort.probes,
                    lock=device_lock(settings),
                    compiled=str(compiled),
                    cases=str((settings.cache / "cases").absolute()),
                    contents=settings.contents if effort.long and device.worker_kind != "cpu" else "",
                    effort=effort,
                )
                batches.append((batch, pool))
        progress.say(steps=sum(batch.steps for batch, _ in batches))
        at_once = device.worker_kind != "cpu" and effort.side_by_side
        measure_all(batches, collected, deadline, together=at_once, unfinished=unfinished)
    if unfinished and not collected.cut:
        unfinished.forget()


def _by_process(workloads: Iterable[Workload]) -> list[tuple[Workload, ...]]:
    """Return the workloads that are measured in the same processes: of an operation and those that are part of it.

    What shares inputs stands side by side, the whole before its part.
    """
    by_inputs: dict[tuple[str, str], list[Workload]] = {}
    for workload in workloads:
        by_inputs.setdefault(inputs_of(workload), []).append(workload)
    found: dict[str, list[Workload]] = {}
    for (whole, _), alike in by_inputs.items():
        parts = (one for one in alike if one.operation != whole)
        found.setdefault(whole, []).extend([*(one for one in alike if one.operation == whole), *parts])
    return [tuple(together) for together in found.values()]


def _by_variables(names: Iterable[str]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Return the variants by the variables of their processes, which a library reads when it is imported."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in names:
        found.setdefault(tuple(sorted(variants.find(name).variant.variables.items())), []).append(name)
    return found


def powers(collected: Collected) -> dict[Pair, tuple[float, float]]:
    """Return the power in W of each variant at each workload over its ranked windows, with half its interval.

    Workloads that share their blocks have one power.
    """
    blocks: dict[Pair, list[tuple[float, float]]] = {}
    for trial in collected.trials:
        for block in trial.timed.blocks:
            windows = block.windows[block.warm_up :]
            for workload in block.samples_ms:
                blocks.setdefault((trial.timed.variant, workload), []).append((windows[0][0], windows[-1][1]))
    found = energy.powers(collected.readings, {tuple(spans): spans for spans in blocks.values()})
    return {pair: found[tuple(spans)] for pair, spans in blocks.items() if tuple(spans) in found}
