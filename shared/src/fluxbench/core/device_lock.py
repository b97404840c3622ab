"""Who may use the device: one worker that measures, or several that check, of all with one cache folder.

So several cells can prepare at once while one measures. A short step (a check) goes before a long one (a trial) and
shares the device with other short ones, whose host work takes most of their time; a long one has it alone. Among equals
the worker of the earlier cell goes first. A short step with which a cell goes on after a long one is patient: it goes
after those of others that wait, so that several cells then check together. Where long steps may be overdue, all that
wait go before short ones once one of them has waited so long: else most workers wait for the last that still checks.
The lock is a file lock: the system releases it when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

ORDER = "FLUXBENCH_ORDER"  # names the place of the running cell among those of its build, from 0
DRAWS = -1  # the order of a build that draws between two steps of its cell: before all others
_FIRST, _SHARED, _LONG, _PATIENT = range(4)  # who goes before whom
_POLL_S = 0.004
_SAY_EVERY_S = 10.0
_DEVICE = "device"  # the file that is locked
_FLOCK = "hhqqi"  # fcntl(2) on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid


def folder(cache: Path) -> Path:
    """Return the lock's folder in a cache folder."""
    return cache / "lock"


def order() -> int:
    """Return the place of the running cell among those of its build; 0 where no build says so."""
    return int(os.environ.get(ORDER, "0"))


class DeviceLock:
    """The lock as one worker sees it; `order` is the place of its cell among those that run.

    `changed` is called with True when the worker holds the device, with False when it begins to wait, and again every
    ten seconds (`say_every_s`) while it waits. Without a folder there is nobody to share with: the lock is always free.
    Long steps that have waited for `overdue_s` go before short ones.
    """

    def __init__(
        self,
        folder: Path | None,
        order: int,
        changed: Callable[[bool], None] = lambda holds: None,
        *,
        overdue_s: float = math.inf,
        poll_s: float = _POLL_S,
        say_every_s: float = _SAY_EVERY_S,
    ) -> None:
        self._folder, self._order, self._changed, self._overdue_s = folder, order, changed, overdue_s
        self._poll_s, self._say_every_s = poll_s, say_every_s
        self._file: TextIO | None = None
        self._is_alone = self._is_kept = False
        self.waited_s = 0.0  # so far

    @property
    def is_held(self) -> bool:
        """Whether this worker may use the device now."""
        return self._folder is None or self._file is not None

    @property
    def is_alone(self) -> bool:
        """Whether no other worker may use the device now."""
        return self._folder is None or (self._file is not None and self._is_alone)

    @contextlib.contextmanager
    def held(self, *, short: bool, alone: bool = False, patient: bool = False) -> Iterator[None]:
        """Hold the device for a step, see `acquire`; nothing happens where it is held already. Raises `OSError`."""
        if self.is_held:
            yield
            return
        self.acquire(short=short, alone=alone, patient=patient)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, short: bool, alone: bool = False, patient: bool = False) -> None:
        """Wait for the device. Raises `OSError` where the folder cannot be written.

        A long step has it alone, and a short one that must be `alone`, which goes before all others. One that shares it
        and is `patient` goes after all others that wait. Held for a step that shares it, it is released first where
        this one must not; its work must be finished then.
        """
        alone = alone or not short
        if self._folder is None or (self._file and self._is_alone >= alone):
            return
        self.release()
        began = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True)
        rank = _LONG if not short else _FIRST if alone else _PATIENT if patient else _SHARED
        waiting = self._folder / f"waiting-{rank}-{self._order:06}-{os.getpid()}"
        before = waiting.name.rpartition("-")[0] if alone else f"waiting-{rank}"
        with marked(waiting) as mark:
            since = self._since(waiting) if rank == _LONG else began
            os.pwrite(mark.fileno(), f"{since}".encode(), 0)
            file = (self._folder / _DEVICE).open("a+")
            try:
                said = -math.inf
                while not (self._is_next(before, rank, since) and locked(file, shared=not alone)):
                    if time.monotonic() >= said + self._say_every_s:
                        self._changed(False)
                        said = time.monotonic()
                    time.sleep(self._poll_s)
            except BaseException:
                file.close()
                raise
            finally:
                waiting.unlink(missing_ok=True)
        self._file, self._is_alone = file, alone
        self.waited_s += time.monotonic() - began
        self._changed(True)

    @property
    def is_wanted(self) -> bool:
        """Whether this worker shares the device now, and one waits for it that goes before a short step."""
        if self._file is None or self._is_alone:
            return False
        return not self._is_next(f"waiting-{_SHARED}", _SHARED, time.monotonic())

    def keep(self) -> None:
        """Hold the device, which must be held alone, until this process ends: it fills the device's memory."""
        self._is_kept = True

    def release(self) -> None:
        """Let others use the device, unless it is kept; it must have finished all work of this worker."""
        if self._file and not self._is_kept:
            self._file.close()
            self._file = None

    def _is_next(self, own: str, rank: int, since: float) -> bool:
        """Return whether no living worker that goes before this place waits; what dead ones left is removed.

        Of steps of this rank, one that has waited `since` then (monotonic seconds).
        """
        assert self._folder
        overdue = time.monotonic() - self._overdue_s
        for path, text in living(self._folder.glob("waiting-*")):
            other = int(path.name.split("-")[1])
            if {rank, other} == {_SHARED, _LONG}:
                is_overdue = (since if rank == _LONG else float(text or math.inf)) <= overdue
                is_before = is_overdue == (other == _LONG)
            else:
                is_before = path.name.rpartition("-")[0] < own
            if is_before:
                return False
        return True

    def _since(self, own: Path) -> float:
        """Return since when long steps wait, of which one comes now: all that wait are overdue together."""
        assert self._folder
        others = living(path for path in self._folder.glob(f"waiting-{_LONG}-*") if path != own)
        return min((float(text) for _, text in others if text), default=time.monotonic())


def a_child_is_alone(folder: Path) -> bool:
    """Return whether a worker that this process started has the device alone: it measures, or fills its memory.

    Not for a process that holds the lock itself: closing the file here would release it (fcntl(2)).
    """
    try:
        with (folder / _DEVICE).open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return False
        os.waitid(os.P_PID, holder, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # its end is left to whoever waits for it
    except OSError:  # no worker has taken it yet, or it is another process's child
        return False
    return True


def locked(file: TextIO, *, shared: bool = False) -> bool:
    """Take a file's lock if it is free, and return whether it was. It is the process's: its children do not have it."""
    try:
        fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def marked(path: Path) -> TextIO:
    """Return a new file, whose name ends with this process's number, and which it has locked until it is closed."""
    new = path.with_name(f".{path.name}")
    file = new.open("w")
    locked(file)
    new.rename(path)  # nobody sees it without its lock, which would be that of a dead worker
    return file


def living(markers: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the marked files of other living workers with what they hold; what dead ones left is removed."""
    for path in markers:
        if path.name.endswith(f"-{os.getpid()}"):
            continue  # to close it would release its lock
        with contextlib.suppress(OSError), path.open("r+") as file:
            if locked(file):
                path.unlink(missing_ok=True)
            else:
                yield path, file.read()
