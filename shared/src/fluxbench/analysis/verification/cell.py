"""The files of one cell as they are published: its records and all that lies beside them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fluxbench.analysis.verification.problem import Finding, Kind, finding
from fluxbench.bench.series import Series
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import BURST, NotNegative, Positive, Record, RecordError

CONTROL = ("control_kernel", "sentinel")  # the second of schema 1
_SAMPLES = (".samples.json.gz", ".samples.json")
_RATES = ("rates.json", "ceilings.json")
_MOST_BYTES = 256 << 20  # of a file, decompressed


class Sampled(Struct, frozen=True, kw_only=True):
    """One series of `<cell>.samples.json.gz`, see `bench.samples`."""

    process: int
    variant: str
    regime: str
    samples_ms: tuple[Positive, ...]
    workload: str | None = None  # None: the control kernel's
    beside: str | None = None  # whose rounds the control kernel's samples are of
    calls_per_sample: int = 1
    ranked_over: int = 1
    ranked: tuple[int, ...] = ()
    sm_clock_mhz: tuple[NotNegative | None, ...] = ()
    power_w: tuple[NotNegative | None, ...] = ()
    temperature_c: tuple[float | None, ...] = ()
    throttle_reasons: tuple[tuple[str, ...] | None, ...] = ()
    reference_ms: tuple[Positive, ...] = ()

    @property
    def warm_up(self) -> int:
        """How many samples come before the first one that is ranked; none in burst."""
        return 0 if self.regime == BURST else next((i for i, one in enumerate(self.ranked) if one), len(self.ranked))

    @property
    def off(self) -> list[bool]:
        """By sample, whether it was taken out after the warm-up."""
        return [not one and index >= self.warm_up for index, one in enumerate(self.ranked)]

    def series(self) -> Series:
        """Return it as the series that it was written from."""
        return merged([self])


def merged(blocks: Sequence[Sampled]) -> Series:
    """Return several series of one variant in a process as one, warm-ups first, as `bench.series.sustained` does."""
    order = [(block, index, index < block.warm_up) for block in blocks for index in range(len(block.samples_ms))]
    order.sort(key=lambda one: not one[2])
    return Series(
        regime=blocks[0].regime,
        samples_ms=[block.samples_ms[index] for block, index, _ in order],
        spans=[(0.0, 0.0)] * len(order),
        states=[None] * len(order),
        off=[block.off[index] for block, index, _ in order],
        reasons=frozenset(),
        warm_up=sum(warm for *_, warm in order),
        calls=blocks[0].calls_per_sample,
        windows=blocks[0].ranked_over,
    )


class _Samples(Struct):
    series: tuple[Sampled, ...]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is published of a cell; None where there is no such file."""

    name: str
    records: Sequence[Record]
    samples: Sequence[Sampled] | None = None
    control: ControlTimes | None = None
    capabilities: dict[str, dict[str, Any]] | None = None
    device: dict[str, Any] | None = None
    rates: dict[str, Any] | None = None
    damaged: Sequence[Finding] = field(default_factory=tuple)

    @cached_property
    def by_pair(self) -> dict[tuple[str, str | None], list[Sampled]]:
        """The series of each variant and workload, as they were taken."""
        found: dict[tuple[str, str | None], list[Sampled]] = {}
        for one in self.samples or ():
            found.setdefault((one.variant, one.workload), []).append(one)
        return found


def read(path: Path, records: Sequence[Record] | None = None) -> Cell:
    """Return the cell of a record file, with what lies beside it; `records` are those that could be read.

    Raises `OSError`, and `RecordError` where the records themselves cannot be read. Other damage is in `damaged`.
    """
    damaged: list[Finding] = []

    def beside(*names: str) -> dict[str, Any] | None:
        for near in (path.with_name(name) for name in names):
            if near.is_file():
                try:
                    found = json.loads(content(near))
                    if not isinstance(found, dict):
                        raise ValueError("another kind of value")
                    return found
                except RecordError as error:
                    damaged.append(finding(Kind.DAMAGED, file=near.name, why=str(error)))
                except (ValueError, OSError, RecursionError):
                    damaged.append(finding(Kind.DAMAGED, file=near.name, why="it must hold one JSON object"))
        return None

    name = files.cell_of(path)
    samples = beside(*(name + suffix for suffix in _SAMPLES))
    series = capabilities = control = None
    try:
        series = msgspec.convert(samples, _Samples).series if samples is not None else None
    except (msgspec.ValidationError, RecursionError) as error:
        damaged.append(finding(Kind.DAMAGED, file=name + _SAMPLES[0], why=f"it must hold series: {error}"))
    if found := beside(f"{name}.capabilities.json"):
        try:
            capabilities = msgspec.convert(found.get("variants", {}), dict[str, dict[str, Any]])
        except msgspec.ValidationError as error:
            damaged.append(finding(Kind.DAMAGED, file=f"{name}.capabilities.json", why=str(error)))
    try:
        control = files.read_control(path.parent, name)
    except (RecordError, OSError) as error:
        damaged.append(finding(Kind.DAMAGED, file="", why=str(error)))
    return Cell(
        name=name,
        records=files.read(path) if records is None else records,
        samples=series,
        control=control,
        capabilities=capabilities,
        device=beside("device.json"),
        rates=beside(*_RATES),
        damaged=tuple(damaged),
    )


def content(file: Path) -> bytes:
    """Return what a file holds, decompressed. Raises `OSError`, and `RecordError` where that is too much."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        try:
            found = opened.read(_MOST_BYTES + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RecordError(f"it cannot be decompressed: {error}") from error
    if len(found) > _MOST_BYTES:
        raise RecordError(f"it must hold at most {_MOST_BYTES >> 20} MiB, got more")
    return found
