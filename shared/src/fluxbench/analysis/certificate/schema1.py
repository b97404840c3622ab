"""Trials of schema 1, of November 2026, as those of schema 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fluxbench.records import schema1

_RENAMED = {"turn": "trial", "turns": "trials"}


def converted(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of schema 2. Raises `RecordError`, and `KeyError` or `TypeError` where it is damaged."""
    return {**content, "runs": [_run(run, content["fingerprint"]) for run in content["runs"]]}


def _run(run: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "records": [
            schema1.from_json(msgspec.json.encode({**record, "timing": record["burst"], "fingerprint": fingerprint}))
            for record in run["records"]
        ],
        "control": run["sentinel"],
        "places": [{_RENAMED.get(key, key): value for key, value in place.items()} for place in run["places"]],
        "seconds": run["seconds"],
        "others": run["others"],
    }
