"""This machine in place of a cluster: one job after another, through submitit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fluxbench.core.errors import SetupError
from fluxbench.device import detect, targets
from fluxbench.device.targets import Target
from fluxbench.fleet.call import Call, fits, is_running
from fluxbench.fleet.cluster import Queued
from fluxbench.fleet.pair import Pair


class Local:
    """This machine."""

    name = "local"
    at_once = 1  # since jobs would share the device

    def __init__(self) -> None:
        self._started: dict[Pair, Any] = {}  # jobs of submitit

    def check(self, pairs: Sequence[Pair], targets_: Mapping[str, Target]) -> None:
        """Raise `SetupError` where a target is of another device than this machine's."""
        device = targets.target_name(detect.detect())
        for pair in pairs:
            if not fits(pair.target, device):
                raise SetupError(f"with --cluster local the targets must be of {device!r}, got {pair.target!r}")

    def queued(self, pairs: Sequence[Pair]) -> Mapping[Pair, Queued]:
        """Return the pairs whose job runs, whoever started it."""
        return {pair: Queued(id=None, is_running=True, detail="here") for pair in pairs if self._runs(pair)}

    def submit(self, call: Call, target: Target, limit_s: float) -> str | None:
        """Start a job. Raises `OSError`."""
        from submitit import LocalExecutor

        executor = LocalExecutor(call.pair.logs)
        executor.update_parameters(timeout_min=limit_s / 60, stderr_to_stdout=True)
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._started[call.pair] = executor.submit(dataclasses.replace(call, gpus=gpus))
        return None

    def _runs(self, pair: Pair) -> bool:
        job = self._started.get(pair)
        return (job is not None and not job.done()) or is_running(pair.home)
