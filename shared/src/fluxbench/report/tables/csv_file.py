"""Records -> a tidy CSV (pandas): one row per record, both regimes side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fluxbench.analysis.ranking import tflops
from fluxbench.records.schema import INPUTS, Record, write_text

_IDENTIFICATION = ("notebook", "cell", "variant", "status", "reason", "measured_at")
_SHAPE = ("seq_len", "text_tokens", "batch", "heads", "kv_heads", "head_dim", "dtype", "causal", "direction")
_CORRECTNESS = ("rel_l2", "max_abs", "mean_abs", "mse", "cosine", "nan_count", "budget_rel_l2", "precision_class")
_BY_INPUTS = tuple(f"rel_l2_{kind}" for kind in INPUTS)
_TIMING = ("regime", "processes", "median_ms", "reference_variant", "ratio", "set_aside", "precise")
_DERIVED = ("samples", "ci95_low_ms", "ci95_high_ms", "ratio_low", "ratio_high")
_TELEMETRY = ("sm_clock_mhz", "power_w", "temperature_c")
_ENERGY = ("energy_ci95_low_mj", "energy_ci95_high_mj")
_COST = ("energy_mj", "launch_ms", "device_s", "peak_memory_bytes", "compile_s", "graph_breaks")
_STATE = (*_TELEMETRY, "throttle_reasons")
_BURST = tuple(f"burst_{name}" for name in ("median_ms", "ci95_low_ms", "ci95_high_ms"))
_BURST_MORE = tuple(
    f"burst_{name}" for name in ("ratio", "ratio_low", "ratio_high", "processes", "samples", "set_aside", "precise")
)
_COLUMNS = (
    *(*_IDENTIFICATION[:3], "workload", *_SHAPE, *_IDENTIFICATION[3:], *_CORRECTNESS, *_BY_INPUTS),
    *(*_TIMING, *_DERIVED, "tflops", *_BURST, *_BURST_MORE),
    *(*_STATE, *(f"burst_{name}" for name in _STATE), *_COST[:1], *_ENERGY, *_COST[1:]),
    *("clock_difference", "marks", "dominant_kernel", "driver"),
)


def write_csv(records: Iterable[Record], path: Path) -> None:
    """Write one row per record: identification, status, correctness, both regimes, state and cost. Raises `OSError`.

    Units end the columns' names; what a record does not hold is empty. Columns of times and ratios are of the regime
    that `regime` names, those that begin with `burst_` of bursts.
    """
    frame = pd.DataFrame([_flat(record) for record in records], columns=list(_COLUMNS)).convert_dtypes()
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def _flat(record: Record) -> dict[str, object]:
    row: dict[str, object] = {"workload": record.workload.name, "driver": record.versions.get("driver")}
    for part, fields in (
        (record, _IDENTIFICATION + _COST),
        (record.workload, _SHAPE),
        (record.correctness, _CORRECTNESS),
    ):
        row |= {field: getattr(part, field) for field in fields if part is not None}
    if record.correctness:
        by_inputs = record.correctness.rel_l2_by_inputs
        row |= {column: by_inputs.get(kind) for column, kind in zip(_BY_INPUTS, INPUTS, strict=True)}
    for prefix, timing, telemetry in (
        ("", record.timing, record.telemetry),
        ("burst_", record.burst, record.burst_telemetry),
    ):
        if timing:
            numbers = (len(timing.samples_ms), *timing.ci95_ms, *timing.ratio_ci95)
            row |= {prefix + field: getattr(timing, field) for field in _TIMING}
            row |= {prefix + field: value for field, value in zip(_DERIVED, numbers, strict=True)}
        if telemetry:
            row |= {prefix + field: getattr(telemetry, field) for field in _TELEMETRY}
            row[f"{prefix}throttle_reasons"] = "; ".join(telemetry.throttle_reasons) or None
    if record.timing:
        row["tflops"] = tflops(record)
    if record.energy_ci95_mj:
        row |= zip(_ENERGY, record.energy_ci95_mj, strict=True)
    if record.second_clock:
        row["clock_difference"] = record.second_clock.difference
    row["marks"] = "; ".join(record.marks) or None
    if record.kernels:
        row["dominant_kernel"] = max(record.kernels, key=lambda kernel: kernel.share).name
    return row
