"""Slurm: jobs by their names, through submitit, squeue and scontrol (22.05 or newer).

A pair's job has a name of its own, so that a front end that was killed between submitting a job and noting its number
finds it again. Each job is one `sbatch`: no process waits for it here.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import io
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from fluxbench.core.errors import SetupError
from fluxbench.device.targets import Target
from fluxbench.fleet import nodes
from fluxbench.fleet.call import Call
from fluxbench.fleet.cluster import Queued, SilentError
from fluxbench.fleet.pair import Pair

_PROGRAMS = ("sbatch", "srun", "squeue", "scontrol")  # submitit looks for srun
_RUNNING = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
_ANSWER_S = 60.0


class Slurm:
    """The cluster that this machine submits to."""

    name = "slurm"
    at_once = sys.maxsize

    def check(self, pairs: Sequence[Pair], targets: Mapping[str, Target]) -> None:
        """Raise `SetupError`: no Slurm, no request for a target, no such node or GPUs, a folder that is not shared."""
        for program in _PROGRAMS:
            if not shutil.which(program):
                raise SetupError(
                    f"a fleet must find Slurm, got no {program} on PATH; run it where jobs are submitted, or with "
                    "--cluster local"
                )
        there = nodes.parse(_ask("scontrol", "show", "nodes", "--oneliner"))
        for pair in pairs:
            nodes.check(targets[pair.target], there, pair.fleet)

    def queued(self, pairs: Sequence[Pair]) -> Mapping[Pair, Queued]:
        """Return the pairs' jobs that wait or run. Raises `SilentError`, and `SetupError` for another user's."""
        names = {job_name(pair): pair for pair in pairs}
        if not names:
            return {}
        lines = _ask("squeue", "--noheader", "--format=%i|%j|%u|%T|%r|%N", f"--name={','.join(names)}").splitlines()
        jobs: dict[Pair, Queued] = {}
        for line in lines:
            number, name, user, state, reason, where = line.split("|", 5)
            if user != getpass.getuser():
                raise SetupError(
                    f"job {name} must be yours, got job {number} of user {user}; wait until it ends, or use a clone of "
                    "your own"
                )
            is_running = state in _RUNNING
            detail = f"on {where}" if is_running else reason.removeprefix("None")
            jobs[names[name]] = Queued(id=number, is_running=is_running, detail=detail)
        return jobs

    def submit(self, call: Call, target: Target, limit_s: float) -> str | None:
        """Submit a job and return its number. Raises as `Cluster.submit`, with what sbatch says."""
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        assert target.slurm is not None  # which `check` requires
        executor = SlurmExecutor(call.pair.logs)
        executor.update_parameters(
            job_name=job_name(call.pair),
            partition=target.slurm.partition,
            constraint=target.slurm.constraint,
            gpus_per_node=target.slurm.gpus or None,
            exclusive=True,
            mem="0",  # all of the node's
            time=math.ceil(limit_s / 60),
            use_srun=False,  # a step of srun gets one core; the batch script itself has the whole node
            stderr_to_stdout=True,
            additional_parameters={"requeue": True, "chdir": str(call.pair.fleet.parent)},
        )
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # on which submitit prints what sbatch says
                return str(executor.submit(call).job_id)
        except (FailedJobError, FailedSubmissionError) as error:
            self.queued([call.pair])  # raises where sbatch was refused by nobody: the controller is silent
            lines = [line for line in str(error).splitlines() if line.strip()] or ["nothing"]
            raise SetupError(f"sbatch must accept the job of {call.pair}, got {lines[-1].strip()}") from error


def job_name(pair: Pair) -> str:
    """Return the name of a pair's job, which no other clone's job has."""
    clone = hashlib.sha256(os.fsencode(pair.fleet)).hexdigest()[:8]
    return f"fluxbench-{clone}-{pair.target}-{pair.notebook}"


def _ask(*command: str) -> str:
    """Return what a program of Slurm prints. Raises `SilentError`."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_ANSWER_S)
    except subprocess.TimeoutExpired as error:
        raise SilentError(f"Slurm must answer, got nothing from {command[0]} within {_ANSWER_S:.0f} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SilentError(f"Slurm must answer, got from {command[0]}: {lines[-1]}; it may be restarting")
    return done.stdout
