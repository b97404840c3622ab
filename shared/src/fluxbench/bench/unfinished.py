"""What a cell has measured so far, kept for the next build of it, in case this one is stopped.

Kept are what whole processes wrote, and of the process in which the cell's or the build's time was up what it had
timed. Times within are those of the clock of this boot of the machine, so nothing is taken from another.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import time
import zlib
from pathlib import Path

import msgspec
from msgspec import Struct

from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import Checked, Failed, Lacked, ProbeResult, Timed
from fluxbench.core.files import read_regular, remove, write_bytes
from fluxbench.core.settings import Settings
from fluxbench.environments.cell import Cell
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Reading
from fluxbench.worker.request import Yardsticks

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST_S, _MOST_BYTES = 24 * 3600.0, 1 << 28  # how old and how large a file may be
_OF_THE_STOP = {Status.TIMEOUT, Status.CRASHED}  # failures that may come of how the build was stopped


class _State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of `Collected` that a build goes on with."""

    checked: list[Checked]
    failed: list[Failed]
    lacked: list[Lacked]
    trials: list[tuple[int, Timed]]  # with the number of their worker
    readings: list[Reading]
    versions: dict[str, str]
    others_versions: dict[str, str]
    control: str | None
    probed: dict[str, dict[str, ProbeResult]]
    tried: set[str]
    workers: int
    kept: dict[str, str]
    yardsticks: Yardsticks
    rows: dict[str, dict[str, int]]
    others: list[str]


class Unfinished:
    """The file in which a cell's collected events are kept; another one for each thing that a cell depends on."""

    def __init__(self, settings: Settings, cell: Cell, depends: Fingerprint, part: int | None = None) -> None:
        """`part`: which of a cell's batches that are measured at the same time."""
        self._of = settings, cell, depends
        boot = _BOOT.read_text(encoding="ascii") if _BOOT.exists() else str(time.clock_gettime(time.CLOCK_REALTIME))
        digest = hashlib.sha256(json.dumps([boot, part, dict(depends)]).encode()).hexdigest()[:16]
        self._path = settings.unfinished(cell.notebook, cell.id) / f"{digest}.json.gz"

    def part(self, number: int) -> Unfinished:
        """Return that of one of the batches that are measured at the same time."""
        return Unfinished(*self._of, number)

    def resume(self, collected: Collected) -> int:
        """Let an empty collection begin with what was kept, and keep what it collects; return the trials it has then.

        Whatever is wrong with the file, the cell begins anew.
        """
        collected.keep = lambda: self._keep(collected)
        try:
            if time.time() - self._path.stat().st_mtime > _MOST_S:
                return 0
            state = msgspec.json.decode(gzip.decompress(read_regular(self._path, _MOST_BYTES)), type=_State)
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, ValueError):  # none, half a file, another's
            return 0
        collected.checked |= {(each.variant, each.workload): each for each in state.checked}
        collected.failed |= {(each.variant, each.workload): each for each in state.failed}
        collected.trials += [Trial(timed, worker) for worker, timed in state.trials]
        for name in ("lacked", "readings", "versions", "others_versions", "control", "probed", "tried"):
            setattr(collected, name, getattr(state, name))
        for name in ("workers", "kept", "yardsticks", "rows", "others"):
            setattr(collected, name, getattr(state, name))
        return len(state.trials)

    def forget(self) -> None:
        """Remove what was kept of the cell, also by other code and packages."""
        with contextlib.suppress(OSError):
            remove(self._path.parent)

    def _keep(self, collected: Collected) -> None:
        """Write what is known; a disk that is full costs what a later build could have gone on with."""
        state = _State(
            checked=list(collected.checked.values()),
            failed=[each for each in collected.failed.values() if each.status not in _OF_THE_STOP],
            lacked=collected.lacked,
            trials=[(trial.worker, trial.timed) for trial in collected.trials],
            readings=collected.readings,
            versions=collected.versions,
            others_versions=collected.others_versions,
            control=collected.control,
            probed=collected.probed,
            tried=collected.tried,
            workers=collected.workers,
            kept=collected.kept,
            yardsticks=collected.yardsticks,
            rows=collected.rows,
            others=collected.others,
        )
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path, gzip.compress(msgspec.json.encode(state), compresslevel=1))
