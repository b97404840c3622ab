"""What a process tells for later ones of its cell, which then need not find it out again."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from fluxbench.correctness.kept import Kept
from fluxbench.timing.rows import Row
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.request import Request


class ForLater:
    """Digests of kept cases, yardsticks and the lengths of rows; `emit` writes an event."""

    def __init__(self, request: Request, device: torch.device, emit: Callable[..., None]) -> None:
        self._request, self._device, self._emit = request, device, emit
        self._said = {(workload, each) for workload, classes in request.yardsticks.items() for each in classes}

    def kept(self, folder: str | None) -> Kept | None:
        """Return what is kept in a folder, where references take seconds: on a CPU, and of long calls."""
        if folder is None or not (self._device.type == "cpu" or self._request.effort.long):
            return None
        note = lambda name, digest: self._emit("kept", name=name, sha256=digest)  # noqa: E731
        return Kept(Path(folder), self._request.kept, note, trusts=self._request.trusts)

    def say_yardsticks(self, prepared: PreparedWorkload) -> None:
        """Write the errors of unfused attention at a workload, of each class for which they are known by now.

        Of a CPU's cases and of long calls they are kept with the case.
        """
        workload, on_gpu = prepared.workload.name, self._device.type == "cuda"
        tells = self._request.effort.one_reference or (on_gpu and not self._request.effort.long)
        for precision, of in prepared.case.yardsticks.items() if tells else ():
            own = prepared.case.expected  # a part shares the yardstick of its whole, which has more outputs
            worst = {name: [*dataclasses.astuple(each)] for name, each in of.worst.items() if name in own}
            bins = {name: [list(each) for each in its] for name, its in of.bins.items() if name in own}
            numbers = itertools.chain(*worst.values(), *itertools.chain(*bins.values()))
            if (workload, precision) not in self._said and all(map(math.isfinite, numbers)):
                self._said.add((workload, precision))
                self._emit("yardstick", workload=workload, precision=precision, worst=worst, bins=bins)

    def say_rows(self, found: Mapping[tuple[str, str], Row | None]) -> None:
        """Write how many calls there are in rows, by variant and workload."""
        calls: dict[str, dict[str, int]] = {}
        for (name, workload), row in found.items():
            calls.setdefault(name, {})[workload] = row.calls if row else 0
        self._emit("rows", calls=calls)
