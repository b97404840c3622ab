"""Targets -> the page on which rows of any of them are chosen, sorted and held against each other.

The page holds all records but their samples, as columns of numbers and of places in tables of texts; `compare.js` draws
them. What can be compared follows the rule of `fingerprint.not_comparable`, from the same fields.
"""

from __future__ import annotations

import html
from collections.abc import Hashable, Sequence
from typing import Any

from fluxbench.analysis.ranking import launch_bound
from fluxbench.core.formatting import reason
from fluxbench.operations.workloads import Workload
from fluxbench.records.fingerprint import method
from fluxbench.records.schema import Record, Timing
from fluxbench.report.figures.style import COLOURS, look
from fluxbench.site.chart import MARKERS
from fluxbench.site.collect import Target, peak_tflops
from fluxbench.site.page import asset, data, page

_DIGITS = 6  # significant ones that the page holds of a measured number
_IDENTITY = ("device", "device_kind", "compute_capability", "mig")
_SOFTWARE = ("driver", "torch", "triton", "cuda", "cudnn", "python")
_TITLE = "Compare attention kernels and targets"
_ABOUT = "Choose targets, variants, workload and regime. The choice is in the address, so that it can be sent."


def draw(targets: Sequence[Target]) -> str:
    """Return the page; without records it says so."""
    if not any(target.records for target in targets):
        body = (
            f"<h1>{_TITLE}</h1>\n<p>There is nothing to compare: no records under <code>reports/</code> can be shown. "
            '<a href="index.html">What there is</a>.</p>'
        )
        return page("compare.html", _TITLE, _ABOUT, body)
    body = asset("compare.html").format(title=_TITLE, about=html.escape(_ABOUT))
    scripts = [asset(name) for name in ("compare_data.js", "compare_chart.js", "compare.js")]
    return page("compare.html", _TITLE, _ABOUT, body, scripts=scripts, embedded=data(columns(targets)))


class _Table:
    """Distinct values in the order in which they came first; a row holds the place of its own."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Hashable, int] = {}

    def place(self, key: Hashable, value: Any = None) -> int:
        """Return the place of a value, which is the key itself where none is given."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(key if value is None else value)
        return self._places[key]


def columns(targets: Sequence[Target]) -> dict[str, Any]:
    """Return all rows as columns, and the tables that these point into."""
    names = ("target", "notebook", "variant", "workload", "status", "reason", "source", "when")
    tables = {name: _Table() for name in names}
    rows: dict[str, list[Any]] = {
        name: [] for name in (*names, "peak", "quantized", "late", "rel_l2", "budget", "energy")
    }
    times: dict[str, dict[str, list[Any]]] = {
        regime: {name: [] for name in ("ms", "low", "high", "ratio", "from", "to", "reference", "capped")}
        for regime in ("sustained", "burst")
    }
    for target in targets:
        pages = {notebook.name: notebook.page for notebook in target.notebooks}
        longest = {group.longest for notebook in target.notebooks for group in notebook.groups}
        for record in target.records:
            checked = record.correctness
            workload = record.workload
            places = {
                "target": tables["target"].place(target.name, {"name": target.name, "longest": []}),
                "notebook": tables["notebook"].place(
                    (target.name, record.notebook), {"name": record.notebook, "page": pages.get(record.notebook)}
                ),
                "variant": tables["variant"].place(record.variant, _variant(record.variant)),
                "workload": tables["workload"].place(workload, _workload(workload)),
                "status": tables["status"].place(record.status.value),
                "reason": None if record.reason is None else tables["reason"].place(reason(record.reason)),
                "source": tables["source"].place(*_source(record)),
                "when": tables["when"].place(record.measured_at),
            }
            for name, place in places.items():
                rows[name].append(place)
            if workload in longest:
                tables["target"].values[rows["target"][-1]]["longest"].append(places["workload"])
                longest.discard(workload)
            quantized = checked is not None and checked.precision_class != "exact"
            in_16_bit = workload.dtype != "float32" and not quantized
            rows["peak"].append(peak_tflops(record) if in_16_bit else None)
            rows["quantized"].append(int(quantized))
            rows["late"].append(int(launch_bound(record)))
            rows["rel_l2"].append(_rounded(checked.rel_l2) if checked else None)
            rows["budget"].append(_rounded(checked.budget_rel_l2) if checked else None)
            rows["energy"].append(_rounded(record.energy_mj))
            for regime, timing in (("sustained", record.timing), ("burst", record.burst)):
                _add(times[regime], timing, tables["variant"])
    found = {name: table.values for name, table in tables.items()}
    return {"tables": found, "rows": rows, "times": times}


def _add(columns: dict[str, list[Any]], timing: Timing | None, variants: _Table) -> None:
    """Append a time to the columns of its regime, nothing at all where there is none."""
    if timing is None:
        for column in columns.values():
            column.append(None)
        return
    reference = variants.place(timing.reference_variant, _variant(timing.reference_variant))
    numbers = (timing.median_ms, *timing.ci95_ms, timing.ratio, *timing.ratio_ci95)
    values = (*map(_rounded, numbers), reference, int(timing.precise is False))
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)


def _variant(name: str) -> dict[str, Any]:
    """Return a variant with its look: the number of its colour, its marker, and whether that is filled."""
    style = look(name)
    series = COLOURS.index(style.colour) + 1
    return {"name": name, "series": series, "path": MARKERS[style.marker], "full": style.filling == "full"}


def _workload(workload: Workload) -> dict[str, Any]:
    """Return a workload with what its rows need of it."""
    sizes = [f"{workload.seq_len:,} tokens", f"{workload.heads} heads of {workload.head_dim}", workload.dtype]
    sizes += ["causal"] * workload.causal + [f"batch {workload.batch}"] * (workload.batch > 1)
    sizes += [workload.direction.replace("_", " and ")] * (workload.direction != "forward")
    return {"name": workload.name, "shape": ", ".join(sizes), "flops": workload.flops}


def _source(record: Record) -> tuple[Hashable, dict[str, Any]]:
    """Return what a record was measured with, as far as comparing asks for it, behind a key of the same."""
    found = record.fingerprint
    parts = {
        "device": {key: _shown(found.get(key)) for key in _IDENTITY},
        "cores": {"cpu_cores": _shown(found.get("cpu_cores"))},
        "measuring": {"sha256": _shown(found.get("measuring_sha256"))},
        "method": {file: _shown(content) for file, content in method(found).items()},
        "power": {"limit": _watts(found.get("power_limit_w"))},
        "software": {key: _shown(record.versions.get(key)) for key in _SOFTWARE},
    }
    return tuple(tuple(part.values()) for part in parts.values()), parts


def _watts(limit: object) -> str:
    return f"{limit:g} W" if isinstance(limit, int | float) else _shown(limit)


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
