"""How far two runs may differ though nothing changed: what `environment/targets.toml` says of their target."""

from __future__ import annotations

import functools

from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.device.targets import BetweenRuns, Target
from fluxbench.records import fingerprint, method
from fluxbench.records.fingerprint import Fingerprint


def between_runs(
    before: Fingerprint, after: Fingerprint, *, sustained: bool = False, version: int = method.METHOD_VERSION
) -> BetweenRuns:
    """Return how far runs under two fingerprints differ beyond their processes, of one model of device.

    That of burst times normalized to control, or of `sustained` ones by a method `version`. Where a GPU's card is
    unknown, it is taken for another one. Raises `SetupError` outside of the repository.
    """
    target = _target(fingerprint.device_of(after))
    if same_card(before, after):
        had_pauses = version < method.WITHOUT_PAUSE and after.get("device_kind") != "cpu"
        under_load = target.runs_with_pauses if had_pauses else target.runs_sustained
        return under_load if sustained else target.runs
    return target.cards_sustained if sustained else target.cards


def same_card(before: Fingerprint, after: Fingerprint) -> bool:
    """Whether both are of one card, or of a CPU, which has none."""
    card = after.get("card")
    return after.get("device_kind") == "cpu" or (card is not None and card == before.get("card"))


@functools.cache
def _target(device: Device) -> Target:
    return targets.named(targets.target_name(device), Settings.load().root)
