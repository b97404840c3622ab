"""Keeps our cells from failing under plain `uvnote build`, where one failed cell takes all others off the page.

Each call of a cell runs in a process of its own, a fork of the cell's. However that ends, by an exception, by a signal
or at uvnote's limit, the cell says so and goes on. Nothing helps where uv itself or the cell's first process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

_LIMIT_S = 300.0  # uvnote ends a cell then, and shows nothing of it
_SPARE_S = 10.0
_POLL_S = 0.05
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_HANDED_ON = (signal.SIGINT, *_ENDING)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_AGAIN = "uvnote keeps this until the cell changes: `uvnote build --rerun` tries again"


def is_plain() -> bool:
    """Whether this is a cell that uvnote itself runs: its script lies where uvnote has them."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return script is not None and Path(script).absolute().parts[-3:-1] == (".uvnote", "cells")


def started() -> float:
    """Return when the cell began, as monotonic seconds: under plain uvnote when uv was started, else now."""
    return (_uv_started() if is_plain() else None) or time.monotonic()


@functools.cache  # also for the forks, whose parent is not uv
def _uv_started() -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8", errors="replace")
        name, _, fields = stat.rpartition(")")
        if name.endswith("(uv"):
            since_boot = int(fields.split()[19]) / os.sysconf("SC_CLK_TCK")
            return since_boot + time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return None


def goes_on(function: Callable[P, None]) -> Callable[P, None]:
    """Under plain uvnote, run the function in a process of its own, and say how that ended where it did not succeed."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        if not is_plain():
            function(*args, **kwargs)
            return
        deadline = started() + _LIMIT_S - _SPARE_S
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that comes before it can be handed on waits: it would end the cell instead of the call.
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
        parent, child = os.getpid(), os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before prctl
                os._exit(1)
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            function(*args, **kwargs)
            sys.exit()  # what is raised here goes up through the cell as it would without the fork
        with _forwarding(child):
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            failure = _wait(child, deadline)
        if failure:
            print(
                f"fluxbench: {function.__module__.removeprefix('fluxbench.')}.{function.__name__} {failure}; {_AGAIN}"
            )
            sys.stdout.flush()

    return wrapped


def _wait(child: int, deadline: float) -> str | None:
    """Wait for a process until the deadline and kill it then; return how it failed, or None."""
    parent, is_late = os.getppid(), False
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if not is_late and (time.monotonic() > deadline or os.getppid() != parent):
            is_late = True
            os.kill(child, signal.SIGKILL)
        time.sleep(_POLL_S)
    if is_late:
        return f"was ended shortly before uvnote's limit of {_LIMIT_S:.0f} s"
    if os.WIFSIGNALED(status):
        return f"was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return "did not succeed" if os.WEXITSTATUS(status) else None


@contextlib.contextmanager
def _forwarding(child: int) -> Iterator[None]:
    """Hand signals that would end this process on to another one.

    Afterwards it ignores `_ENDING`: uv, which gets them too where a whole tree is ended, sends them a second time.
    """

    def forward(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    before = signal.getsignal(signal.SIGINT)
    for number in _HANDED_ON:
        signal.signal(number, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
