"""The files of one cell as they are published: its records and all that lies beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from fluxbench.analysis.verification.problem import Finding, Kind, finding
from fluxbench.bench.series import Series
from fluxbench.device.model import Device
from fluxbench.records import files
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import BURST, Name, NotNegative, Positive, Record, RecordError, Text

T = TypeVar("T")

CONTROL = ("control_kernel", "sentinel")  # the second of schema 1
_SAMPLES = (".samples.json.gz", ".samples.json")
_RATES = ("rates.json", "ceilings.json")
_LASTED = 0.9  # of the time of its calls, that a window must have lasted at least


class Sampled(Struct, frozen=True, kw_only=True):
    """One series of `<cell>.samples.json.gz`, see `bench.samples`."""

    process: int
    variant: Name
    regime: Name
    samples_ms: tuple[Positive, ...]
    workload: Name | None = None  # None: the control kernel's
    beside: Name | None = None  # whose rounds the control kernel's samples are of
    calls_per_sample: int = 1
    ranked_over: Annotated[int, Meta(ge=1)] = 1
    ranked: tuple[int, ...] = ()
    began_s: tuple[float, ...] = ()
    sm_clock_mhz: tuple[NotNegative | None, ...] = ()
    power_w: tuple[NotNegative | None, ...] = ()
    temperature_c: tuple[float | None, ...] = ()
    throttle_reasons: tuple[tuple[Name, ...] | None, ...] = ()
    kernels: tuple[Text, ...] | None = None  # of a call, largest first: in burst, of a GPU's later processes
    reference_ms: tuple[Positive, ...] = ()  # of the same rounds: in burst, and sustained on a CPU
    worker: int | None = None  # since method version 7, as the three below: in which of all workers
    reference: Name | None = None
    settled: bool | None = None  # of a block
    ahead_ms: NotNegative | None = None  # of a block, by which the host was ahead at least
    replayed: bool | None = None  # since method version 8: a block, as CUDA graphs
    launch_ms: NotNegative | None = None  # of the host for a call, in burst
    launched_ms: Positive | None = None  # since method version 8: of a replayed call where the host launches it

    def __post_init__(self) -> None:
        """Raise `ValueError` where lists are not of the samples, or none is ranked."""
        lists = [self.ranked, self.sm_clock_mhz, self.power_w, self.temperature_c, self.throttle_reasons]
        lists += [self.reference_ms] * (self.regime == BURST or bool(self.reference_ms))
        lists += [self.began_s] * bool(self.began_s)
        if not self.samples_ms or (self.workload and any(len(one) != len(self.samples_ms) for one in lists)):
            raise ValueError(f"a series of {self.variant} must say as much of each sample, and have some")
        if self.workload and not any(self.ranked):
            raise ValueError(f"a series of {self.variant} must have a sample that is ranked")
        if not self._has_time:
            raise ValueError(f"the windows of {self.variant} must last as long as their calls")

    @property
    def _has_time(self) -> bool:
        """Whether windows of a GPU, all but the last, lasted about as long as their calls or longer."""
        if self.regime == BURST or self.reference_ms or not self.began_s or not self.workload:
            return True
        in_calls_s = self.calls_per_sample * sum(self.samples_ms[:-1]) / 1e3
        return max(self.began_s) - min(self.began_s) >= _LASTED * in_calls_s

    @property
    def warm_up(self) -> int:
        """How many samples come before the first one that is ranked; none in burst."""
        return 0 if self.regime == BURST else next((i for i, one in enumerate(self.ranked) if one), len(self.ranked))

    @property
    def off(self) -> list[bool]:
        """By sample, whether it was taken out after the warm-up."""
        begin = self.warm_up
        return [not one and index >= begin for index, one in enumerate(self.ranked)]

    def of_reference(self) -> Sampled:
        """Return the series of the reference in the same rounds."""
        return structs.replace(self, samples_ms=self.reference_ms)

    def series(self) -> Series:
        """Return it as the series that it was written from."""
        return merged([self])


def merged(blocks: Sequence[Sampled]) -> Series:
    """Return several series of one variant in a process as one, warm-ups first, as `bench.series.sustained` does."""
    of_blocks = [
        (block.warm_up, list(zip(block.samples_ms, block.off, block.began_s or [0.0] * len(block.off), strict=True)))
        for block in blocks
    ]
    parts = [one for warm_up, pairs in of_blocks for one in pairs[:warm_up]]
    parts += [one for warm_up, pairs in of_blocks for one in pairs[warm_up:]]
    return Series(
        regime=blocks[0].regime,
        samples_ms=[sample for sample, _, _ in parts],
        spans=[(began, began) for _, _, began in parts],
        states=[None] * len(parts),
        off=[off for _, off, _ in parts],
        reasons=frozenset(),
        warm_up=sum(warm_up for warm_up, _ in of_blocks),
        calls=blocks[0].calls_per_sample,
        windows=blocks[0].ranked_over,
        launch_ms=blocks[0].launch_ms,
    )


class _Samples(Struct):
    series: tuple[Sampled, ...]


class _Facts(Struct):
    device: Device


class _Capabilities(Struct):
    variants: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is published of a cell; None where there is no such file."""

    path: Path  # of its records
    records: Sequence[Record]
    samples: Sequence[Sampled] | None = None
    control: ControlTimes | None = None
    capabilities: dict[str, dict[str, Any]] | None = None
    device: Device | None = None
    rates: dict[str, Any] | None = None
    damaged: Sequence[Finding] = ()
    beside: Sequence[Path] = ()  # the files that it was read from, besides the records

    @cached_property
    def by_pair(self) -> dict[tuple[str, str | None], list[Sampled]]:
        """The series of each variant and workload, as they were taken."""
        found: dict[tuple[str, str | None], list[Sampled]] = {}
        for one in self.samples or ():
            found.setdefault((one.variant, one.workload), []).append(one)
        return found


def read(path: Path, records: Sequence[Record] | None = None, homes: Sequence[Path] = ()) -> Cell:
    """Return the cell of a record file, with what lies beside it; `records` are those that could be read.

    The device's files may be in one of `homes` too, the folders of a build's other cells. No link is
    followed. Raises `OSError`, and `RecordError` where the records themselves cannot be read. Other damage is in
    `damaged`.
    """
    damaged: list[Finding] = []
    taken: list[Path] = []

    def beside(names: Iterable[str], type_: type[T], what: str, homes: Sequence[Path] = ()) -> T | None:
        """Return what the first of some files holds, None where there is none; what cannot be read is damaged."""
        for near in (home / name for home in (path.parent, *homes) for name in names):
            try:
                found = files.read_json(near, type_, what)
            except FileNotFoundError:
                continue
            except RecordError as error:
                damaged.append(finding(Kind.DAMAGED, why=str(error)))
            except OSError as error:
                damaged.append(finding(Kind.DAMAGED, why=f"{near.name} cannot be read: {error.strerror}"))
            else:
                taken.append(near)
                return found
        return None

    name = files.cell_of(path)
    samples = beside([name + suffix for suffix in _SAMPLES], _Samples, "series")
    capabilities = beside([f"{name}.capabilities.json"], _Capabilities, "what was tried of each variant")
    facts = beside(["device.json"], _Facts, "the device", homes)
    return Cell(
        path=path,
        records=files.read(path) if records is None else records,
        samples=samples.series if samples else None,
        control=beside([name + suffix for suffix in files.CONTROL_SUFFIXES], ControlTimes, files.CONTROL_TIMES),
        capabilities=capabilities.variants if capabilities else None,
        device=facts.device if facts else None,
        rates=beside(_RATES, dict[str, Any], "the device's own rates", homes),
        damaged=tuple(damaged),
        beside=tuple(taken),
    )
