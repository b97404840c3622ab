"""Runs one command and kills all of its processes when it ends, at its time limit, and when its starter ends.

Started as a script of its own, `python -I -S supervisor.py STATUS_FD LIMIT_S FDS COMMAND...`, in the command's folder
and with a pipe as stdin that its starter holds open; the command inherits the descriptors FDS (`3,4`, or `-` for none).
Every process of the command, in whatever session or process group, becomes a child of this one when its own parent ends
(this is their subreaper). All are killed once the command ends, the limit is reached or the pipe closes, which it does
even when its holder is killed. At the end `RETURNCODE TIMED_OUT` is written to the descriptor STATUS_FD. The folder is
removed where the starter is gone and cannot do it. `resident.py` calls `watch` for a cell that it forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
KILL_LIMIT_S = 10.0  # a process inside a driver call may take its time to die


def main(status_fd: str, limit: str, descriptors: str, *command: str) -> int:
    """Run the command and report its end; return 0."""
    adopt_orphans()
    deadline = time.monotonic() + float(limit)
    inherited = [int(each) for each in descriptors.split(",") if each != "-"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=inherited)
    for descriptor in inherited:
        os.close(descriptor)
    watch(child.pid, int(status_fd), deadline)
    return 0


def watch(child: int, status_fd: int, deadline: float) -> None:
    """Wait until a child ends, the deadline (monotonic seconds) or the end of stdin; kill all below this, and report.

    It is reaped here, and by nobody else.
    """
    folder, ended = Path.cwd(), os.pidfd_open(child)
    orphaned = timed_out = False
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            timed_out = True
            break
        ready, _, _ = select.select([0, ended], [], [], left_s)
        if ended in ready:
            break
        if 0 in ready and not os.read(0, 1):
            orphaned = True
            break
    if timed_out or orphaned:
        os.kill(child, signal.SIGKILL)
    returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_descendants()
    if orphaned:
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # the starter is gone
        os.write(status_fd, f"{returncode} {int(timed_out)}\n".encode())


def adopt_orphans(does: bool = True) -> None:
    """Become the parent of processes below this one whose own parents end, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(does), 0, 0, 0)


def _kill_descendants() -> None:
    deadline = time.monotonic() + KILL_LIMIT_S
    while time.monotonic() < deadline:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # without a child there is no descendant: those without a parent are children of this
            return
        time.sleep(0.005)


def descendants(pid: int, without: Collection[int] = ()) -> list[int]:
    """Return every process below one that is not a zombie, except the children `without` and all below these."""
    children: dict[int, list[int]] = {}  # by parent; a zombie's number is negative
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            except OSError:  # it has ended meanwhile
                continue
            children.setdefault(int(parent), []).append(int(folder.name) if state != "Z" else -int(folder.name))
    descendants, ahead = [], [pid]
    while ahead:
        for child in children.get(ahead.pop(), []):
            if abs(child) not in without:
                ahead.append(abs(child))
                descendants.append(child)
    return [child for child in descendants if child > 0]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
