"""Where the workers of a build are, by the stacks of their main threads: `page_times.py` tells when, this where.

`python shared/benchmarks/worker_stacks.py make report NOTEBOOK=notebooks/sdpa.md` runs the command and then prints a
tree of calls with the share of all looks at which a worker was there, 250 a second in each. Waiting for a request is
left out. Standard library alone: each worker runs in the measured environment. An interrupt (Ctrl-C) ends the command,
and the tree is of what was seen until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LEAST = 0.01  # of all looks, that a line of the tree has at least
LOOK_S = 0.004
_IDLE = ("standby", "load_early", "make_early")  # functions in which a worker has nothing to do yet

# Python imports a module of this name when it starts.
_SITECUSTOMIZE = """
import os, sys
if "fluxbench.worker" in sys.orig_argv:
    import collections, threading, time

    def name(code):
        return f"{os.path.basename(code.co_filename).removesuffix('.py')}.{code.co_name}"

    def look(folder, main):
        seen, written = collections.Counter(), time.monotonic()
        while True:
            time.sleep(LOOK_S)
            frame, stack = sys._current_frames().get(main), []
            while frame is not None:
                ours = "/fluxbench/" in frame.f_code.co_filename
                if ours or len(stack) < 3:  # of others the three innermost
                    stack.append(name(frame.f_code) + (f":{frame.f_lineno}" if ours else ""))
                frame = frame.f_back
            seen[";".join(reversed(stack))] += 1
            if time.monotonic() > written + 2:
                written = time.monotonic()
                path = f"{folder}/{os.getpid()}"
                with open(f"{path}.part", "w") as file:
                    file.writelines(f"{count} {stack}\\n" for stack, count in seen.items())
                os.replace(f"{path}.part", f"{path}.txt")

    asked = FOLDER, threading.main_thread().ident
    threading.Thread(target=look, args=asked, daemon=True).start()
"""


def main(command: list[str]) -> int:
    """Run the command with all workers watched, print the tree, and return the command's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        text = _SITECUSTOMIZE.replace("FOLDER", repr(folder)).replace("LOOK_S", str(LOOK_S))
        (Path(folder) / "sitecustomize.py").write_text(text, encoding="utf-8")
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        process = subprocess.Popen(command, env=variables)
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal gives it to the command too
        signal.signal(signal.SIGTERM, lambda number, _: _pass_on(process, number))
        returncode = process.wait()
        print("\n".join(tree(stacks(Path(folder)))))
    return returncode


def _pass_on(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def stacks(folder: Path) -> Counter[tuple[str, ...]]:
    """Return how often each stack was seen, outermost call first, of all workers together."""
    seen: Counter[tuple[str, ...]] = Counter()
    for path in folder.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            count, _, stack = line.partition(" ")
            calls = tuple(stack.split(";"))
            if not any(call.partition(":")[0].endswith(_IDLE) for call in calls):
                seen[calls] += int(count)
    return seen


def tree(seen: Counter[tuple[str, ...]], least: float = LEAST) -> list[str]:
    """Return the lines of a tree of calls, the largest first, without those of less than a share of all looks."""
    total = seen.total()
    if not total:
        return ["no worker was seen at work"]
    below: Counter[tuple[str, ...]] = Counter()
    for stack, count in seen.items():
        below.update({stack[:depth]: count for depth in range(1, len(stack) + 1)})
    lines = [f"{total * LOOK_S:.0f} s of workers"]

    def add(outer: tuple[str, ...]) -> None:
        inner = [(count, call) for call, count in below.items() if call[:-1] == outer and count >= least * total]
        for count, call in sorted(inner, reverse=True):
            lines.append(f"{count / total:6.1%} {'  ' * len(outer)}{call[-1]}")
            add(call)

    add(())
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
