"""Records of three made-up processes: what their workers wrote, gathered and recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fakes import GPU, TINY
from sample_events import READY, REFERENCE, checked, collected, readings, timed

from fluxbench.bench import recording
from fluxbench.bench.collected import Collected, Pair
from fluxbench.bench.recording import Context
from fluxbench.device.model import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import SUSTAINED, Flag, Record, Timing
from fluxbench.records.status import FlagKind
from fluxbench.timing.telemetry import Reading

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
PROCESS_S = 1000.0  # from the begin of one process to that of the next
CUPTI = {"tiny": (0.79, 0.8)}
NO_ENERGY = Flag(kind=FlagKind.NO_ENERGY, regime=SUSTAINED)


def of_process(process: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the trials of a process: the reference, a variant 20% faster in burst and 10% sustained, and it again."""
    begin = PROCESS_S * process
    own = {"burst_ms": (0.8,) * 4, "block_ms": (9.0, 9.0, *[1.35] * 8), "cupti": None if process else CUPTI}
    return [
        timed(REFERENCE, process, began=begin, cupti=None if process else {"tiny": (1.0, 1.0)}),
        timed("torch_math", process, began=begin + 10, **{**own, **fields}),
        timed(REFERENCE, process, began=begin + 20, burst_ms=None),
    ]


def reported(**fields: Any) -> list[Reading]:
    """Return what the device reports in three processes: everything but its energy."""
    return [r for p in range(3) for r in readings(PROCESS_S * p, PROCESS_S * p + 25, step_s=0.05, **fields)]


def seen(
    trials: Iterable[dict[str, Any]] | None = None, device_reports: list[Reading] | None = None, **fields: Any
) -> Collected:
    """Return what is collected of three processes; `fields` change the trials of the variant."""
    right = [checked(variant, workload) for variant in (REFERENCE, "torch_math") for workload in ("tiny", "tinier")]
    written: list[dict[str, Any]] = []
    for event in [t for p in range(3) for t in of_process(p, **fields)] if trials is None else trials:
        if "process" in event and (not written or written[-1].get("process") != event["process"]):
            written.append(READY)
        written.append(event)
    return collected([*right, *written], reported() if device_reports is None else device_reports)


def record(
    of: Collected,
    variant: str = "torch_math",
    *,
    workload: Workload = TINY,
    device: Device = GPU,
    processes: int = 3,
    powers: dict[Pair, tuple[float, float]] | None = None,
    early: bool = False,
) -> Record:
    context = Context(
        cell=CELL, device=device, processes=processes, fingerprint={"a": "b"}, measured_at="2026-01-31T12:00:00Z",
        powers=powers or {}, early=early,
    )  # fmt: skip
    [made] = recording.of_cell(of, [variant], [workload], context)
    return made


def regimes(made: Record) -> tuple[Timing, Timing]:
    """Return the timings of burst and sustained."""
    assert made.burst is not None
    assert made.sustained is not None
    return made.burst, made.sustained


def flag(made: Record, kind: FlagKind) -> tuple[object, ...]:
    """Return what the only flag of a kind holds; nothing where there is none."""
    flags = [each for each in made.flags if each.kind is kind]
    assert len(flags) <= 1
    return (flags[0].regime, flags[0].value, flags[0].detail) if flags else ()
