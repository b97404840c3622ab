"""The published figures that this package has, and their sources."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "published"
MEASUREMENTS = _FOLDER / "measurements.csv"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where figures were published, and what their author says of the method."""

    title: str
    published_as: str
    gpu: str
    software: str
    method: str
    caveats: tuple[str, ...]


def sources() -> Mapping[str, Source]:
    """Return the sources by the name that their rows have."""
    tables = tomllib.loads((_FOLDER / "sources.toml").read_text(encoding="utf-8"))
    return {name: Source(**{**table, "caveats": tuple(table["caveats"])}) for name, table in tables.items()}
