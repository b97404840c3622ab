"""Targets -> the page on which rows of any of them are chosen, sorted and compared.

The page holds all records but their samples, as columns of numbers and of places in tables of texts; `compare.js` draws
them. What may be compared follows the rule of `fingerprint.not_comparable`, from the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from fluxbench.analysis.groups import has_time, is_launch_bound, is_replayed
from fluxbench.core.formatting import reason
from fluxbench.operations.precision import QUANTIZED
from fluxbench.operations.words import describe, operation
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Workload
from fluxbench.records import method
from fluxbench.records.schema import BURST, SUSTAINED, Record, Timing
from fluxbench.report.figures.style import MARKERS, look
from fluxbench.site.collect import Target, peak_tflops
from fluxbench.site.page import page
from fluxbench.variants.forms import EAGER

_DIGITS = 6  # significant ones that the page holds of a measured number
_IDENTITY = ("device", "device_kind", "compute_capability", "mig")
_OF_CPU = ("cpu_cores", "instruction_sets")
_SOFTWARE = ("driver", "torch", "triton", "cuda", "cudnn", "python")
_TITLE = "Compare attention kernels and targets"
_ABOUT = "The address holds your selection."
_TABLES = ("target", "notebook", "variant", "workload", "status", "reason", "source", "when")
_VALUES = ("peak", "quantized", "launch_bound", "rel_l2", "energy")
_TIMES = ("ms", "low", "high", "ratio", "ratio_low", "ratio_high", "reference", "capped", "replayed")
_SCRIPTS = ("compare_data.js", "compare_chart.js", "compare.js")


def draw(targets: Sequence[Target]) -> str:
    """Return the page; without records it says so."""
    if not any(target.records for target in targets):
        return page("compare.html", title=_TITLE, about=_ABOUT)
    return page("compare.html", title=_TITLE, about=_ABOUT, scripts=_SCRIPTS, data=columns(targets))


class _Table:
    """Distinct values in the order in which they came first; a row holds the place of its own."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Hashable, int] = {}

    def place(self, key: Hashable, make: Callable[[], Any] | None = None) -> int:
        """Return the place of a value, which is made where it is new; the key itself where nothing makes one."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(make() if make else key)
        return self._places[key]


def columns(targets: Sequence[Target]) -> dict[str, Any]:
    """Return all rows as columns, and the tables that these point into."""
    columns = _Columns()
    for target in targets:
        pages = {notebook.name: notebook.page for notebook in target.notebooks}
        longest = {group.longest for notebook in target.notebooks for group in notebook.groups}
        forms = {record.variant: (record.kernel, record.form) for record in target.records}
        for record in target.records:
            columns.add(record, target.name, pages, longest, forms)
    tables = {name: table.values for name, table in columns.tables.items()}
    return {"tables": tables, "rows": columns.rows, "times": columns.times}


class _Columns:
    """All rows as columns; a text is a place in its table."""

    def __init__(self) -> None:
        self.tables = {name: _Table() for name in _TABLES}
        self.rows: dict[str, list[Any]] = {name: [] for name in (*_TABLES, *_VALUES)}
        self.times: dict[str, dict[str, list[Any]]] = {
            regime: {name: [] for name in _TIMES} for regime in (SUSTAINED, BURST)
        }

    def add(
        self,
        record: Record,
        target: str,
        pages: Mapping[str, str | None],
        longest: Collection[Workload],
        forms: Mapping[str, tuple[str, str]],
    ) -> None:
        """Append a record of a target.

        The target has these pages by notebook and workloads at which it ranks; `forms` are the kernel and form of its
        variants.
        """
        workload, tables = record.workload, self.tables
        in_16_bit = BYTES_PER_ELEMENT.get(workload.dtype) == 2 and record.precision_class != QUANTIZED
        notebook = {"name": record.notebook, "page": pages.get(record.notebook)}
        cells: dict[str, Any] = {
            "target": tables["target"].place(target, lambda: {"name": target, "longest": []}),
            "notebook": tables["notebook"].place((target, record.notebook), lambda: notebook),
            "variant": tables["variant"].place(
                record.variant, lambda: _variant(record.variant, record.kernel, record.form)
            ),
            "workload": tables["workload"].place(workload, lambda: _workload(workload)),
            "status": tables["status"].place(record.status.value),
            "reason": None if record.reason is None else tables["reason"].place(reason(record.reason)),
            "source": tables["source"].place(_source_key(record), lambda: _source(record)),
            "when": tables["when"].place(record.measured_at),
            "peak": peak_tflops(record) if in_16_bit else None,
            "quantized": int(record.precision_class == QUANTIZED),
            "launch_bound": int(is_launch_bound(record)),
            "rel_l2": _rounded(record.rel_l2),
            "energy": _rounded(record.energy_mj),
        }
        for name, cell in cells.items():
            self.rows[name].append(cell)
        ranked_at = tables["target"].values[cells["target"]]["longest"]
        if workload in longest and cells["workload"] not in ranked_at:
            ranked_at.append(cells["workload"])
        for regime, of_regime in self.times.items():
            timing = record.timings.get(regime) if has_time(record) else None
            values = (*self._time(timing, forms), int(is_replayed(record, regime))) if timing else (None,) * len(_TIMES)
            for name, value in zip(_TIMES, values, strict=True):
                of_regime[name].append(value)

    def _time(self, timing: Timing, forms: Mapping[str, tuple[str, str]]) -> tuple[Any, ...]:
        numbers = (timing.median_ms, *timing.ci95_ms, timing.ratio, *timing.ratio_ci95)
        name = timing.reference_variant
        reference = self.tables["variant"].place(name, lambda: _variant(name, *forms.get(name, (name, EAGER.name))))
        return (*map(_rounded, numbers), reference, int(timing.converged is False))


def _variant(name: str, kernel: str, form: str) -> dict[str, Any]:
    """Return a variant with its look: the number of its colour, its marker, and whether that is filled."""
    style = look(kernel, form)
    return {"name": name, "series": style.series, "path": MARKERS[style.marker], "full": style.filling == "full"}


def _workload(workload: Workload) -> dict[str, Any]:
    """Return a workload with what its rows need of it."""
    timed = operation(workload.operation)
    cost = workload.cost
    return {
        "name": workload.name,
        "shape": ", ".join(filter(None, [describe(workload), timed])),
        "flops": cost.flops,
        "bytes": cost.min_bytes,
    }


def _source_key(record: Record) -> Hashable:
    """Return what tells the source of one record from that of another."""
    fingerprint, versions = record.fingerprint, record.versions
    keys = (*_IDENTITY, *_OF_CPU, "card", "power_limit_w")
    return (record.method_version, *map(fingerprint.get, keys), *map(versions.get, _SOFTWARE))


def _source(record: Record) -> dict[str, dict[str, Any]]:
    """Return what a record was measured with, as far as comparing asks for it."""
    fingerprint, version = record.fingerprint, record.method_version
    return {
        "device": {key: _shown(fingerprint.get(key)) for key in _IDENTITY},
        "cpu": {"cpu_cores": "none"} | {key: _shown(fingerprint[key]) for key in _OF_CPU if key in fingerprint},
        "method": {
            "version": version,
            "burst": method.of_burst(version),
            "known": version != method.UNKNOWN,
            "words": method.words(version),
        },
        "card": {"id": _shown(fingerprint.get("card"))},
        "power": {"limit": _watts(fingerprint.get("power_limit_w"))},
        "software": {key: _shown(record.versions.get(key)) for key in _SOFTWARE},
    }


def _watts(limit: object) -> str:
    return f"{limit:g} W" if isinstance(limit, int | float) else _shown(limit)


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
