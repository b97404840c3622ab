"""What a job runs on its node: `fluxbench build` of one notebook, in the pair's own copy of the repository."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fluxbench.core.files import remove
from fluxbench.core.locks import only_one
from fluxbench.device import detect, targets
from fluxbench.fleet.pair import Pair, Result, write_json

_RUNNING = "running.lock"
_PATIENCE_S = 10.0  # the front end may look at the lock at the very moment
_MOST_PROBLEMS = 20  # that are kept
_OURS = "fluxbench: "


@dataclass(frozen=True)
class Call:
    """The call that submitit pickles: picklable, and it finds all else in the pair's folder."""

    pair: Pair
    attempt: int
    gpus: str | None = None  # CUDA_VISIBLE_DEVICES where no cluster sets it

    def __call__(self) -> int:
        """Build, keep how it ended, and return the exit code.

        A job that Slurm starts again builds what is left. Raises `SetupError` where another job of the pair runs;
        `OSError`.
        """
        home = self.pair.home
        refusal = f"only one job may build in {home}, got another that runs"
        with only_one(home / _RUNNING, refusal, patience_s=_PATIENCE_S):
            remove(home / "result.json")  # of a start that was preempted
            began_at = _now()
            exit_code, problems = self._build()
            result = Result(
                attempt=self.attempt,
                exit_code=exit_code,
                host=platform.node(),
                began_at=began_at,
                ended_at=_now(),
                problems=tuple(problems[:_MOST_PROBLEMS]),
            )
            write_json(home / "result.json", result)
        return exit_code

    def _build(self) -> tuple[int, list[str]]:
        """Return the exit code of the build, and the sentences that it printed."""
        pair = self.pair
        name = targets.target_name(detect.detect())
        if not fits(pair.target, name):
            return 2, [f"target {pair.target!r} must run on its own device, got one of target {name!r} on this node"]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(pair.work / "shared/src"), os.environ.get("PYTHONPATH")))),
            "FLUXBENCH_CACHE": os.environ.get("FLUXBENCH_CACHE") or str(pair.home / "cache"),
        }
        if os.environ.get("SUBMITIT_EXECUTOR") == "local":  # which hides the GPUs that were not requested
            variables.pop("CUDA_VISIBLE_DEVICES", None)
            variables |= {"CUDA_VISIBLE_DEVICES": self.gpus} if self.gpus is not None else {}
        command = [sys.executable, "-m", "fluxbench.cli", "build", str(pair.document), "--output", str(pair.site)]
        log = pair.home / "build.log"
        with log.open("wb") as output:
            exit_code = subprocess.run(
                command, cwd=pair.work, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ).returncode
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return exit_code, [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]


def fits(target: str, device: str) -> bool:
    """Return whether a target may be measured on a device: `h200-x2` and `cpu-epyc` on those of `h200` and `cpu`."""
    return target == device or target.startswith(f"{device}-")


def is_running(home: Path) -> bool:
    """Return whether a job of the pair runs now, on whatever node. Raises `OSError`."""
    if not (home / _RUNNING).exists():
        return False
    with (home / _RUNNING).open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
