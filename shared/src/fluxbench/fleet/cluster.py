"""What a fleet needs of a cluster: which jobs it has, and a way to give it one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fluxbench.core.errors import SetupError
from fluxbench.device.targets import Target
from fluxbench.fleet.call import Call
from fluxbench.fleet.pair import Pair


class SilentError(SetupError):
    """The cluster does not answer; what its jobs do is unknown."""


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A job that waits or runs."""

    id: str | None  # None where the cluster has no numbers
    is_running: bool
    detail: str  # where it runs, or why it waits


class Cluster(Protocol):
    """Slurm, or this machine."""

    name: str
    at_once: int  # how many jobs it is given at most

    def check(self, pairs: Sequence[Pair], targets: Mapping[str, Target]) -> None:
        """Raise `SetupError` where jobs of these pairs cannot run; nothing is started."""

    def queued(self, pairs: Sequence[Pair]) -> Mapping[Pair, Queued]:
        """Return the pairs' jobs that wait or run. Raises `SilentError`; `SetupError` where one is not this user's."""

    def submit(self, call: Call, target: Target, limit_s: float) -> str | None:
        """Give the cluster a job and return its number.

        Raises `SilentError`, after which the job may be queued; `SetupError` where it is refused; `OSError`.
        """
