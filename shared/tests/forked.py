"""Processes that compute together, one a rank, all or none. They are forked: what takes seconds to import is there."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from fluxbench.core.errors import first_sentence
from fluxbench.worker.parent import exit_with

_POLL_S = 0.02


class RankFailed(RuntimeError):
    """A rank that failed or was killed; the message is one sentence, and no rank runs any more."""


def in_ranks(count: int, work: Callable[[int], None]) -> None:
    """Run `work(rank)` in so many forked processes, and return once all have ended well.

    The calling process must not have used a GPU, which a fork cannot. Ranks have one thread each for computing. Raises
    `RankFailed` once one of them fails, and ends the others then, which would wait for it forever.
    """
    ranks = {}
    try:
        for rank in range(count):
            ranks[rank] = _fork(rank, work)
        _wait(dict(ranks), count)
    finally:
        for pid, said in ranks.values():
            _end(pid)
            os.close(said)


def _fork(rank: int, work: Callable[[int], None]) -> tuple[int, int]:
    """Return the process of a rank and the pipe on which it says why it failed."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    parent = os.getpid()
    if pid := os.fork():
        os.close(write)
        return pid, read
    code = 1
    try:
        exit_with(parent)
        import torch

        torch.set_num_threads(1)  # the threads of the calling process do not exist here
        work(rank)
        code = 0
    except BaseException as error:  # noqa: BLE001 - it must not return into the caller's code
        traceback.print_exc()
        os.write(write, first_sentence(error).encode())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(running: dict[int, tuple[int, int]], count: int) -> None:
    while running:
        for rank, (pid, said) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del running[rank]
            if code := os.waitstatus_to_exitcode(status):
                reason = os.read(said, 4096).decode(errors="replace") or _words(code)
                raise RankFailed(f"rank {rank} of {count} failed, so the others were ended: {reason}")
        time.sleep(_POLL_S)


def _words(code: int) -> str:
    return f"it ended with signal {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):  # it has ended, and was waited for
        pass
