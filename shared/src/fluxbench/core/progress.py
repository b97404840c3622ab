"""What a measuring cell is at, for whoever waits for it: JSON lines in the file that `FLUXBENCH_PROGRESS` names.

{"steps": 144}                                      how many steps there will be; the largest such number counts
{"left": 12}                                        so many are still to begin, at least
{"variant": "flex", "workload": "flux1-1024px-t512"}   a step begins; variant null: all are timed together
{"variant": "flex", "workload": "flux1-1024px-t512", "counts": 2}   one that takes as long as two
{"before": 24}                                      so many of the steps were measured by a build that was stopped
{"step": "building the environment"}                   something else begins
{"early": "soon"}                                      early records may be there when this step is over (`bench.early`)
{"early": "ready"}                                     they are there
{"partly": true}                                       it measures only a part of what the cell measures
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from fluxbench.core import files

VARIABLE = "FLUXBENCH_PROGRESS"
_NUMBERS = ("steps", "left", "counts", "before")
_TYPES = {
    **dict.fromkeys(_NUMBERS, (int,)),
    "partly": (bool,),
    **{"step": (str,), "early": (str,), "variant": (str, NoneType), "workload": (str,)},
}
_MOST_BYTES, _MOST_STEPS = 4 << 20, 10**9


def is_heard() -> bool:
    """Whether somebody listens."""
    return bool(os.environ.get(VARIABLE))


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
    before: float = 0.0  # the share of its steps that a build that was stopped had measured
    soon: int = 0  # how often early records were announced
    early: bool = False  # they are there
    partly: bool = False  # another build has measured, or will measure, the rest of the cell
    folder: Path | None = field(default=None, compare=False)  # of the cell, where it is known


def read(path: Path) -> Progress:
    """Return how far a cell has come. What is missing, half written or of another shape is left out."""
    steps, begun, before, soon, step, early, partly = 0, 0, 0, 0, "", False, False
    try:
        lines = files.read_regular(path, _MOST_BYTES).splitlines()
    except OSError:
        return Progress(share=None, step="")
    for line in lines:
        said = _said(line)
        steps = max(steps, said.get("steps", 0))
        earlier = max(0, said.get("before", 0))
        before, begun = before + earlier, begun + earlier
        if "left" in said:
            steps = max(steps, begun + said["left"])
        step = said.get("step", step)
        soon += said.get("early") == "soon"
        early |= said.get("early") == "ready"
        partly |= said.get("partly", False)
        if "workload" in said:
            begun += max(0, said.get("counts", 1)) * (said["variant"] is not None)
            step = f"{said['variant'] or 'all variants'} at {said['workload']}"
    share, of_before = (min(1.0, count / steps) if steps else None for count in (begun, before))
    return Progress(share=share, step=step, before=of_before or 0.0, soon=soon, early=early, partly=partly)


def _said(line: bytes) -> dict[str, Any]:
    """Return the fields of a line; empty where one is of another type than `say` writes."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict) or ("variant" in fields) != ("workload" in fields):
        return {}
    fits = all(type(value) in _TYPES.get(key, ()) for key, value in fields.items())
    return fields if fits and all(abs(fields.get(key, 0)) <= _MOST_STEPS for key in _NUMBERS) else {}
