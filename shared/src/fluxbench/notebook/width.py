"""How many cells of a build run at once."""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.core import cores
from fluxbench.device.model import Device

_AT_ONCE = 4  # measuring cells on a GPU where no study says another number: one measures while others compile
_COMPILING = 3  # of these, that compile several variants
_CORES_OF_CELL = 2  # that one takes, where there are more
_CORES = 6  # of a host that has some to spare beside a measurement


@dataclass(frozen=True, kw_only=True)
class Width:
    """How many cells run at once: measuring ones, others beside these, and others alone."""

    measuring: int
    beside: int
    alone: int

    @property
    def compiling(self) -> int:
        """How many measuring ones may compile several variants: others use the device meanwhile."""
        return max(_COMPILING, self.measuring - 2)

    @classmethod
    def on(cls, device: Device, at_once: int | None = None) -> Width:
        """Return that of this host, `at_once` measuring cells at most.

        More than four of these need two cores each: what they do on the host is most of their work.
        Nothing is drawn beside a measurement of the CPU, or on a host of few cores.
        """
        ours = cores.available()
        if device.worker_kind == "cpu" or ours < _CORES:
            return cls(measuring=1, beside=0, alone=ours)
        most = max(_AT_ONCE, ours // _CORES_OF_CELL)
        return cls(measuring=min(most, at_once or _AT_ONCE), beside=max(1, ours // 4), alone=ours)
