"""What came of trying the variants' capabilities: `<cell>.capabilities.json`, of schema 1 or 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fluxbench.bench.events import ProbeResult
from fluxbench.records import files
from fluxbench.records.schema import RecordError

Probes = Mapping[str, Mapping[str, ProbeResult]]  # by variant and capability
_OVER = re.compile(r"error (\d[\d.e+-]*) is over the budget (\d[\d.e+-]*\d)")  # as schema 1 has it


class _Outcomes(msgspec.Struct, frozen=True):
    """The file; of schema 1 an outcome is "yes", "no: why" or "wrong: why"."""

    variants: dict[str, dict[str, ProbeResult | str]]


def read(path: Path) -> Probes:
    """Return the outcomes in a file. Raises `OSError`, and `RecordError` where it is damaged."""
    try:
        outcomes = files.read_json(path, _Outcomes, "what came of trying capabilities")
        return {
            variant: {key: _typed(outcome) for key, outcome in of_variant.items()}
            for variant, of_variant in outcomes.variants.items()
        }
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"{path.name} must hold what came of trying capabilities: {error}") from error


def _typed(outcome: ProbeResult | str) -> ProbeResult:
    if isinstance(outcome, ProbeResult):
        return outcome
    status, _, reason = outcome.partition(": ")
    over = _OVER.search(reason)
    rel_l2, budget = (float(over[1]), float(over[2])) if over else (None, None)
    if status not in ("yes", "wrong", "no"):
        raise ValueError(f"an outcome must be yes, wrong or no, got {status!r}")
    return ProbeResult(status=status, reason=reason or None, rel_l2=rel_l2, budget=budget)  # type: ignore[arg-type]
