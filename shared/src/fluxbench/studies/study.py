"""What a study is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload


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
    rate: str = "TFLOP/s"  # of throughput; or "GB/s", for what moves bytes
    answer: str = "fastest"
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def workloads_on(self, device: Device, settings: Settings) -> tuple[Workload, ...]:
        """Return what is measured on a device: what the settings name, or the study's own.

        Raises `SetupError` for an unknown name.
        """
        names = settings.workloads or self.sets.get(device.kind, self.sets.get("any", ()))
        if self.workloads and not settings.workloads:
            return self.workloads
        own = {workload.name: workload for workload in self.workloads}
        try:
            found = [each for name in names for each in ((own[name],) if name in own else sets.named([name]))]
        except ValueError as error:
            raise SetupError(str(error)) from error
        if not found:
            raise SetupError(f"study {self.name!r} must name workloads for a device of kind {device.kind!r}, got none")
        return tuple(dict.fromkeys(found))
