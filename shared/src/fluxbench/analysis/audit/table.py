"""A row of somebody's table: its readings, its GPU and the call that was measured, as far as the row states them."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench import operations
from fluxbench.core.files import read_regular
from fluxbench.operations import sets
from fluxbench.operations.workload import Cost, Workload

_MOST_BYTES = 256 << 20
_LARGEST = 10**12  # of a size
_TIMES = ("median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms")
_UNITS_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ns": 1e-6}
_UNITS_TFLOPS = {"TFLOP/s": 1.0, "TFLOPS": 1.0, "TFLOPs/s": 1.0, "GFLOP/s": 1e-3, "PFLOP/s": 1e3}
_DIRECTIONS = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward",
    "forward+backward": "forward_backward", "forward_backward": "forward_backward", "fwd+bwd": "forward_backward",
}  # fmt: skip
_OPERATIONS = {
    "forward": ("attention",),
    "backward": ("attention_backward",),
    "forward_backward": ("attention", "attention_backward"),
}
_DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "fp32": "float32", "float": "float32", "tf32": "float32",
}  # fmt: skip
_NARROW = re.compile(r"(fp|float|int|nvfp|mxfp)[48]|e4m3|e5m2|quant|sage", re.IGNORECASE)
# A column -> the fields of an attention's shape that it gives.
_COLUMNS = {
    "batch": ("batch",),
    "seq_len": ("seq_len_q", "seq_len_k"),
    "heads": ("heads",),
    "head_dim": ("head_dim_qk", "head_dim_v"),
    "kv_heads": ("kv_heads",),
}


class NotChecked(Exception):
    """A row cannot be judged; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A measured number: a time, or a rate where `is_rate`."""

    value: float  # ms, or TFLOP/s
    is_rate: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a CSV. What it does not state is one key head, 16 bits and the forward pass.

    The shape of a `workload` that is known by name need not be stated.
    """

    line: int  # of the file, from 1
    cells: Mapping[str, str]

    @property
    def label(self) -> str:
        """The row's own words for what was measured."""
        names = ("source", "table", "gpu", "implementation", "variant", "workload", "pass", "direction")
        return ", ".join(self.cells[name] for name in names if self.cells.get(name))

    @property
    def gpu(self) -> str | None:
        """The name of the GPU; None where the row does not state it."""
        return self.cells.get("gpu") or self.cells.get("device") or None

    @property
    def is_narrow(self) -> bool:
        """Whether it names a format of 8 or 4 bits, in its dtype or in the implementation's name."""
        names = ("dtype", "precision_class", "implementation", "variant")
        return bool(_NARROW.search(" ".join(self.cells.get(name, "") for name in names)))

    @property
    def states_causal(self) -> bool:
        """Whether it states whether the call was causal, by itself or by a known workload."""
        return bool(self.cells.get("causal")) or self._known is not None

    @property
    def direction(self) -> str:
        """Which passes were measured: "forward", "backward" or "forward_backward". Raises `NotChecked`."""
        of_known = "backward" if self._known and self._known.operation == "attention_backward" else "forward"
        stated = self.cells.get("pass", self.cells.get("direction", of_known)).lower().replace(" ", "")
        if stated not in _DIRECTIONS:
            raise NotChecked(f"the pass is {stated!r}" if stated else "the pass is not stated")
        return _DIRECTIONS[stated]

    def readings(self) -> list[Reading]:
        """Return its times, or its rates where it has no times. Raises `NotChecked` where it has neither."""
        if self.cells.get("workload") == "":
            raise NotChecked("of no workload")
        if "value" in self.cells:
            unit = self.cells.get("unit", "")
            factor = _UNITS_MS.get(unit) or _UNITS_TFLOPS.get(unit)
            if factor is None:
                raise NotChecked(f"neither a time nor a rate: {unit or 'no unit'}")
            return [Reading(value=_number(self.cells["value"]) * factor, is_rate=unit in _UNITS_TFLOPS)]
        times = [name for name in _TIMES if self.cells.get(name)]
        if not times and not self.cells.get("tflops"):
            raise NotChecked(f"no time: {self.cells['status']}" if self.cells.get("status") else "no time")
        return [Reading(value=_number(self.cells[name]), is_rate=not times) for name in times or ("tflops",)]

    def workload(self, *, causal: bool) -> Workload:
        """Return the call that was measured. Raises `NotChecked` where the row does not state its shape.

        `causal` counts where the row does not state it. Two passes together move at least the bytes of one of them.
        """
        shape: dict[str, int | float | bool | str] = {
            **self._sizes(),
            "dtype": self._dtype(),
            "causal": self._is_causal(causal),
        }
        try:
            passes = [
                operations.workload(name, "row", shape, group="row", x=1, x_unit="row")
                for name in _OPERATIONS[self.direction]
            ]
        except ValueError as error:
            raise NotChecked(f"no shape: {error}") from error
        cost = Cost(
            flops=sum(one.cost.flops for one in passes),
            min_flops=sum(one.cost.min_flops for one in passes),
            min_bytes=min(one.cost.min_bytes for one in passes),
        )
        return dataclasses.replace(passes[0], cost=cost)

    @property
    def _known(self) -> Workload | None:
        return sets.by_name().get(self.cells.get("workload", ""))

    def _sizes(self) -> dict[str, int]:
        sizes = {}
        for column, fields in _COLUMNS.items():
            for field in fields:
                known = self._known.shape.get(field) if self._known else 1 if field == "kv_heads" else None
                text = self.cells.get(column) or ("" if known is None else str(known))
                if not text:
                    raise NotChecked(f"{column} is not stated")
                sizes[field] = _size(column, text)
        return sizes

    def _is_causal(self, unless_stated: bool) -> bool:
        if stated := self.cells.get("causal", "").lower():
            if stated not in ("true", "1", "yes", "false", "0", "no"):
                raise NotChecked(f"causal is {stated!r}, neither true nor false")
            return stated in ("true", "1", "yes")
        return bool(self._known.shape.get("causal")) if self._known else unless_stated

    def _dtype(self) -> str:
        known = self._known.dtype if self._known else "bfloat16"
        dtype = self.cells.get("dtype", "").lower().removeprefix("torch.") or known
        if dtype not in _DTYPES and not _NARROW.search(dtype):
            raise NotChecked(f"the dtype is {dtype!r}")
        return _DTYPES.get(dtype, "bfloat16")


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV. Raises `OSError`, `csv.Error`, and `ValueError` where it is no text or has no header."""
    text = read_regular(Path(os.path.realpath(path)), _MOST_BYTES).decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    names = reader.fieldnames or ()
    if not names or any(map(_is_number, names)):
        raise ValueError(f"its first line must name the columns, got {','.join(names)[:80] or 'none'}")
    for cells in reader:
        texts = {name: (text or "").strip() for name, text in cells.items() if isinstance(name, str)}
        yield Row(line=reader.line_num, cells=texts)


def _number(text: str) -> float:
    number = float(text) if _is_number(text) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise NotChecked(f"the value is not a positive number: {text or 'empty'}")
    return number


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _size(column: str, text: str) -> int:
    number = _number(text)
    if number != math.floor(number) or number > _LARGEST:
        raise NotChecked(f"{column} is not a whole number up to {_LARGEST:,}: {text}")
    return int(number)
