"""How long the rest of a build will take: from how long each cell took the last time, else from those like it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping

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
_OF_CELL = 2  # what a cell takes for its reference, imports and preparation, in variants
_TELLING = 0.04  # the share of all weights from which on the time that it took tells of the rest
_FASTER = 0.25  # n times fewer cells at once are n ** 0.25 times as fast: they wait less for the device


def weight(code: CodeCell, document: Document, device: Device, settings: Settings) -> int:
    """Return what a cell's time is about proportional to; 0 for one that shows.

    That is how many variants it will time, each that compiles its kernels as two, and what every cell takes.
    """
    if not document.is_measuring(code):
        return 0
    this = cell.parse(code.code, code.id)
    if this.measures == "rates":
        return _OF_CELL
    target = targets.of(device, settings.root, this.notebook)
    try:
        workloads = studies.find(this.study).workloads_on(device, settings)
        names = [name for name in measured_variants(this) if settings.all or not target.excluded(name)]
        timed = [variants.find(name) for name in names if not unsupported(name, device, workloads)]
        return len(timed) + sum(each.compiles or each.variant.jit for each in timed) + (_OF_CELL if timed else 0)
    except (SetupError, ValueError):  # an unknown name, which the cell will refuse
        return 0


def at_once(codes: Iterable[CodeCell], document: Document, device: Device) -> int | None:
    """Return how many measuring cells may share a GPU by their studies; None where none says."""
    limits = []
    for code in codes:
        if document.is_measuring(code):
            try:
                limits.append(studies.find(cell.parse(code.code, code.id).study).cells_on(device))
            except SetupError:  # an unknown name, which the cell will refuse
                continue
    return min((limit for limit in limits if limit), default=None)


def in_order(codes: Iterable[CodeCell], document: Document) -> bool:
    """Return whether measuring cells start in the order of the notebook by one of their studies."""
    for code in codes:
        if document.is_measuring(code):
            with contextlib.suppress(SetupError):  # an unknown name, which the cell will refuse
                if studies.find(cell.parse(code.code, code.id).study).in_order:
                    return True
    return False


def compiles(code: CodeCell, document: Document) -> bool:
    """Return whether torch compiles several variants of a measuring cell, or all, so that it mostly needs the host."""
    if not document.is_measuring(code):
        return False
    try:
        compiled = [variants.find(name).compiles for name in cell.parse(code.code, code.id).variants]
        return any(compiled) and sum(compiled) >= min(_SEVERAL, len(compiled))
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

    Cells are in the order in which they start. `at_once` of them run at the same time, of the `compiling` ones
    `compiling_at_once`.
    """

    def __init__(
        self,
        usual_s: Mapping[str, float | None],
        weights: Mapping[str, int],
        at_once: int = 1,
        compiling: Collection[str] = (),
        compiling_at_once: int = 1,
    ) -> None:
        self._usual_s, self._weights, self._at_once = dict(usual_s), weights, at_once
        self._compiling, self._compiling_at_once = frozenset(compiling), compiling_at_once
        self._running: dict[str, tuple[float, float | None]] = {}
        self._of_this_build: dict[str, float] = {}  # the shares of cells of which a build before measured a part
        self._ended_s: dict[str, float] = {}

    def advanced(self, cell_id: str, elapsed_s: float, share: float | None, before: float = 0.0) -> None:
        """Take how far a cell is, and the share of it that a build before had measured, in no time of this one."""
        self._of_this_build[cell_id] = rest = 1 - before
        self._running[cell_id] = (elapsed_s, (share - before) / rest if share and rest else share)

    def ended(self, cell_id: str, duration_s: float) -> None:
        """Take how long a cell took, 0 for one that was not started."""
        self._running.pop(cell_id, None)
        self._ended_s[cell_id] = duration_s

    def left_s(self) -> float | None:
        """Return the seconds until all cells are done; None where there is nothing to tell it from."""
        each_s = self._of_weight_s()
        left_s: dict[str, float] = {}
        for cell_id in self._usual_s:
            if cell_id not in self._ended_s:
                its_s = self._left_s(cell_id, each_s)
                if its_s is None:
                    return None
                left_s[cell_id] = its_s
        return self._until_all_end_s(left_s)

    def _left_s(self, cell_id: str, each_s: float | None) -> float | None:
        """Return the seconds of one cell that are left, beside as many others as may run.

        The further it is, the more its own time so far counts, and the less what it took the last time, or weighs.
        """
        usual_s, weight = self._usual_s[cell_id], self._weight(cell_id)
        whole_s = None if usual_s is None else usual_s * self._of_this_build.get(cell_id, 1.0)
        if whole_s is None and (each_s is not None or not weight):
            whole_s = (each_s or 0.0) * weight
        elapsed_s, share = self._running.get(cell_id, (0.0, None))
        if whole_s is None or share is None:
            return None if whole_s is None else max(0.0, whole_s - elapsed_s)
        return (1 - share) * (elapsed_s + (1 - share) * whole_s)

    def _of_weight_s(self) -> float | None:
        """Return the seconds of a weight of 1 so far; None where too little of all is done."""
        told = {cell_id: (its_s, 1.0) for cell_id, its_s in self._ended_s.items() if its_s}
        told |= {cell_id: (its_s, share) for cell_id, (its_s, share) in self._running.items() if share is not None}
        weighed = {cell_id: each for cell_id, each in told.items() if self._weight(cell_id)}
        done = sum(share * self._weight(cell_id) for cell_id, (_, share) in weighed.items())
        is_telling = done > _TELLING * sum(map(self._weight, self._weights))
        return sum(its_s for its_s, _ in weighed.values()) / done if is_telling else None

    def _weight(self, cell_id: str) -> float:
        """Return the weight of what this build measures of a cell."""
        return self._weights.get(cell_id, 0) * self._of_this_build.get(cell_id, 1.0)

    def _until_all_end_s(self, left_s: Mapping[str, float]) -> float:
        """Return the seconds until all of these cells have ended, each one started where there is room for it."""
        total_s, waiting = 0.0, [cell_id for cell_id in left_s if cell_id not in self._running]
        running = {cell_id: left_s[cell_id] for cell_id in self._running if cell_id in left_s}
        while waiting or running:
            for cell_id in list(waiting):
                is_held = cell_id in self._compiling and len(self._compiling & set(running)) >= self._compiling_at_once
                if len(running) < self._at_once and not is_held:
                    waiting.remove(cell_id)
                    running[cell_id] = left_s[cell_id]
            speed = max(1.0, self._at_once / len(running)) ** _FASTER
            next_s = min(running.values())
            total_s += next_s / speed
            running = {cell_id: its_s - next_s for cell_id, its_s in running.items() if its_s > next_s}
        return total_s
