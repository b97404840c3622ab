"""The hardware targets of `reports/`: their names, their locks, and what their pages must show. See `environment/`."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluxbench.core.errors import SetupError
from fluxbench.device import peaks
from fluxbench.device.model import Device

FALLBACK = "any"
ON_A_HOST = ("parallel",)  # notebooks that use all GPUs of a host
_OF_A_HOST = re.compile(r"-x\d+$")
_SPREADS = ("runs", "cards", "runs_sustained", "runs_with_pauses", "cards_sustained")
_FIELDS = ("like", "locks", "exclude", "required", "required_in", *_SPREADS, "slurm")


@dataclass(frozen=True, kw_only=True)
class BetweenRuns:
    """How far two runs differ beyond their processes: standard deviations of one run's times, shares."""

    variant: float  # common to all workloads of a variant
    workload: float  # of a workload's own
    df: int  # degrees of freedom of both
    source: str  # what it was estimated from


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which node of a Slurm cluster has a target's device."""

    partition: str | None = None
    constraint: str | None = None
    gpus: int = 0  # whole ones, of one node


@dataclass(frozen=True, kw_only=True)
class Target:
    """One folder of `reports/`."""

    name: str
    locks: tuple[str, ...]  # files of environment/locks; the first that this machine can use is taken
    exclude: tuple[str, ...]  # patterns of variants that are measured only where FLUXBENCH_ALL asks for them
    required: tuple[str, ...]  # variants that must be PASSED at every workload, else a report has a problem
    runs: BetweenRuns  # of one card, in burst normalized to control
    cards: BetweenRuns  # of two cards of the model, the same
    runs_sustained: BetweenRuns  # of one card, in times under load as they are
    runs_with_pauses: BetweenRuns  # the same, of methods before `records.method.WITHOUT_PAUSE` on a GPU
    cards_sustained: BetweenRuns  # of two cards of the model, in times under load
    slurm: Request | None = None  # None where nobody said which node has the device
    required_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in place of `required`, by notebook

    def requires(self, variant: str, notebook: str) -> bool:
        """Whether a variant must be PASSED at every workload of a notebook."""
        return variant in self.required_in.get(notebook, self.required)

    def excluded(self, variant: str) -> str | None:
        """Return that a variant is left out, and how to measure it; None where it is not."""
        if not any(fnmatch.fnmatch(variant, pattern) for pattern in self.exclude):
            return None
        return f"target {self.name!r} leaves it out, environment/targets.toml says why; FLUXBENCH_ALL=1 measures it"


def of(device: Device, root: Path, notebook: str = "") -> Target:
    """Return the target of a device; a device that `environment/targets.toml` does not name gets the defaults.

    Raises `SetupError` for an unknown field of its table.
    """
    return named(target_name(device, notebook), root)


def named(name: str, root: Path) -> Target:
    """Return the target of a folder name, with the defaults for what `environment/targets.toml` does not say of it.

    Raises `SetupError` for an unknown field of its table.
    """
    tables = tomllib.loads((root / "environment" / "targets.toml").read_text(encoding="utf-8"))
    own = {**tables.get(_OF_A_HOST.sub("", name), {}), **tables.get(name, {})}
    table = {**tables[FALLBACK], **_alike(own, name, tables), **own}
    if unknown := sorted(table.keys() - set(_FIELDS)):
        raise SetupError(
            f"target {name!r} of environment/targets.toml must have only {', '.join(_FIELDS)}, "
            f"got {', '.join(unknown)}; remove or rename it"
        )
    return Target(
        name=name,
        locks=tuple(table["locks"]),
        exclude=tuple(table["exclude"]),
        required=tuple(table["required"]),
        required_in={notebook: tuple(names) for notebook, names in table.get("required_in", {}).items()},
        **{name: BetweenRuns(**table[name]) for name in _SPREADS},
        slurm=_request(name, table["slurm"]) if "slurm" in table else None,
    )


def _alike(own: Mapping[str, Any], name: str, tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table that a target is like, whose variants and locks it has. Raises `SetupError` where there is none.

    What was measured of one device, or requests its node, is not of another.
    """
    if "like" not in own:
        return {}
    if own["like"] not in tables:
        raise SetupError(
            f"target {name!r} of environment/targets.toml must be like a target there, got {own['like']!r}"
        )
    return {key: value for key, value in tables[own["like"]].items() if key not in (*_SPREADS, "slurm")}


def _request(name: str, table: object) -> Request:
    """Return what a target's jobs request. Raises `SetupError` for another field or type."""
    types = {"partition": str, "constraint": str, "gpus": int}
    if not isinstance(table, dict) or any(type(value) is not types.get(key) for key, value in table.items()):
        raise SetupError(
            f"slurm of target {name!r} in environment/targets.toml must hold a partition and a constraint (texts) and "
            f"gpus (a whole number), got {table}"
        )
    request = Request(**table)
    if request.gpus < 0 or not (request.partition or request.constraint):
        raise SetupError(
            f"slurm of target {name!r} in environment/targets.toml must name a partition or a constraint, and no "
            f"negative number of GPUs, got {table}"
        )
    return request


def target_name(device: Device, notebook: str = "") -> str:
    """Return the device's folder name under `reports/`: "h200", "h100-sxm", "rtx-4090", "cpu"; safe as a path.

    Of a notebook that uses all GPUs of a host, their number is part of it: "h200-x2".
    """
    if notebook in ON_A_HOST and device.kind != "cpu" and device.count > 1:
        return f"{target_name(device)}-x{device.count}"
    if device.kind == "cpu":
        return "cpu"
    slug = _slug(device.name) or device.kind
    named = {_slug(name): card.target for name, card in peaks.cards().items()}
    slug = named.get(slug, slug)
    return f"{slug}-mig" if device.mig and "mig" not in slug.split("-") else slug


def _slug(name: str) -> str:
    plain = re.sub(r"^(nvidia )?(geforce )?", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
