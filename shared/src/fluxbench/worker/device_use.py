"""When a worker uses the device, and what it does meanwhile, for whoever asks where the time went."""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from fluxbench.core.device_lock import DeviceLock
from fluxbench.core.device_memory import DeviceMemory
from fluxbench.core.memory_ledger import MemoryLedger
from fluxbench.worker.compiling import given_back_while_compiling
from fluxbench.worker.needs import CONTEXT_BYTES
from fluxbench.worker.request import Request
from fluxbench.worker.shortage import Shortage

_CACHED_BYTES = 1 << 30  # which torch may keep for later calls of this process while others use the device
_SHARE = 0.85  # of a GPU's memory, that workers may take together; fragments take the rest
_OVERDUE_S = 0.3  # of a grid's trials, which last 0.1 s: as long as three steps in which workloads are made or checked
_PAUSES_S = 0.03  # of a short step, after which a long one need not wait for its end
_FREED_S = 0.3  # in which a driver that still frees what a process has left has freed some more
_FREED_LOOKS = 20


class DeviceUse:
    """The steps of one worker that use the device, for which it holds the device lock; `emit` writes an event."""

    def __init__(self, request: Request, device: torch.device, emit: Callable[..., None]) -> None:
        self._device, self._emit = device, emit
        folder = Path(request.lock) if request.lock else None
        overdue_s = _OVERDUE_S if request.effort.one_reference else math.inf
        self._lock = DeviceLock(folder, request.order, self._changed, overdue_s=overdue_s)
        self._memory, self._alone = DeviceMemory(folder, lambda: self._changed(False)), request.alone
        self._ledger = MemoryLedger(folder, lambda: self._changed(False))
        self._step, self._since = "preparing", 0.0  # since when it lasts without a pause
        self._goes_on = True  # it has had its turn

    def phase(self, name: str, at: float | None = None) -> None:
        """Write what this process does from now on, or from another moment (monotonic seconds)."""
        self._emit("phase", name=name, at=time.monotonic() if at is None else at)

    @contextlib.contextmanager
    def step(self, name: str, *, short: bool, compiles: bool = False, keeps: bool = False) -> Iterator[None]:
        """Hold the device for a step; its work is done when others may use it.

        `short`: before the long steps of others, and together with their short ones; the first of the process, and the
        first after a long one, goes after those that wait. `compiles`: others may use it while a compiler is at work.
        `keeps`: it has the device alone, and goes on to have it until this process ends.
        """
        self._step, before = name, self._lock.is_held
        patient, self._goes_on = self._goes_on, not short
        if before:
            self.phase(name)
        with self._lock.held(short=short, alone=keeps, patient=patient):
            self._since = time.monotonic()
            if keeps:
                self._lock.keep()
            try:
                with given_back_while_compiling(self._lock, self._compiles) if compiles else contextlib.nullcontext():
                    yield
            except BaseException:
                with contextlib.suppress(RuntimeError):  # of a context that is gone, which raised already
                    self._finish(trims=not before)
                raise
            self._finish(trims=not before)

    def _finish(self, *, trims: bool) -> None:
        """Wait for what the device has to do, before others may use it."""
        if self._device.type == "cuda" and torch.cuda.is_initialized():
            torch.cuda.synchronize(self._device)
            if trims:
                self._trim()

    def pause(self) -> None:
        """Let steps go before the rest of a short one that are to, where it lasts long: they wait for its end else."""
        if time.monotonic() < self._since + _PAUSES_S or not self._lock.is_wanted:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self._trim()
        self._lock.release()
        self._lock.acquire(short=True)
        self._since = time.monotonic()

    def hold_context(self) -> None:
        """Say what this process holds of a GPU's memory once it has used it, before it takes any for workloads."""
        hold_context(self._ledger)

    def take_memory(self) -> None:
        """Wait until this process may take memory of the device; where the request says so until no other has any."""
        self._memory.take(alone=self._alone)
        if self._alone and self._device.type == "cuda":
            wait_until_freed(self._device)

    def reserve(self, needed: int) -> None:
        """Wait until this process may take so many bytes of a GPU's memory, in place of those before.

        It may then keep as many over its steps: to give memory back and take it again lasts longer than a short step.
        """
        if self._device.type != "cuda":
            return
        self._ledger.take(needed, int(_SHARE * torch.cuda.mem_get_info(self._device)[1]), self._give_back)
        self._trim()

    @property
    def shares_memory(self) -> bool:
        """Whether this process can wait for memory: it and others have reserved some, and it holds no device lock."""
        return bool(self._ledger.taken) and not self._lock.is_held and self._ledger.is_shared

    def make_room(self, shortage: Shortage | None) -> None:
        """Wait until this process may take what it had and lacked, beside what others hold over what they reserved.

        It must not hold the device lock. Where it is not known how much it lacked, that is as much as it has reserved.
        """
        free, total = torch.cuda.mem_get_info(self._device)
        over = total - free - self._held() - self._ledger.of_others
        had = max(self._ledger.taken, shortage.own_bytes or 0 if shortage else 0)
        lacked = shortage.asked_bytes if shortage else self._ledger.taken
        self.reserve(had + lacked + max(0, over))

    def waited_s(self) -> float:
        """Return for how long this process has waited for the device so far."""
        return self._lock.waited_s + self._memory.waited_s + self._ledger.waited_s

    def _trim(self) -> None:
        """Give back what torch keeps for later, where that is more than others can spare."""
        taken = self._ledger.taken
        if self._held() > taken if taken else cached_bytes(self._device) > _CACHED_BYTES:
            torch.cuda.empty_cache()

    def _give_back(self) -> int:
        torch.cuda.empty_cache()
        return self._held()

    def _held(self) -> int:
        return int(torch.cuda.memory_reserved(self._device)) + CONTEXT_BYTES

    def _changed(self, holds: bool) -> None:
        self.phase(self._step if holds else "waiting")

    def _compiles(self, compiles: bool) -> None:
        self.phase("compiling" if compiles else self._step)


def hold_context(ledger: MemoryLedger) -> None:
    """Say in the ledger that this process holds its context, where it has opened one."""
    if has_context():
        ledger.hold(CONTEXT_BYTES)


def has_context() -> bool:
    """Return whether this process has opened a context on its first GPU: torch is initialized before that.

    By the driver's cuDevicePrimaryCtxGetState, which opens none.
    """
    flags, is_active = ctypes.c_uint(), ctypes.c_int()
    try:
        of_first = ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState
    except OSError:  # no driver
        return False
    return of_first(0, ctypes.byref(flags), ctypes.byref(is_active)) == 0 and bool(is_active.value)


def cached_bytes(device: torch.device) -> int:
    """Return what torch keeps of a GPU's memory for later."""
    return int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def wait_until_freed(device: torch.device) -> None:
    """Wait until a GPU's free memory grows no more: what a process held is free a moment after its end."""
    free = -1
    for _ in range(_FREED_LOOKS):
        before, free = free, torch.cuda.mem_get_info(device)[0]
        if free <= before:
            return
        time.sleep(_FREED_S)
