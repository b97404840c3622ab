"""What a measuring cell is at, for whoever waits for it: JSON lines in the file that `FLUXBENCH_PROGRESS` names.

{"steps": 144}                                      how many steps there will be; the largest such number counts
{"variant": "flex", "workload": "flux1-1024px-t512"}   a step begins; variant null: all are timed together
{"step": "building the environment"}                   something else begins
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "FLUXBENCH_PROGRESS"


def say(**fields: str | int | None) -> None:
    """Append one line, where somebody listens. Progress is never worth failing for."""
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a cell is: the share of its steps that have begun (0 to 1, None where unknown), and the step's name."""

    share: float | None
    step: str


def read(path: Path) -> Progress:
    """Return how far a cell has come; a file that is missing or half written is no error."""
    steps, begun, step = 0, 0, ""
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                fields = json.loads(line)
            except json.JSONDecodeError:
                continue
            if not isinstance(fields, dict):
                continue
            steps = max(steps, fields.get("steps", 0))
            step = fields.get("step", step)
            if "variant" in fields:
                begun += fields["variant"] is not None
                step = f"{fields['variant'] or 'all variants'} at {fields['workload']}"
    return Progress(share=min(1.0, begun / steps) if steps else None, step=step)
