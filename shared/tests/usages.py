"""How to use a variant whose record names made-up versions."""

from __future__ import annotations

import sample_records

from fluxbench.records.schema import Record
from fluxbench.report import usage
from fluxbench.report.usage import Usage

VERSIONS = {"torch": "2.11.0+cu130", "cuda": "13.0", "python": "3.12.3"}


def record(name: str, **versions: str) -> Record:
    return sample_records.record(name, versions={**VERSIONS, **versions})


def used(name: str, **versions: str) -> Usage:
    found = usage.of(record(name, **{key.replace("_", "-"): value for key, value in versions.items()}))
    assert found
    return found


def with_fa3(name: str, **versions: str) -> Usage:
    """Return the usage of a variant where fa3-fwd was measured."""
    return used(name, fa3_fwd="0.0.3", **versions)
