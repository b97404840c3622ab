"""A real Slurm on this machine: munged, slurmctld and three slurmd of Debian's packages, all below one folder.

Partition `pa` has node `na`, and so on for b and c; `nc` has two GPUs that exist in name only. The node of `pfar` is
another machine, which is down.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes import port_keeper

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
_CONFIGURATION = """ClusterName=made-up
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=2
GresTypes=gpu
MaxJobCount=1000
NodeName=na NodeHostname={host} NodeAddr=127.0.0.1 Port={a} CPUs=2 Feature=fa
NodeName=nb NodeHostname={host} NodeAddr=127.0.0.1 Port={b} CPUs=2 Feature=fb
NodeName=nc NodeHostname={host} NodeAddr=127.0.0.1 Port={c} CPUs=2 Feature=fc Gres=gpu:2
NodeName=nfar NodeHostname=elsewhere NodeAddr=127.0.0.1 Port={far} CPUs=2 State=DOWN
PartitionName=pa Nodes=na MaxTime=INFINITE State=UP
PartitionName=pb Nodes=nb MaxTime=INFINITE State=UP Default=YES
PartitionName=pc Nodes=nc MaxTime=INFINITE State=UP
PartitionName=pfar Nodes=nfar MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Return why there can be no Slurm here, or None."""
    if os.geteuid():
        return "a cluster on this machine needs root"
    lacking = [program for program in PROGRAMS if not shutil.which(program)]
    return f"a cluster needs Debian's slurm-wlm and munge, got no {', '.join(lacking)}" if lacking else None


@dataclass
class Cluster:
    """The daemons and their folder."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm's programs need to find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """Run a program of Slurm and return what it prints."""
        environment = {**os.environ, **self.variables}
        return subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8").stdout

    def start(self, name: str, *command: str) -> None:
        """Start a daemon."""
        with (self.folder / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                command, env={**os.environ, **self.variables}, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, name: str) -> None:
        """End a daemon."""
        self.daemons[name].terminate()
        self.daemons.pop(name).wait()

    def start_controller(self) -> None:
        """Start slurmctld, which takes up the jobs that it had."""
        self.start("slurmctld", "slurmctld", "-D")

    def is_ready(self) -> bool:
        """Whether the controller answers and has its nodes."""
        try:
            states = self.ask("sinfo", "--noheader", "--Node", "--format=%T").split()
        except subprocess.CalledProcessError:
            return False
        return sum(state in ("idle", "allocated", "mixed", "drained", "draining") for state in states) >= 3

    def jobs(self) -> dict[str, str]:
        """Return the state of each job in the queue, by the end of its name: target and notebook."""
        lines = self.ask("squeue", "--noheader", "--format=%j %T").splitlines()
        return {name.split("-", 2)[2]: state for name, state in map(str.split, lines)}

    def number(self, name: str) -> str:
        """Return the number of a job by the end of its name."""
        lines = self.ask("squeue", "--noheader", "--format=%j %i").splitlines()
        [number] = [line.split()[1] for line in lines if line.split()[0].endswith(name)]
        return number


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """Give a cluster that is ready, and end all of its processes."""
    cluster = Cluster(folder)
    sockets = {name: port_keeper("") for name in ("controller", "a", "b", "c", "far")}  # Slurm reuses their ports
    ports = {name: each.getsockname()[1] for name, each in sockets.items()}
    text = _CONFIGURATION.format(folder=folder, host=platform.node(), **ports)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    gpus = "".join(f"NodeName=nc Name=gpu File=/dev/{device}\n" for device in ("null", "zero"))
    (folder / "gres.conf").write_text(gpus, encoding="utf-8")
    for name in ("state", "spool-na", "spool-nb", "spool-nc"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    try:
        cluster.start("munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        _until_ready(lambda: (folder / "munge.socket").exists(), folder)
        cluster.start_controller()
        for node in ("na", "nb", "nc"):
            cluster.start(node, "slurmd", "-D", "-N", node)
        _until_ready(cluster.is_ready, folder)
        yield cluster
        cluster.ask("scancel", "--user=root")
        _until_ready(lambda: not cluster.jobs(), folder)
    finally:
        for name in reversed(list(cluster.daemons)):
            cluster.stop(name)
        for each in sockets.values():
            each.close()


def _until_ready(is_so: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.log")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)
