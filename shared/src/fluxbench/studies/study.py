"""What a study is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.worker.request import USUAL, Effort

REGIMES = ("burst", "sustained")
RATES = ("TFLOP/s", "GB/s")
_SHARE = 0.9  # of a GPU's memory, that its cells may hold together: contexts and fragments take the rest


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a notebook measures and shows.

    `sets` are names of workloads or of sets of them by kind of device, "any" where no other kind fits. `workloads` are
    measured in their place on every device. `tables` and `figures` are what `show.study()` shows, in that order; a
    notebook with prose between them names them in cells of its own instead.
    """

    name: str  # of its notebook
    references: tuple[str, ...]  # variants; the first that runs is what ratios are against
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    measures: tuple[str, ...] = ("burst", "sustained")  # regimes
    burst_alone: tuple[str, ...] = ()  # operations of which a GPU measures no sustained time
    # A GPU has several sustained blocks of a variant, see `records.method`; true of cells of one length too where other
    # cells of the notebook have more.
    unlike_lengths: bool = False
    effort: Effort = USUAL  # how much is spent on a workload
    fully_on_cpu: tuple[str, ...] = ()  # in place of `effort.fully` there
    at_once: int | None = None  # cells that share a GPU at most, whatever its memory; None: no limit
    cell_bytes: int | None = None  # that a cell may hold of a GPU's memory; None: cells never fill it together
    at_least: int = 1  # cells that share a GPU however little memory it has: where cells hold less of less
    in_order: bool = False  # cells start as the notebook has them; else what compiles much and what is heavy goes first
    rate: str = "TFLOP/s"  # of throughput; or "GB/s", for what moves bytes
    whole_up_to: int | None = None  # scores of a call; of one with more, rows of the outputs are judged. None: never
    answer: str = "fastest"
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would be measured or shown wrongly."""
        if self.rate not in RATES:
            raise ValueError(f"rate of study {self.name!r} must be {' or '.join(RATES)}, got {self.rate!r}")
        if not self.measures or not set(self.measures) <= set(REGIMES):
            raise ValueError(
                f"measures of study {self.name!r} must be some of {', '.join(REGIMES)}, got {', '.join(self.measures)}"
            )

    def sustains(self, operation: str, device: Device) -> bool:
        """Return whether sustained times of an operation are measured on a device.

        On a CPU they are those of rounds beside the reference, which no burst sample replaces.
        """
        return "sustained" in self.measures and (device.worker_kind == "cpu" or operation not in self.burst_alone)

    def effort_on(self, device: Device, workloads: Iterable[Workload]) -> Effort:
        """Return how much is spent on workloads on a device.

        Of `fully_on_cpu` a CPU has some; where none of those that are checked fully is among them, all are.
        """
        fully = self.fully_on_cpu if self.fully_on_cpu and device.worker_kind == "cpu" else self.effort.fully
        named = {workload.name for workload in workloads} & {*fully}
        return replace(self.effort, fully=fully if named else ())

    def cells_on(self, device: Device) -> int | None:
        """Return how many cells may share a GPU at most; None: no limit."""
        if not (self.cell_bytes and device.memory_bytes):
            return self.at_once
        fitting = max(self.at_least, int(_SHARE * device.memory_bytes) // self.cell_bytes)
        return min(fitting, self.at_once or fitting)

    def workloads_on(self, device: Device, settings: Settings) -> tuple[Workload, ...]:
        """Return what is measured on a device: what the settings name, or the study's own.

        Raises `SetupError` for an unknown name.
        """
        own = {workload.name: workload for workload in self.workloads}
        names = settings.workloads or (() if own else self.sets.get(device.kind, self.sets.get("any", ())))
        try:
            named = [each for name in names for each in ((own[name],) if name in own else sets.named([name]))]
        except ValueError as error:
            raise SetupError(str(error)) from error
        chosen = named if settings.workloads else [*self.workloads, *named]
        if not chosen:
            raise SetupError(f"study {self.name!r} must name workloads for a device of kind {device.kind!r}, got none")
        unique = tuple(dict.fromkeys(chosen))
        if len({workload.name for workload in unique}) < len(unique):
            raise SetupError(f"workloads of study {self.name!r} must have different names, got one name twice")
        return unique
