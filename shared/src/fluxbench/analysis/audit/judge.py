"""Compare every reading of a table with the roofline of its device, whoever measured it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxbench.analysis.audit.table import NotChecked, Row, rows
from fluxbench.core.output import one_line
from fluxbench.device.peaks import Peak, by_name
from fluxbench.operations.roofline import Roofline, compute_bound, shortest, too_fast
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.schema import RecordError

_LONGEST = 200  # characters of what a row says
# FlashAttention-2's count of operations over the fewest: by so much may a rate that follows that count exceed the peak.
_COUNTED = {"forward": 1.0, "backward": 2.5 / 2, "forward_backward": 3.5 / 3}


@dataclass(frozen=True, kw_only=True)
class Impossible:
    """A reading that the device cannot reach."""

    line: int  # of the file, from 1
    what: str  # the row's own words for what was measured
    reason: str  # the arithmetic


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What the audit of a table gave."""

    table: str
    checked: int  # rows
    impossible: tuple[Impossible, ...]
    not_checked: Mapping[str, int]  # why -> rows

    def text(self) -> str:
        """Return it as lines for a reader."""
        lines = [f"line {reading.line}: {reading.what}: {reading.reason}" for reading in self.impossible]
        impossible = len({reading.line for reading in self.impossible})
        not_checked = sum(self.not_checked.values())
        lines.append(
            f"{self.table}: rows checked: {self.checked}; impossible: {impossible}; not checked: {not_checked}"
        )
        lines += [f"{count:>6}  {why}" for why, count in self.not_checked.items()]
        return "\n".join(map(one_line, lines))

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


def audit(path: Path, *, gpu: str | None = None, causal: bool = False) -> Audit:
    """Judge every row of a CSV.

    Columns: `gpu`, `batch`, `seq_len`, `heads`, `kv_heads`, `head_dim`, `dtype`, `causal`, `pass` or `direction`, and
    `value` with `unit`, or times in `median_ms` and the like, or rates in `tflops`; a `workload` known by name gives
    its shape. What a row does not state is `gpu`, or the device in a page's `records/device.json`; one key head; 16
    bits, unless the implementation's name states fewer; and not causal, unless `causal` is set. Raises `OSError`,
    `csv.Error`, and `ValueError` where it is no text or has no header.
    """
    page_gpu = gpu or _gpu_of_page(path)
    impossible: list[Impossible] = []
    not_checked: Counter[str] = Counter()
    checked = 0
    for row in rows(path):
        try:
            reasons = list(_judge(row, page_gpu, causal))
        except NotChecked as reason:
            not_checked[_shortened(str(reason))] += 1
            continue
        checked += 1
        impossible += (Impossible(line=row.line, what=_shortened(row.label), reason=reason) for reason in reasons)
    return Audit(
        table=path.name, checked=checked, impossible=tuple(impossible), not_checked=dict(not_checked.most_common())
    )


def _judge(row: Row, page_gpu: str | None, causal: bool) -> Iterator[str]:
    """Yield why readings of a row are impossible. Raises `NotChecked`."""
    readings = row.readings()
    name = row.gpu or page_gpu
    if not name:
        raise NotChecked("the GPU is not stated")
    rates = by_name(name)
    if rates is None:
        raise NotChecked(f"the rates of {name} are not known")
    direction = row.direction
    may_be_causal = not causal and not row.states_causal
    for reading in readings:
        if reading.is_rate:
            most = rates.limits.tflops(narrow=row.is_narrow) * _COUNTED[direction]
            if reading.value > most:
                maybe = "; possible if it was causal and its operations were computed as not causal"
                maybe = maybe if may_be_causal and reading.value <= 2 * most else ""
                yield (
                    f"faster than the device can be: {reading.value:,.4g} TFLOP/s measured, "
                    f"but its most is {most:,.0f} TFLOP/s{maybe}"
                )
        elif reason := too_fast(reading.value, _bound(row.workload(causal=causal), rates, row.is_narrow)):
            of_causal = _bound(row.workload(causal=True), rates, row.is_narrow)
            is_possible = may_be_causal and not too_fast(reading.value, of_causal)
            yield reason + ("; possible if it was causal, which is not stated" if is_possible else "")


def _bound(workload: Workload, rates: Peak, is_narrow: bool) -> Roofline | None:
    """Return the roofline of a row's call; in a narrow format its inputs may be narrow too: bytes are not counted."""
    return compute_bound(workload, rates, "narrow") if is_narrow else shortest(workload, rates)


def _gpu_of_page(path: Path) -> str | None:
    """Return the name of the device that a page's own table was measured on; None for a table of no page."""
    for folder in Path(os.path.realpath(path)).parents[:3]:
        try:
            device = files.read_json(folder / "records" / "device.json", dict[str, Any], "the device")["device"]
            return str(device["name"]) + (" MIG" if device["mig"] else "")  # a slice is not the card
        except (OSError, RecordError, KeyError, TypeError):
            continue
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
