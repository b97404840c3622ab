"""Records -> text tables for a monospace page, and a tidy CSV. Every table says its units."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from fluxbench.formatting import interval, number, plus_minus
from fluxbench.ranking import (
    Group,
    Ranked,
    failures,
    groups,
    ranked,
    reference_variant,
    tflops,
    ties,
    timing_of,
)
from fluxbench.records import Record, Status, write_text
from fluxbench.sentences import answer, method_note, shape

__all__ = ["answer", "correctness_table", "method_note", "ranking_table", "timing_table", "write_csv"]

_WRAP = 110  # characters of a line of prose under a table
_KERNEL = 44  # characters of a shortened kernel name


def correctness_table(records: Iterable[Record]) -> str:
    """Return errors against the float64 reference, one row per variant and workload."""
    title = "Errors against the float64 reference (no unit); used: the share of the budget that rel L2 takes"
    header = ("workload", "abs max", "mean abs", "MSE", "rel L2", "budget", "used", "cosine", "NaN", "verdict")
    rows: list[Sequence[str] | str] = []
    for group in groups(records):
        for variant in group.variants:
            rows.append(variant + _class_note(group, variant))
            rows += [
                _correctness_row(record)
                for workload in group.workloads
                if (record := group.find(variant, workload)) is not None
            ]
    return "\n\n".join([title, _grid(header, rows, left=(0, 9))])


def _class_note(group: Group, variant: str) -> str:
    classes = {r.correctness.precision_class for r in group.records if r.variant == variant and r.correctness}
    return f"  ({', '.join(sorted(classes))})" if classes - {"exact"} else ""


def _correctness_row(record: Record) -> Sequence[str]:
    found = record.correctness
    verdict = record.status.value + (f": {_one_line(record.reason)}" if record.reason else "")
    name = f"  {record.workload.name}"
    if found is None:
        return (name, *("-",) * 8, verdict)
    used = "-" if found.rel_l2 is None else f"{found.rel_l2 / found.budget_rel_l2:.0%}"
    errors = [_error(value) for value in (found.max_abs, found.mean_abs, found.mse, found.rel_l2, found.budget_rel_l2)]
    cosine = "-" if found.cosine is None else f"{found.cosine:.7f}"
    return (name, *errors, used, cosine, f"{found.nan_count}", verdict)


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def timing_table(records: Iterable[Record]) -> str:
    """Return median times and ratios, variants down and lengths across, and what really ran at the longest."""
    parts: list[str] = []
    for group in groups(records):
        lengths = [f"{group.length(workload):,}" for workload in group.workloads]
        reference = reference_variant(group.records)
        times: list[Sequence[str] | str] = []
        ratios: list[Sequence[str] | str] = []
        ran: list[Sequence[str] | str] = []
        for variant in group.variants:
            found = [group.find(variant, workload) for workload in group.workloads]
            times.append((variant, *map(_time, found)))
            ratios.append((variant, *map(_ratio, found)))
            curve = group.curve(variant)
            if curve:
                ran.append((variant, *_what_ran(curve)))
        parts += [
            f"{group.name}: median time per call in ms ± half its 95% interval, by {group.axis}",
            _grid((group.axis, *lengths), times),
        ]
        if ran:
            heads = ("variant", "compile s", "graph breaks", "share", "dominant kernel")
            parts += [
                f"{group.name}: time over {reference}'s (under 1 is faster) ± half its 95% interval, by {group.axis}",
                _grid((group.axis, *lengths), ratios),
                f"{group.name}: what ran; share is of the call's device time at the longest workload that passed",
                _grid(heads, ran, left=(0, 4)),
            ]
        parts.append(_not_passed(group))
    return "\n\n".join(part for part in parts if part) or "There are no records."


def _time(record: Record | None) -> str:
    if record is None or record.timing is None:
        return record.status.value if record else "no record"
    return plus_minus(record.timing.median_ms, record.timing.ci95_ms)


def _ratio(record: Record | None) -> str:
    if record is None or record.timing is None:
        return record.status.value if record else "no record"
    if record.variant == record.timing.reference_variant:
        return "reference"
    return plus_minus(record.timing.ratio, record.timing.ratio_ci95)


def _what_ran(curve: Sequence[Record]) -> Sequence[str]:
    """Return compile seconds, graph breaks, share and name of the dominant kernel of a variant's longest workload."""
    last = curve[-1]
    compiled = [record.compile_s for record in curve if record.compile_s is not None]
    seconds = f"{max(compiled):.1f}" if compiled else "-"
    breaks = "-" if last.graph_breaks is None else f"{last.graph_breaks}"
    if not last.kernels:
        return (seconds, breaks, "-", "not profiled")
    names = [max(record.kernels, key=lambda kernel: kernel.share).name for record in curve if record.kernels]
    others = len(set(names) - {names[-1]})
    more = f" (and {others} other{'s' if others > 1 else ''} at other lengths)" if others else ""
    share = max(kernel.share for kernel in last.kernels)
    return (seconds, breaks, f"{share:.0%}", short_kernel(names[-1]) + more)


def short_kernel(name: str) -> str:
    """Return a kernel's name without return type, namespaces and arguments, cut where it is still too long.

    >>> short_kernel("void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t, 128>(pytorch_flash::Params)")
    'flash_fwd_kernel<bfloat16_t, 128>'
    """
    text = re.sub(r"\([^()]*\)$", "", name.replace("(anonymous namespace)::", ""))
    text = re.sub(r"\b\w+::", "", text).removeprefix("void ")
    if len(text) <= _KERNEL:
        return text
    # Of a template its first parameters tell most, of a generated name its beginning and its end.
    return f"{text[: _KERNEL - 1]}…" if "<" in text else f"{text[: _KERNEL - 16]}…{text[-15:]}"


def ranking_table(records: Iterable[Record], peak_tflops: float | None = None) -> str:
    """Return who is faster than whom at the longest workload, ties said; below it, what has no rank and why.

    `peak_tflops`: the device's data-sheet rate for the workload's dtype, in TFLOP/s, None where unknown.
    """
    parts: list[str] = []
    for group in groups(records):
        places = {kind: ranked(group, group.longest, kind) for kind in ("exact", "quantized")}
        reference = reference_variant(group.records)
        peak = f"peak {peak_tflops:,.0f} TFLOP/s by data sheet" if peak_tflops else "peak unknown"
        parts.append(f"Ranking at {shape(group)}; {peak}.")
        rows: list[Sequence[str] | str] = []
        for kind, entries in places.items():
            if entries and kind == "quantized":
                rows.append("quantized: a looser error budget, so ranked apart")
            rows += [_ranking_row(entry, peak_tflops if kind == "exact" else None) for entry in entries]
        if rows:
            heads = ("rank", "variant", f"time over {reference}'s", "median ms", "TFLOP/s", "of peak")
            parts.append(_grid(heads, rows, left=(1,)))
            sets = [names for entries in places.values() for names in ties(entries)]
            said = "; ".join(" = ".join(names) for names in sets)
            told = f"No measurable difference (=: 95% intervals of the ratio overlap): {said}." if said else ""
            told = told or "All differences are measurable: no two intervals overlap."
            rule = "A rank is one more than the number of variants that are measurably faster."
            parts.append(f"{rule}\n{textwrap.fill(told, _WRAP)}")
        else:
            parts.append("Nothing passed, so nothing is ranked.")
        parts.append(_not_passed(group))
    return "\n\n".join(part for part in parts if part) or "There are no records."


def _ranking_row(entry: Ranked, peak_tflops: float | None) -> Sequence[str]:
    timing = timing_of(entry.record)
    is_reference = entry.record.variant == timing.reference_variant
    rate = tflops(entry.record)
    return (
        f"{entry.rank}{'=' if entry.tied else ' '}",
        entry.record.variant,
        "reference" if is_reference else interval(timing.ratio, timing.ratio_ci95),
        interval(timing.median_ms, timing.ci95_ms, digits=4),
        number(rate),
        f"{rate / peak_tflops:.1%}" if peak_tflops else "-",
    )


def _not_passed(group: Group) -> str:
    """Return what did not pass, one entry per reason; empty where all passed."""
    found = failures(group)
    if not found:
        return ""
    lines = [f"Did not pass ({group.name}):"]
    for failure in found:
        if len(failure.workloads) == len(group.workloads):
            where = "everywhere"
        else:
            where = f"at {', '.join(f'{group.length(workload):,}' for workload in failure.workloads)} {group.axis}"
        for indent, text in (
            ("  ", f"{failure.status.value} {where}: {failure.reason}"),
            ("      ", ", ".join(failure.variants)),
        ):
            lines += textwrap.wrap(
                text, _WRAP, initial_indent=indent, subsequent_indent="      ", break_long_words=False
            )
    wrong = {variant for failure in found if failure.status is Status.INCORRECT for variant in failure.variants}
    if any(group.curve(variant) for variant in wrong):
        lines.append("  A variant that is INCORRECT at any length has no rank at the others.")
    return "\n".join(lines)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _grid(header: Sequence[str], rows: Sequence[Sequence[str] | str], left: Sequence[int] = (0,)) -> str:
    """Return aligned columns below a header and a rule; a row that is a text stands across all columns."""
    cells = [header, *(row for row in rows if not isinstance(row, str))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        aligned = (
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    rule = "  ".join("─" * min(width, _KERNEL) for width in widths)
    return "\n".join([line(header), rule, *(row if isinstance(row, str) else line(row) for row in rows)])


def write_csv(records: Iterable[Record], path: Path) -> None:
    """Write one row per record: identification, status, correctness, timing and throughput. Raises `OSError`.

    Units end the columns' names; what a record does not hold is empty.
    """
    frame = pd.DataFrame([_flat(record) for record in records], columns=list(_COLUMNS)).convert_dtypes()
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


_IDENTIFICATION = ("notebook", "cell", "variant", "status", "reason", "measured_at")
_SHAPE = ("seq_len", "text_tokens", "batch", "heads", "kv_heads", "head_dim", "dtype", "causal", "direction")
_CORRECTNESS = ("rel_l2", "max_abs", "mean_abs", "mse", "cosine", "nan_count", "budget_rel_l2", "precision_class")
_TIMING = ("regime", "processes", "median_ms", "reference_variant", "ratio")
_DERIVED = ("samples", "ci95_low_ms", "ci95_high_ms", "ratio_low", "ratio_high", "tflops")
_BURST = ("burst_median_ms", "burst_ci95_low_ms", "burst_ci95_high_ms")
_TELEMETRY = ("sm_clock_mhz", "power_w", "temperature_c")
_COST = ("energy_mj", "peak_memory_bytes", "compile_s", "graph_breaks")
_COLUMNS = (
    *(*_IDENTIFICATION[:3], "workload", *_SHAPE, *_IDENTIFICATION[3:], *_CORRECTNESS, *_TIMING, *_DERIVED, *_BURST),
    *(*_TELEMETRY, *_COST, "dominant_kernel", "driver"),
)


def _flat(record: Record) -> dict[str, object]:
    row: dict[str, object] = {"workload": record.workload.name, "driver": record.versions.get("driver")}
    for part, fields in (
        (record, _IDENTIFICATION + _COST),
        (record.workload, _SHAPE),
        (record.correctness, _CORRECTNESS),
        (record.timing, _TIMING),
        (record.telemetry, _TELEMETRY),
    ):
        row |= {field: getattr(part, field) for field in fields if part is not None}
    if record.timing:
        numbers = (len(record.timing.samples_ms), *record.timing.ci95_ms, *record.timing.ratio_ci95, tflops(record))
        row |= zip(_DERIVED, numbers, strict=True)
    if record.burst:
        row |= zip(_BURST, (record.burst.median_ms, *record.burst.ci95_ms), strict=True)
    if record.kernels:
        row["dominant_kernel"] = max(record.kernels, key=lambda kernel: kernel.share).name
    return row
