"""The resident processes of a build: one for each environment of cells that show something, see `resident.py`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from fluxbench.core.files import write_text
from fluxbench.environments import uv
from fluxbench.notebook import exclusive, resident, runner
from fluxbench.notebook.runner import Ended, Ends

_TICK_S = 0.2
_LONGEST_S = 30 * 86_400.0  # as long as any build takes
_CLOSING_S = 1.0
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a process with threads is not to be forked


class GoneError(Exception):
    """There is no resident process: it did not start, or it ended."""


class _Forked:
    """A supervisor that a resident process forked, by a descriptor of its process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def poll(self) -> int | None:
        return 0 if select.select([self._descriptor], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a supervisor", timeout or 0.0)
        return 0

    def send_signal(self, sig: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Resident:
    """One resident process, which is started at once. Threads may run cells in it at once."""

    def __init__(self, launcher: Path, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self._asking = threading.Lock()
        self._closes = threading.Event()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_TICK_S)
        descriptor = theirs.detach()
        (folder / "home").mkdir()
        command = [uv.find(), "run", str(launcher), resident.__file__, str(descriptor)]
        cache = str(Path(variables["FLUXBENCH_CACHE"]) / "matplotlib")  # of the fonts that it found
        own = {"MPLCONFIGDIR": cache, **variables, **_THREADS, "HOME": str(folder / "home")}

        def serve() -> None:
            with contextlib.suppress(GoneError, OSError):
                runner.run(command, folder, own, _LONGEST_S, self._stay, descriptor)

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def run(
        self,
        script: Path,
        folder: Path,
        variables: Mapping[str, str],
        limit_s: float,
        tick: Callable[[], None],
        *,
        gives_way: bool,
    ) -> Ended | None:
        """Run a script in a folder inside of `self.folder`, as `runner.run` does, with these variables added.

        It leaves the cores to others where it `gives_way`. Returns None where there is no resident process to run it
        in, or none any more.
        """
        request = {"script": str(script), "variables": dict(variables), "limit_s": limit_s, "gives_way": gives_way}
        write_text(folder / resident.REQUEST, json.dumps(request))
        try:
            ended = runner.watch(lambda ends: self._start(folder, ends, tick), limit_s, tick)
        except GoneError:
            return None
        return None if ended.failure == runner.LOST and self._is_gone() else ended

    def close(self) -> None:
        """End it, and what it runs."""
        self._connection.close()
        self._thread.join(_CLOSING_S)
        self._closes.set()
        self._thread.join()

    def _stay(self) -> None:
        if self._closes.is_set():
            raise GoneError

    def _is_gone(self) -> bool:
        gone = select.poll()
        gone.register(self._connection, 0)  # and POLLHUP, which always counts: nobody has the other end any more
        return bool(gone.poll(1e3 * _CLOSING_S))

    def _start(self, folder: Path, ends: Ends, tick: Callable[[], None]) -> _Forked:
        name, sent = os.fsencode(folder), [ends.stdin, ends.stdout, ends.stderr, ends.status]
        while not self._asking.acquire(timeout=_TICK_S):
            tick()
        try:
            socket.send_fds(self._connection, [name], sent)
            while True:
                try:
                    answer, descriptors, _, _ = socket.recv_fds(self._connection, len(name) + 1, 1)
                except TimeoutError:
                    tick()
                    continue
                if not descriptors:
                    raise GoneError
                forked = _Forked(descriptors[0])
                if answer == name:  # and not of a cell that was given up before the answer came
                    return forked
        except OSError as error:
            raise GoneError from error
        finally:
            self._asking.release()


class Residents:
    """All of them, each started when it is first asked for; to be closed at the end."""

    def __init__(self, work: Path, variables: Mapping[str, str]) -> None:
        self._work, self._variables = work, variables
        self._lock = threading.Lock()
        self._started: dict[Path, Resident] = {}
        self._folders = contextlib.ExitStack()

    def __enter__(self) -> Residents:
        """Begin without any."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all."""
        for one in self._started.values():
            one.close()
        self._folders.close()

    def of(self, launcher: Path) -> Resident:
        """Return the one with a launcher's environment. Raises `SetupError` where uv is missing, `OSError`."""
        with self._lock:
            if launcher not in self._started:
                folder = self._folders.enter_context(exclusive.cell_folder(self._work))
                self._started[launcher] = Resident(launcher, folder, self._variables)
            return self._started[launcher]
