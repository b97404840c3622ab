"""What a cell has measured so far, kept for the next build of it, in case this one is stopped.

Kept are what whole processes wrote, and of the process in which the cell's or the build's time was up what it had
timed. Times within are those of the clock of this boot of the machine, so nothing is taken from another. A variant that
was timed, and crashed or hung once, is left out: the next build measures it from the start.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import Checked, Failed, Lacked, ProbeResult, Timed
from fluxbench.core.errors import SetupError
from fluxbench.core.files import read_regular, remove, write_bytes
from fluxbench.core.locks import only_one
from fluxbench.core.settings import Settings
from fluxbench.environments.cell import Cell
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.status import Status
from fluxbench.timing.telemetry import Reading
from fluxbench.worker.request import Yardsticks

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST_S, _MOST_BYTES = 24 * 3600.0, 1 << 28  # how old and how large what is kept may be
_ONCE = {Status.CRASHED, Status.TIMEOUT, Status.ERROR}  # failures that another process may not have
_UNFOLLOWED = "LOCAL_KERNELS"  # folders of kernels, of which a cell depends on the names alone


class _State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of `Collected` that a build goes on with."""

    since: float  # when the first build began, seconds since 1970
    checked: list[Checked]
    failed: list[Failed]
    lacked: list[Lacked]
    trials: list[tuple[int, Timed]]  # with the number of their worker
    readings: list[Reading]
    versions: dict[str, str]
    control: str | None
    probed: dict[str, dict[str, ProbeResult]]
    tried: set[str]
    workers: int
    kept: dict[str, str]
    yardsticks: Yardsticks
    rows: dict[str, dict[str, int]]
    others: list[str]


_AS_THEY_ARE = tuple(name for name in _State.__struct_fields__ if name not in ("since", "checked", "failed", "trials"))


class Unfinished:
    """The file in which a cell's collection is kept; another one for each thing that the cell depends on."""

    def __init__(self, path: Path) -> None:
        """`path`: of the file, without its ending."""
        self._path = path
        self._since = time.time()

    @classmethod
    @contextlib.contextmanager
    def of(cls, settings: Settings, cell: Cell, depends: Fingerprint) -> Iterator[Unfinished | None]:
        """Yield that of a cell; None where there is no telling whether what was kept holds, or another build has it."""
        folder = settings.unfinished(cell.notebook, cell.id)
        if not _BOOT.exists() or os.environ.get(_UNFOLLOWED):
            yield None
            return
        digest = hashlib.sha256(json.dumps([_BOOT.read_text("ascii"), dict(depends)]).encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(only_one(folder.with_name(f"{folder.name}.lock"), "another build measures it"))
            except (OSError, SetupError):
                yield None
                return
            yield cls(folder / digest)

    def part(self, number: int) -> Unfinished:
        """Return that of one of the batches that are measured at the same time."""
        return Unfinished(self._path.with_name(f"{self._path.name}-{number}"))

    @property
    def is_there(self) -> bool:
        """Whether anything was kept of the cell or of one of its batches."""
        return any(self._path.parent.glob(f"{self._path.name}*.json.gz"))

    @property
    def _file(self) -> Path:
        return self._path.with_name(f"{self._path.name}.json.gz")

    def resume(self, collected: Collected) -> int:
        """Let a collection begin with what was kept, and keep what it collects; return the trials it has then.

        Whatever is wrong with the file, the cell begins anew.
        """
        collected.keep = lambda: self._keep(collected)
        try:
            state = msgspec.json.decode(gzip.decompress(read_regular(self._file, _MOST_BYTES)), type=_State)
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, ValueError):  # none, half a file, another's
            return 0
        if not 0 <= time.time() - state.since <= _MOST_S:
            return 0
        self._since, collected.resumed_at = state.since, time.monotonic()
        collected.checked |= {(each.variant, each.workload): each for each in state.checked}
        collected.failed |= {(each.variant, each.workload): each for each in state.failed}
        collected.trials += [Trial(timed, worker) for worker, timed in state.trials]
        others = collected.others
        for name in _AS_THEY_ARE:
            setattr(collected, name, getattr(state, name))
        collected.others = list(dict.fromkeys([*state.others, *others]))
        return len(state.trials)

    def forget(self) -> None:
        """Remove what was kept of the cell, also by other code and packages."""
        with contextlib.suppress(OSError):
            remove(self._path.parent)

    def _keep(self, collected: Collected) -> None:
        """Write what is known; a disk that is full costs what a later build could have gone on with."""
        timed = {trial.timed.variant for trial in collected.trials}
        again = timed & {failed.variant for failed in collected.failed.values() if failed.status in _ONCE}
        beside = {trial.timed.reference for trial in collected.trials}
        with contextlib.suppress(OSError, ValueError):
            if again & beside or collected.others_versions:  # of no other variant there is a ratio then, or no row
                remove(self._file)
                return
            state = _State(
                since=self._since,
                checked=[each for each in collected.checked.values() if each.variant not in again],
                failed=[each for each in collected.failed.values() if each.variant not in again],
                trials=[(one.worker, one.timed) for one in collected.trials if one.timed.variant not in again],
                **{name: getattr(collected, name) for name in _AS_THEY_ARE},
            )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._file, gzip.compress(msgspec.json.encode(state), compresslevel=1))


def clear_old(settings: Settings) -> None:
    """Remove what is too old for any build to go on with. Raises no error."""
    for path in settings.unfinished("", "").parent.glob("*/*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _MOST_S:
                remove(path)
