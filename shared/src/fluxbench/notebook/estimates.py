"""How long the rest of a build will take: from how long each cell took the last time, else from those like it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from uvnote.parser import CodeCell

from fluxbench import studies, variants
from fluxbench.bench.dependencies import measured_variants
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook.doctor.variants import unsupported
from fluxbench.notebook.document import Document
from fluxbench.notebook.execution import CELL_LIMIT_S
from fluxbench.notebook.store import Store

_SEVERAL = 2
_MARGIN = 3  # a build is given that many times as long as its cells took the last time
_AT_LEAST_S = 60.0  # for each cell
_SETUP_S = 900.0  # to install what cells need
_TELLING = 0.1  # the share of a cell's steps from which on its time tells of others


def weight(code: CodeCell, document: Document, device: Device, settings: Settings) -> int:
    """Return what a cell's time is about proportional to; 0 for one that shows.

    That is how many variants it will time, each that compiles its kernels as two.
    """
    if not document.is_measuring(code):
        return 0
    this = cell.parse(code.code, code.id)
    if this.measures == "rates":
        return 1
    target = targets.of(device, settings.root)
    try:
        workloads = studies.find(this.study).workloads_on(device, settings)
        names = [name for name in measured_variants(this) if settings.all or not target.excluded(name)]
        timed = [variants.find(name) for name in names if not unsupported(name, device, workloads)]
        return len(timed) + sum(each.compiles or each.variant.jit for each in timed)
    except (SetupError, ValueError):  # an unknown name, which the cell will refuse
        return 0


def at_once(codes: Iterable[CodeCell], document: Document) -> int:
    """Return how many measuring cells may share a GPU by what their studies say, a large number where none does."""
    limits = []
    for code in codes:
        if document.is_measuring(code):
            try:
                limits.append(studies.find(cell.parse(code.code, code.id).study).at_once)
            except SetupError:  # an unknown name, which the cell will refuse
                continue
    return min((limit for limit in limits if limit), default=sys.maxsize)


def compiles(code: CodeCell, document: Document) -> bool:
    """Return whether a measuring cell has several variants that torch compiles, so that it mostly needs the host."""
    if not document.is_measuring(code):
        return False
    try:
        return sum(variants.find(name).compiles for name in cell.parse(code.code, code.id).variants) >= _SEVERAL
    except (SetupError, ValueError):  # an unknown name, which the cell will refuse
        return False


def limit_s(document: Document, store: Store, settings: Settings) -> float:
    """Return the seconds after which a build may be killed, by how long each cell took the last time.

    A measuring cell that was never run gets the time limit of a cell. A build that is killed keeps its finished cells.
    """
    seconds = _SETUP_S
    for code in document.cells:
        last = store.last_good(code.id)
        if last and last.run.duration is not None:
            seconds += max(_AT_LEAST_S, _MARGIN * last.run.duration)
        else:
            seconds += (settings.cell_limit_s or CELL_LIMIT_S) if document.is_measuring(code) else _AT_LEAST_S
    return seconds


class Times:
    """The time left, from how long each cell took the last time (None: never timed) and from its weight.

    `at_once` cells are measured at the same time.
    """

    def __init__(self, usual_s: Mapping[str, float | None], weights: Mapping[str, int], at_once: int = 1) -> None:
        self._usual_s, self._weights, self._at_once = dict(usual_s), weights, at_once
        self._running: dict[str, tuple[float, float | None]] = {}
        self._ended_s: dict[str, float] = {}

    def advanced(self, cell_id: str, elapsed_s: float, share: float | None) -> None:
        """Take how far a cell is."""
        self._running[cell_id] = (elapsed_s, share)

    def ended(self, cell_id: str, duration_s: float) -> None:
        """Take how long a cell took, 0 for one that was not started."""
        self._running.pop(cell_id, None)
        self._ended_s[cell_id] = duration_s

    def left_s(self) -> float | None:
        """Return the seconds until all cells are done; None where there is nothing to tell it from."""
        each_s = self._of_weight_s()
        left = [self._left_s(cell_id, each_s) for cell_id in self._usual_s if cell_id not in self._ended_s]
        known = [seconds for seconds in left if seconds is not None]
        return None if len(known) < len(left) else max(sum(known) / self._at_once, max(known, default=0.0))

    def _left_s(self, cell_id: str, each_s: float | None) -> float | None:
        elapsed_s, share = self._running.get(cell_id, (0.0, None))
        whole_s, weight = self._usual_s[cell_id], self._weights.get(cell_id, 0)
        if whole_s is None and not weight:
            whole_s = 0.0
        if whole_s is None and each_s is not None:
            whole_s = each_s * weight
        if share and (whole_s is None or elapsed_s >= whole_s):
            whole_s = elapsed_s / share
        return None if whole_s is None else max(0.0, whole_s - elapsed_s)

    def _of_weight_s(self) -> float | None:
        """Return the seconds of a weight of 1 so far."""
        whole_s = {
            cell_id: elapsed / share
            for cell_id, (elapsed, share) in self._running.items()
            if share and share >= _TELLING
        }
        told = {cell_id: s for cell_id, s in {**self._ended_s, **whole_s}.items() if self._weights.get(cell_id)}
        total = sum(self._weights[cell_id] for cell_id in told)
        return sum(told.values()) / total if total else None
