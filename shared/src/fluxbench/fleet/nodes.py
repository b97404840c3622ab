"""Whether the nodes of a cluster can run a target's jobs: what `scontrol show nodes` says, and where the files are."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.device.targets import Target

SHARED = "shared"  # a file that a node made in the folder shows that it is shared
# Types of file systems, as /proc/self/mountinfo names them, that one machine has for itself.
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay", "vfat"}
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of the cluster."""

    host: str
    partitions: frozenset[str]
    features: frozenset[str]
    gpus: int


def parse(text: str) -> list[Node]:
    """Return the nodes of `scontrol show nodes --oneliner`."""
    found = []
    for line in text.splitlines():
        facts: dict[str, str] = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line))
        counts = re.findall(r"(?:^|,)gpu(?::[^,:(]+)?:(\d+)", facts.get("Gres", ""))
        found.append(
            Node(
                host=facts.get("NodeHostName", facts.get("NodeName", "")),
                partitions=frozenset(facts.get("Partitions", "").split(",")) - {""},
                features=frozenset(facts.get("AvailableFeatures", "").split(",")) - {"", "(null)"},
                gpus=sum(map(int, counts)),
            )
        )
    return found


def check(target: Target, nodes: Sequence[Node], folder: Path, mounts: Path = _MOUNTS) -> None:
    """Raise `SetupError` where no node is as a target requests it, or its nodes cannot reach the folder.

    `mounts` lists what is mounted here.
    """
    request = target.slurm
    if request is None:
        raise SetupError(
            f"target {target.name!r} must have a request in environment/targets.toml, got none; add a line such as "
            'slurm = { partition = "gpu", constraint = "h200", gpus = 1 }'
        )
    partitions = _all(node.partitions for node in nodes)
    if request.partition and not partitions & set(request.partition.split(",")):
        raise SetupError(
            f"the partition of target {target.name!r} must be one of {', '.join(sorted(partitions)) or 'none'}, got "
            f"{request.partition!r}; change it in environment/targets.toml"
        )
    chosen = [node for node in nodes if not request.partition or node.partitions & set(request.partition.split(","))]
    if request.constraint and re.fullmatch(r"[\w.-]+", request.constraint):  # sbatch judges an expression
        features = _all(node.features for node in chosen)
        chosen = [node for node in chosen if request.constraint in node.features]
        if not chosen:
            raise SetupError(
                f"the constraint of target {target.name!r} must be a feature of its nodes "
                f"({', '.join(sorted(features)) or 'none'}), got {request.constraint!r}; change it in "
                "environment/targets.toml"
            )
    most = max((node.gpus for node in chosen), default=0)
    if request.gpus > most:
        raise SetupError(
            f"the GPUs of target {target.name!r} must be those of one node, at most {most}, got {request.gpus}; change "
            "them in environment/targets.toml"
        )
    _check_shared(target, chosen, folder, mounts)


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that a path is on, of the mounts in the text of /proc/self/mountinfo."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        place = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))
        if path.is_relative_to(place) and len(place.parts) >= best:  # a later mount covers an earlier one
            best, kind = len(place.parts), after.split()[0]
    return kind


def _check_shared(target: Target, nodes: Iterable[Node], folder: Path, mounts: Path) -> None:
    here = platform.node().partition(".")[0]
    others = sorted({node.host for node in nodes if node.host.partition(".")[0] != here})
    kind = file_system(folder.resolve(), mounts.read_text(encoding="utf-8"))
    if others and kind in _LOCAL and not (folder / SHARED).exists():
        partition = f"--partition={target.slurm.partition} " if target.slurm and target.slurm.partition else ""
        raise SetupError(
            f"{folder} must be on a file system that the nodes share, got {kind} of this machine, while target "
            f"{target.name!r} runs on {others[0]}; move the clone to a shared one, or where this machine exports it, "
            f"run `srun {partition}touch {folder / SHARED}`"
        )


def _all(sets: Iterable[frozenset[str]]) -> set[str]:
    return {name for names in sets for name in names}
