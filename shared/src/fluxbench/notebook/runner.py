"""Runs one command in a folder, and keeps its output and hold of its processes.

uvnote's own executor lacks this: a limit that can be set, output that is bounded and survives the limit, the end of
every process that the command started, and a sentence about how it ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from fluxbench.notebook import orphans, supervisor

KEPT_BYTES = 256 << 10  # of the beginning, and as much of the end, of each stream
_TICK_S = 0.2
_DRAIN_S = 1.0  # seconds to read on after the supervisor ended
LOST = "its supervisor ended first"
_GRACE_S = supervisor.KILL_LIMIT_S + 2.0  # seconds that the supervisor has to kill what it watches


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `failure` is a sentence, None where it succeeded.

    `exit_code` is None where a time limit, a signal or the loss of its supervisor ended it.
    """

    stdout: str
    stderr: str
    duration_s: float
    failure: str | None
    exit_code: int | None


class Kept:
    """The beginning and the end of a stream, and how much lay between them."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = self._dropped = 0

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        if data := data[room:] if room > 0 else data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= KEPT_BYTES:
            gone = len(self._tail.popleft())
            self._tail_bytes -= gone
            self._dropped += gone

    def text(self) -> str:
        """Return what was kept; bytes that are not UTF-8 become replacement characters."""
        if not self._dropped:
            return (bytes(self._head) + b"".join(self._tail)).decode("utf-8", "replace")
        note = f"\n[... {self._dropped / 1e6:,.1f} MB of output are omitted here ...]\n"
        return self._head.decode("utf-8", "replace") + note + b"".join(self._tail).decode("utf-8", "replace")


class Watched(Protocol):
    """The supervisor of a command, as `subprocess.Popen` has it."""

    def poll(self) -> int | None:
        """Return None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""

    def kill(self) -> None:
        """Kill it, unless it has ended."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The descriptors that a supervisor gets: ends of pipes, which are closed here once it has started."""

    stdin: int
    stdout: int
    stderr: int
    status: int


def run(
    command: list[str],
    folder: Path,
    variables: Mapping[str, str],
    limit_s: float,
    tick: Callable[[], None] = lambda: None,
    descriptor: int | None = None,
) -> Ended:
    """Run a command in a folder until it ends, or for `limit_s`, and return how it ended.

    `tick` is called about five times a second. The command inherits the `descriptor`, which is closed here. Once this
    returns or raises, no process of the command runs, except one that a driver does not let go. Where this raises, or
    its process is killed, the folder is removed. Threads may run commands at once.
    """
    inherited = () if descriptor is None else (descriptor,)
    started: list[subprocess.Popen[bytes]] = []

    def start(ends: Ends) -> Watched:
        # Without our name in its command line, so that `pkill -f fluxbench` leaves it alive to end what it watches.
        script = os.open(supervisor.__file__, os.O_RDONLY)
        own = [f"/dev/fd/{script}", str(ends.status), str(limit_s), ",".join(map(str, inherited)) or "-"]
        try:
            watcher = _ORPHANS.start(
                [sys.executable, "-I", "-S", *own, *command],
                cwd=folder,
                stdin=ends.stdin,
                stdout=ends.stdout,
                stderr=ends.stderr,
                env=dict(variables),
                start_new_session=True,
                pass_fds=(ends.status, script, *inherited),
            )
        finally:
            for each in (script, *inherited):
                os.close(each)
        started.append(watcher)
        return watcher

    with _ORPHANS.adopted():
        try:
            return watch(start, limit_s, tick)
        finally:
            for watcher in started:
                _ORPHANS.ended(watcher)


_ORPHANS = orphans.Orphans()  # being the parent of orphans is a state of the whole process


def watch(start: Callable[[Ends], Watched], limit_s: float, tick: Callable[[], None]) -> Ended:
    """Start a supervisor and return how its command ended. What it watches is killed where this raises."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def pipe(*, inward: bool = False) -> tuple[FileIO, int]:
            ends = os.pipe()
            read, write = FileIO(ends[0], "r"), FileIO(ends[1], "w")
            own, other = (write, read) if inward else (read, write)
            ours.enter_context(own)
            return own, theirs.enter_context(other).fileno()

        (stdin, stdin_end), (stdout, stdout_end) = pipe(inward=True), pipe()
        (stderr, stderr_end), (status, status_end) = pipe(), pipe()
        kept = {stdout: Kept(), stderr: Kept()}
        watcher = start(Ends(stdin=stdin_end, stdout=stdout_end, stderr=stderr_end, status=status_end))
        started = time.monotonic()
        deadline = started + limit_s + _GRACE_S
        try:
            theirs.close()
            _listen(watcher, kept, tick, deadline)
            _end(watcher, deadline)
            said = status.readall().decode().split()
        finally:
            stdin.close()  # which ends whatever is left
            _end(watcher, time.monotonic() + _GRACE_S)
        is_late = time.monotonic() - started >= limit_s  # and the supervisor could not say so
        failure: str | None = _late(limit_s) if is_late else LOST
        exit_code = None
        if len(said) == 2:
            failure, exit_code = _outcome(int(said[0]), said[1] == "1", limit_s)
        return Ended(
            stdout=kept[stdout].text(),
            stderr=kept[stderr].text(),
            duration_s=time.monotonic() - started,
            failure=failure,
            exit_code=exit_code,
        )


def _listen(watcher: Watched, streams: Mapping[FileIO, Kept], tick: Callable[[], None], deadline: float) -> None:
    """Read both streams until every process that could write to them is gone, or the supervisor is, or it is late."""
    with selectors.DefaultSelector() as selector:
        for stream, kept in streams.items():
            selector.register(stream, selectors.EVENT_READ, kept)
        ticked = time.monotonic()
        gone_s = None  # when the supervisor ended: what it could not kill may hold the streams open for good
        while selector.get_map() and time.monotonic() < (deadline if gone_s is None else gone_s + _DRAIN_S):
            for key, _ in selector.select(_TICK_S):
                data = os.read(key.fd, 1 << 16)
                key.data.add(data)
                if not data:
                    selector.unregister(key.fileobj)
            if gone_s is None and watcher.poll() is not None:
                gone_s = time.monotonic()
            if time.monotonic() - ticked >= _TICK_S:
                watcher.send_signal(signal.SIGCONT)  # a cell may have stopped it
                tick()
                ticked = time.monotonic()


def _end(watcher: Watched, deadline: float) -> None:
    """Wait until the supervisor has ended; kill it at the deadline."""
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.wait(_TICK_S)
            return
        watcher.send_signal(signal.SIGCONT)
    watcher.kill()
    watcher.wait()


def _late(limit_s: float) -> str:
    return f"it did not end within {limit_s:g} s and was killed"


def _outcome(returncode: int, timed_out: bool, limit_s: float) -> tuple[str | None, int | None]:
    """Return a sentence, None where it succeeded, and the exit code, None where there is none of its own."""
    if timed_out:
        return _late(limit_s), None
    if returncode == 0:
        return None, 0
    number = -returncode if returncode < 0 else returncode - 128  # uv, like a shell, adds 128
    if 0 < number < signal.NSIG:
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(number).name}", None
    return f"it ended with exit code {returncode}", returncode
