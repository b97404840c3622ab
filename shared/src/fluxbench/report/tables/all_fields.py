"""Records as one wide table: a row per record and output, both regimes side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluxbench.analysis.groups import gb_s, ranking_regime, tflops
from fluxbench.records.schema import BURST, Errors, Record
from fluxbench.report.flags import all_words
from fluxbench.report.tables import Rows, ends, estimate_cells, time_cells
from fluxbench.stats.intervals import Estimate

_WHO = ("notebook", "cell", "variant", "kernel", "form", "precision_class")
_WORKLOAD = ("operation", "group", "x", "x_unit", "ranks")
_OUTCOME = ("status", "reason", "measured_at", "method_version")
_ERRORS = (
    *("rel_l2", "max_abs", "mean_abs", "mse", "cosine", "nan_count", "budget_rel_l2"),
    *("head_budget_share", "row_budget_share"),
)
_TIMING = (
    *(
        "processes",
        "samples",
        "statistic",
        "median_ms",
        "ci95_low_ms",
        "ci95_high_ms",
        "ratio",
        "ratio_low",
        "ratio_high",
    ),
    *("discarded", "converged", "sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"),
)
_COST = ("energy_mj", "launch_ms", "device_s", "peak_memory_bytes", "compile_s", "graph_breaks")
_LAST = ("cupti_difference", "flags", "dominant_kernel", "driver")


def all_fields(records: Sequence[Record]) -> Rows:
    """Return one row per record and output, the header first; a record without errors has one row.

    Units end the columns' names; what a record does not hold is None. Columns of times, ratios and telemetry are of the
    regime that `regime` names, those that begin with `burst_` of bursts.
    """
    import pandas as pd  # 0.3 s, that no other table needs

    flat = [_flat(record, output) for record in records for output in record.errors or (None,)]
    shape = dict.fromkeys(name for record in records for name in record.workload.shape)
    kinds = dict.fromkeys(name for row in flat for name in row if name.startswith("rel_l2_"))
    columns = [
        *(*_WHO, "workload", *_WORKLOAD, *shape, *_OUTCOME, "output", *_ERRORS, *kinds),
        *("regime", "reference_variant", *_TIMING, "tflops", "gb_s", *(f"burst_{name}" for name in _TIMING)),
        *(*_COST[:1], "energy_ci95_low_mj", "energy_ci95_high_mj", *_COST[1:], *_LAST),
    ]
    frame = pd.DataFrame(flat, columns=columns).convert_dtypes().astype(object)
    return [columns, *frame.where(frame.notna(), None).itertuples(index=False, name=None)]


def _flat(record: Record, output: str | None) -> dict[str, object]:
    workload, regime = record.workload, ranking_regime([record])
    row: dict[str, object] = {name: getattr(record, name) for name in (*_WHO, *_OUTCOME, *_COST)}
    row |= {name: getattr(workload, name) for name in _WORKLOAD} | dict(workload.shape)
    row |= {"workload": workload.name, "output": output, "driver": record.versions.get("driver")}
    if output is not None:
        row |= _of_errors(record.errors[output])
    row |= _of_regime(record, regime)
    row |= {f"burst_{name}": value for name, value in _of_regime(record, BURST).items()}
    if record.timing:
        row |= {"regime": regime, "reference_variant": record.timing.reference_variant}
        row |= {"tflops": tflops(record), "gb_s": gb_s(record)}
    if record.energy_ci95_mj:
        row["energy_ci95_low_mj"], row["energy_ci95_high_mj"] = record.energy_ci95_mj
    row["cupti_difference"] = record.cupti.difference if record.cupti else None
    row["flags"] = _joined(all_words(record))
    row["dominant_kernel"] = max(record.kernels, key=lambda kernel: kernel.share).name if record.kernels else None
    return row


def _of_errors(errors: Errors) -> dict[str, object]:
    by_inputs = {f"rel_l2_{kind}": value for kind, value in errors.rel_l2_by_inputs.items()}
    return {name: getattr(errors, name) for name in _ERRORS} | by_inputs


def _of_regime(record: Record, regime: str) -> dict[str, object]:
    row: dict[str, object] = {}
    if timing := record.timings.get(regime):
        row = {
            "processes": timing.processes,
            "samples": timing.count,
            "statistic": timing.statistic,
            **dict(zip(("median_ms", "ci95_low_ms", "ci95_high_ms"), time_cells(timing), strict=True)),
            **dict(zip(ends("ratio"), estimate_cells(Estimate(timing.ratio, *timing.ratio_ci95)), strict=True)),
            "discarded": timing.discarded,
            "converged": timing.converged,
        }
    if state := record.telemetry.get(regime):
        row |= {name: getattr(state, name) for name in ("sm_clock_mhz", "power_w", "temperature_c")}
        row["throttle_reasons"] = _joined(state.throttle_reasons)
    return row


def _joined(texts: Iterable[str]) -> str | None:
    return "; ".join(texts) or None
