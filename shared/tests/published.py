"""What is published in `reports/`, for tests that hold new code against it. History entries never change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fluxbench.records import files

REPORTS = Path(__file__).resolve().parents[2] / "reports"
HISTORY = REPORTS / "h200" / "flux" / "history"
# Entries of the H200's history, by the method version of their records.
BY_METHOD = {
    1: HISTORY / "2026-11-21T110103Z",
    2: HISTORY / "2026-11-21T130637Z",
    3: HISTORY / "2026-11-21T161844Z",
    4: HISTORY / "2026-11-21T184709Z",
    5: HISTORY / "2026-11-21T211726Z",
}


def schema1(cell: str = "sdpa", variant: str = "torch_cudnn", method: int = 5) -> dict[str, Any]:
    """Return the JSON object of a PASSED record of schema 1."""
    [path] = (path for path in files.paths(BY_METHOD[method]) if files.cell_of(path) == cell)
    for line in files.read_bytes(path).splitlines():
        data: dict[str, Any] = json.loads(line)
        if data["variant"] == variant and data["status"] == "PASSED":
            return data
    raise AssertionError(f"{variant} did not pass")
