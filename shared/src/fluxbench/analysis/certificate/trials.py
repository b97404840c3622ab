"""The trials as `trials.json` has them: runs of kernels that are slowed on purpose. See `bench.trials`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fluxbench.analysis.certificate import schema1
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import SCHEMA, Record, RecordError


class Form(Struct, frozen=True, kw_only=True):
    """What a slowed variant is: a base kernel followed by work of so many percent of its time."""

    base: str
    percent: float
    twin: bool  # a second, identical one under another name


class Place(Struct, frozen=True, kw_only=True):
    """Where one trial's burst samples of one workload were taken; all positions count from 0."""

    process: int
    variant: str
    workload: str
    trial: int  # position of the variant in its process
    trials: int  # of the process
    places: tuple[int, ...]  # of each sample in its round
    of: int  # calls of a round
    samples_ms: tuple[float, ...]


class Run(Struct, frozen=True, kw_only=True):
    """One run of all slowed variants: fresh processes, burst samples."""

    records: tuple[Record, ...]
    control: ControlTimes | None
    places: tuple[Place, ...]
    seconds: float = 0.0
    others: tuple[str, ...] = ()  # processes that used the device meanwhile


class Trials(Struct, frozen=True, kw_only=True):
    """All runs of the trials, in order."""

    runs: tuple[Run, ...]
    variants: dict[str, Form]
    asked: int  # runs
    device: str
    fingerprint: dict[str, str | int | float | bool | None]
    reason: str | None = None  # why no variant ran, or not in all runs

    @property
    def bases(self) -> tuple[str, ...]:
        """The kernels that are slowed, in order."""
        return tuple(dict.fromkeys(form.base for form in self.variants.values()))

    @property
    def records(self) -> list[Record]:
        """The PASSED records of all runs."""
        return [record for run in self.runs for record in run.records if record.burst]

    @property
    def processes(self) -> int:
        """How many fresh processes took part."""
        return sum(max((r.burst.processes for r in run.records if r.burst), default=0) for run in self.runs)

    @property
    def most_processes(self) -> int:
        """How many fresh processes a run has."""
        return max((record.burst.processes for record in self.records if record.burst), default=0)

    @property
    def unslowed(self) -> list[str]:
        """The variants that are not slowed, twins included."""
        return [name for name, form in self.variants.items() if not form.percent]

    def variant(self, base: str, percent: float, *, twin: bool = False) -> str:
        """Return the variant that is a base slowed by so much. Raises `KeyError` where there is none."""
        return {(form.base, form.percent, form.twin): name for name, form in self.variants.items()}[base, percent, twin]

    def has(self, base: str, percent: float, *, twin: bool = False) -> bool:
        """Whether a base was slowed by so much."""
        return Form(base=base, percent=percent, twin=twin) in self.variants.values()


def read_file(path: Path) -> Trials:
    """Return the trials that a file holds. Raises `OSError`, and `RecordError` where it is damaged."""
    return read(files.read_json(path, dict[str, Any], "the runs of trials"))


def read(content: Mapping[str, Any]) -> Trials:
    """Return what the JSON object of `trials.json` holds, of schema 1 or 2. Raises `RecordError` where it is damaged.

    The records get the fingerprint that the file holds once for all.
    """
    schema = content.get("schema")
    if schema not in (1, SCHEMA):
        raise RecordError(f"schema of trials.json must be 1 or {SCHEMA}, got {schema!r}; update fluxbench")
    try:
        converted = schema1.converted(content) if schema == 1 else content
        trials = msgspec.convert(converted, Trials)
        runs = tuple(
            msgspec.structs.replace(
                run, records=tuple(msgspec.structs.replace(r, fingerprint=trials.fingerprint) for r in run.records)
            )
            for run in trials.runs
        )
        return msgspec.structs.replace(trials, runs=runs)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"trials.json must hold the runs of trials, got {error!r}; run its cell again") from error


def to_json(of: Trials) -> dict[str, Any]:
    """Return the JSON object of schema 2 that `read` takes, with the fingerprint once and no places of samples."""
    runs = tuple(
        msgspec.structs.replace(
            run, places=(), records=tuple(msgspec.structs.replace(record, fingerprint={}) for record in run.records)
        )
        for run in of.runs
    )
    content: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(of, runs=runs))
    return {"schema": SCHEMA, **content}
