"""How many cells of a build run at once."""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.core import cores
from fluxbench.device.model import Device

_AT_ONCE = 4  # measuring cells on a GPU: one measures while others import and compile
_CORES = 6  # of a host that has some to spare beside a measurement


@dataclass(frozen=True, kw_only=True)
class Width:
    """How many cells run at once: measuring ones, others beside these, and others alone."""

    measuring: int
    beside: int
    alone: int

    @classmethod
    def on(cls, device: Device, at_once: int = _AT_ONCE) -> Width:
        """Return that of this host, `at_once` measuring cells at most.

        Nothing is drawn beside a measurement of the CPU, or on a host of few cores.
        """
        ours = cores.available()
        if device.worker_kind == "cpu" or ours < _CORES:
            return cls(measuring=1, beside=0, alone=ours)
        return cls(measuring=min(_AT_ONCE, at_once), beside=max(1, ours // 4), alone=ours)
