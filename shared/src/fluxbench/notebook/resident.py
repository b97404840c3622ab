"""Runs cells that show something as forks of one process, which has imported what they need.

Started by `residents.py` in the cells' own environment, with a socket. A message names the folder of a cell, with a
`REQUEST` in it, and brings the descriptors of `runner.Ends`. This process forks the cell's supervisor, which forks the
cell, and answers with a descriptor of the supervisor's process. All of it ends when the socket is closed.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.notebook import orphans, supervisor

REQUEST = ".fluxbench-request.json"
_LONGEST = 4096  # bytes of a message: a path
_NICE = 10  # a cell that draws gives way to what measures


@dataclass(frozen=True, kw_only=True)
class Request:
    """A cell to run: its script, the variables that only it has, how long it may take, whether it gives way."""

    script: str
    variables: dict[str, str]
    limit_s: float
    gives_way: bool


def serve(connection: socket.socket) -> Request | None:
    """Start what is asked for until the other side is gone, and return None; return a cell's request in its fork."""
    supervisor.adopt_orphans()
    supervisors: dict[int, int] = {}  # descriptors of the processes, by their ids
    while True:
        ready, _, _ = select.select([connection.fileno(), *supervisors.values()], [], [])
        for pid in [pid for pid, descriptor in supervisors.items() if descriptor in ready]:
            os.close(supervisors.pop(pid))
            if os.waitpid(pid, 0)[1]:  # its cell killed it
                orphans.kill(set(supervisors))
        if connection.fileno() not in ready:
            continue
        message, ends, _, _ = socket.recv_fds(connection, _LONGEST, 4)
        if not message:
            return None
        folder = Path(os.fsdecode(message))
        request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
        _prepare(request.variables)
        if (pid := os.fork()) == 0:
            for descriptor in (connection.detach(), *supervisors.values()):
                os.close(descriptor)
            if _is_cell(request, folder, *ends):
                return request
        for end in ends:
            os.close(end)
        supervisors[pid] = os.pidfd_open(pid)
        with contextlib.suppress(OSError):  # the other side is gone, which the next round finds
            sent = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [supervisors[pid]]))]
            connection.sendmsg([message], sent)


def _is_cell(request: Request, folder: Path, stdin: int, stdout: int, stderr: int, status: int) -> bool:
    """Become a cell's supervisor, and return True in its fork that is the cell."""
    try:
        os.setsid()
        os.chdir(folder)
        for descriptor, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        supervisor.adopt_orphans()
        deadline = time.monotonic() + request.limit_s
        if (child := os.fork()) == 0:
            os.close(status)
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            return True
        supervisor.watch(child, status, deadline)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - whatever it is, two processes must not serve one socket
        os._exit(1)


def _prepare(variables: Mapping[str, str]) -> None:
    """Read once what several cells show."""
    with contextlib.suppress(ImportError, KeyError):
        from fluxbench.core.errors import SetupError
        from fluxbench.report import results

        for name in variables["UVNOTE_INPUTS"].split(","):
            folder = Path(variables[name])
            if (folder / results.REST).is_file():
                with contextlib.suppress(SetupError):  # the cell will say so
                    results.keep(folder)


def _import() -> None:
    """Import what cells use, as far as it is there."""
    with contextlib.suppress(ImportError):
        from fluxbench.report import figures, tables, verdict  # noqa: F401

        for name in figures.names():
            figures.find(name)
        for name in tables.names():
            tables.find(name)
    gc.collect()
    gc.freeze()  # forks then share these pages


def main(descriptor: str) -> None:
    """Serve the socket with this descriptor; in a fork, run a cell as if it had been started by itself."""
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    _import()
    request = serve(connection)
    if request:
        if request.gives_way:
            _give_way()
        os.environ.update(request.variables)
        sys.argv[:] = [request.script]
        runpy.run_path(request.script, run_name="__main__")
        if threading.active_count() == 1:  # tearing down all that was imported would take longer than many a cell
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def _give_way() -> None:
    """Leave the cores to what measures; Linux may weigh whole sessions against each other, and then that is set too."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1])
