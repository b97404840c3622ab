"""Hold any table of times, whoever measured them, to what its devices can do at all. No device, and no torch.

The table is a CSV; `check_table` says which columns count, and what is taken where a row does not say.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.device.peaks import Peak, by_name
from fluxbench.operations.roofline import SENTENCE, Floor, computing, shortest_ms, too_fast
from fluxbench.operations.workloads import BY_NAME, Workload

_TIMES = ("median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms")
_UNITS_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ns": 1e-6}
_RATES_TFLOPS = {"TFLOP/s": 1.0, "TFLOPS": 1.0, "TFLOPs/s": 1.0, "GFLOP/s": 1e-3, "PFLOP/s": 1e3}
_DIRECTIONS = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward",
    "forward+backward": "forward_backward", "forward_backward": "forward_backward", "fwd+bwd": "forward_backward",
}  # fmt: skip
_DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "fp32": "float32", "float": "float32", "tf32": "float32",
}  # fmt: skip
_NARROW = re.compile(r"(fp|float|int|nvfp|mxfp)[48]|e4m3|e5m2|quant|sage", re.IGNORECASE)
# FlashAttention-2's count over the fewest operations, by which a rate that follows that count may be over the peak.
_COUNTED = {"forward": 1.0, "backward": 2.5 / 2, "forward_backward": 3.5 / 3}


class _NotChecked(Exception):
    """A row cannot be held to anything; the message says why."""


@dataclass(frozen=True, kw_only=True)
class TooFast:
    """A reading of a table that cannot be."""

    line: int  # of the file, from 1
    what: str  # the row's own words for what was measured
    reason: str


@dataclass(frozen=True, kw_only=True)
class TableCheck:
    """What holding a table to the floor gave."""

    table: str
    checked: int  # rows
    impossible: tuple[TooFast, ...]
    not_checked: Mapping[str, int]  # why -> rows

    def text(self) -> str:
        """Return it as lines for a reader."""
        lines = [f"line {row.line}: {row.what}: {row.reason}" for row in self.impossible]
        rows = len({row.line for row in self.impossible})
        lines.append(f"{self.table}: rows checked: {self.checked}; faster than the device can be: {rows}")
        if self.not_checked:
            lines.append(f"rows that could not be checked: {sum(self.not_checked.values())}")
        return "\n".join(lines + [f"{count:>6}  {why}" for why, count in self.not_checked.items()])

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


def check_table(path: Path, *, gpu: str | None = None, causal: bool = False) -> TableCheck:
    """Hold every row of a CSV to what its device can do.

    Columns: `gpu`, `batch`, `seq_len`, `heads`, `kv_heads`, `head_dim`, `dtype`, `causal`, `pass` or `direction`, and
    `value` with `unit`, or times in `median_ms` and the like; a `workload` known by name gives its shape. What a row
    does not say is `gpu`, or the device in a page's `records/device.json`; one key head; 16 bits, unless the
    implementation's name tells of fewer; and not causal, unless `causal` is set. Raises `OSError` and `UnicodeError`.
    """
    page_gpu = gpu or _gpu_of_page(path)
    impossible: list[TooFast] = []
    why: Counter[str] = Counter()
    checked = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for cells in reader:
            row = {key: (text or "").strip() for key, text in cells.items() if isinstance(key, str)}
            try:
                found = list(_judge(row, page_gpu, causal))
            except _NotChecked as reason:
                why[str(reason)] += 1
                continue
            checked += 1
            impossible += (TooFast(line=reader.line_num, what=_what(row), reason=each) for each in found)
    return TableCheck(
        table=path.name, checked=checked, impossible=tuple(impossible), not_checked=dict(why.most_common())
    )


def _judge(row: Mapping[str, str], page_gpu: str | None, causal: bool) -> Iterator[str]:
    """Yield why a row's readings cannot be. Raises `_NotChecked`."""
    readings = list(_readings(row))
    name = row.get("gpu") or row.get("device") or page_gpu
    if not name:
        raise _NotChecked("the GPU is not stated")
    rates = by_name(name)
    if rates is None:
        raise _NotChecked(f"the rates of {name} are not known")
    told = " ".join(row.get(key, "") for key in ("dtype", "precision_class", "implementation", "variant"))
    precision = "fp8" if _NARROW.search(told) else "bf16"
    direction = _direction(row)
    unsaid = not row.get("causal") and not causal and row.get("workload") not in BY_NAME
    for number, is_rate in readings:
        if is_rate:
            most = rates.limits.tflops(narrow=precision == "fp8") * _COUNTED[direction]
            if number > most:
                maybe = "; possible if it was causal and counted as if not" if unsaid and number <= 2 * most else ""
                yield f"{SENTENCE}: {number:,.4g} TFLOP/s measured, but its most is {most:,.0f} TFLOP/s{maybe}"
            continue
        workload = _workload(row, direction, causal)
        impossible = too_fast(number, _floor(workload, rates, precision))
        if impossible:
            half = _floor(dataclasses.replace(workload, causal=True), rates, precision)
            maybe = "; possible if it was causal, which is not stated" if unsaid and not too_fast(number, half) else ""
            yield impossible + maybe


def _floor(workload: Workload, rates: Peak, precision: str) -> Floor | None:
    """Return the floor of a table's row; in a narrow format its inputs may be narrow too, and bytes are not counted."""
    return computing(workload, rates, precision) if precision == "fp8" else shortest_ms(workload, rates)


def _readings(row: Mapping[str, str]) -> Iterator[tuple[float, bool]]:
    """Yield a row's times in ms, or where it has none its rates in TFLOP/s, and whether it is a rate."""
    if row.get("workload") == "":
        raise _NotChecked("of no workload")
    if "value" in row:
        unit = row.get("unit", "")
        if unit not in {**_UNITS_MS, **_RATES_TFLOPS}:
            raise _NotChecked(f"neither a time nor a rate: {unit or 'no unit'}")
        yield _number(row["value"]) * {**_UNITS_MS, **_RATES_TFLOPS}[unit], unit in _RATES_TFLOPS
        return
    columns = [name for name in _TIMES if row.get(name)]
    rates = [name for name in ("tflops",) if row.get(name) and not columns]
    if not columns and not rates:
        raise _NotChecked(f"no time: {row['status']}" if row.get("status") else "no time")
    yield from ((_number(row[name]), name in rates) for name in columns or rates)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise _NotChecked(f"the value is not a positive number: {text or 'empty'}")
    return number


def _direction(row: Mapping[str, str]) -> str:
    said = row.get("pass", row.get("direction", "forward")).lower().replace(" ", "")
    if said not in _DIRECTIONS:
        raise _NotChecked(f"the pass is {said!r}" if said else "the pass is not stated")
    return _DIRECTIONS[said]


def _workload(row: Mapping[str, str], direction: str, causal: bool) -> Workload:
    known = BY_NAME.get(row.get("workload", ""))
    sizes = {}
    for name in ("batch", "seq_len", "heads", "head_dim", "kv_heads"):
        text = row.get(name) or (str(getattr(known, name)) if known else "1" if name == "kv_heads" else "")
        if not text:
            raise _NotChecked(f"{name} is not stated")
        sizes[name] = int(_number(text))
    said = row.get("causal", "").lower()
    dtype = row.get("dtype", "").lower().removeprefix("torch.") or (known.dtype if known else "bfloat16")
    if dtype not in _DTYPES and not _NARROW.search(dtype):
        raise _NotChecked(f"the dtype is {dtype!r}")
    try:
        return Workload(
            name="row",
            **sizes,
            dtype=_DTYPES.get(dtype, "bfloat16"),
            causal=said in ("true", "1", "yes") if said else causal,
            direction=direction,
        )
    except ValueError as error:
        raise _NotChecked(f"no shape: {error}") from error


def _what(row: Mapping[str, str]) -> str:
    names = ("source", "table", "gpu", "implementation", "variant", "workload", "pass", "direction")
    return ", ".join(row[name] for name in names if row.get(name))


def _gpu_of_page(path: Path) -> str | None:
    """Return the name of the device that a page's own table was measured on, None where it is no page's."""
    for folder in path.resolve().parents[:3]:
        try:
            found = json.loads((folder / "records" / "device.json").read_text(encoding="utf-8"))
            return str(found["device"]["name"]) + (" MIG" if found["device"]["mig"] else "")  # a slice is not the card
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
