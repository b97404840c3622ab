"""How many bytes of the device's memory each worker takes, of all with one cache folder: together not more than it has.

A worker takes what the workloads need that it is about to hold, and waits where others have taken too much. It then
gives back its own first, so that no two wait for each other; whoever has waited longest goes first, since what needs
much would otherwise wait for ever. What a worker takes is in a file that is locked until it ends. So is what it holds
before it takes any, which it gives back at its end alone: nobody waits for that, since it may wait for whoever does.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from fluxbench.core.device_lock import living, marked

_POLL_S = 0.01
_SAY_EVERY_S = 10.0
_DIGITS = 20


class MemoryLedger:
    """The ledger as one worker sees it.

    `waits` is called when the worker begins to wait, and again every ten seconds (`say_every_s`). Without a folder
    there is nobody to share with.
    """

    def __init__(
        self, folder: Path | None, waits: Callable[[], None] = lambda: None, *, say_every_s: float = _SAY_EVERY_S
    ) -> None:
        self._folder, self._waits, self._say_every_s = folder, waits, say_every_s
        self._files: dict[str, TextIO] = {}  # by what they say
        self.taken = 0  # bytes
        self.waited_s = 0.0  # so far

    def hold(self, held: int) -> None:
        """Say that this worker holds so many bytes, as of a context, until it takes more. Raises `OSError`."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._write(held, "holds")

    def take(self, wanted: int, capacity: int, give_back: Callable[[], int] = lambda: 0) -> None:
        """Take so many bytes in place of those before, or all of `capacity`, once they are there. Raises `OSError`.

        `give_back` is called before the worker waits; it returns what the worker goes on to hold.
        """
        wanted = min(wanted, capacity)
        if self._folder is None:
            self.taken = wanted
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._fits(wanted, capacity, mine=None):
            return
        began, said = time.monotonic(), -math.inf
        with self._locked():
            self._take(give_back())
        asking = self._folder / f"asks-{time.monotonic_ns():020}-{os.getpid()}"
        with marked(asking):
            try:
                while not self._fits(wanted, capacity, mine=asking):
                    if time.monotonic() >= said + self._say_every_s:
                        self._waits()
                        said = time.monotonic()
                    time.sleep(_POLL_S)
            finally:
                asking.unlink(missing_ok=True)
        self.waited_s += time.monotonic() - began

    @property
    def of_others(self) -> int:
        """How many bytes all other workers take or hold."""
        return _total(*self._of_others())

    @property
    def is_shared(self) -> bool:
        """Whether another worker takes any."""
        return bool(self._of_others()[0])

    def _of_others(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what each other living worker takes, and what it holds, by the number of its process."""
        takes, holds = (
            {path.name.rpartition("-")[2]: int(text or 0) for path, text in living(self._folder.glob(f"{what}-*"))}
            if self._folder
            else {}
            for what in ("takes", "holds")
        )
        return takes, holds

    def _fits(self, wanted: int, capacity: int, mine: Path | None) -> bool:
        """Take the bytes if they are there and nobody has waited longer for others; return whether they were taken."""
        assert self._folder
        with self._locked():
            if wanted > self.taken:
                asking = [path.name for path, _ in living(self._folder.glob("asks-*"))]
                waiting = {name.rpartition("-")[2] for name in asking}
                taken, held = self._of_others()
                is_next = not any(mine is None or name < mine.name for name in asking)
                is_there = _total(taken, held) + wanted <= capacity
                if not is_next or not (is_there or (mine and taken.keys() <= waiting)):
                    return False
            self._take(wanted)
            return True

    def _take(self, taken: int) -> None:
        self._write(taken, "takes")
        self.taken = taken

    def _write(self, count: int, what: str) -> None:
        assert self._folder
        if what not in self._files:
            self._files[what] = marked(self._folder / f"{what}-{os.getpid()}")
        os.pwrite(self._files[what].fileno(), f"{count:0{_DIGITS}}".encode(), 0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other worker read or write the ledger meanwhile."""
        assert self._folder
        with (self._folder / "ledger").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _total(takes: Mapping[str, int], holds: Mapping[str, int]) -> int:
    """Return how many bytes workers take or hold: what each takes has what it held before."""
    return sum(max(takes.get(worker, 0), holds.get(worker, 0)) for worker in takes.keys() | holds.keys())
