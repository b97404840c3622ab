"""Records -> text tables for a monospace page. Every table says its units, and of every time the regime."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from fluxbench.analysis.ranking import (
    Group,
    Ranked,
    groups,
    ranked,
    reference_variant,
    tflops,
    ties,
    timing_of,
)
from fluxbench.core.formatting import interval, number, plus_minus, reason
from fluxbench.records.schema import INPUTS, Correctness, Record
from fluxbench.report.headline import answer
from fluxbench.report.legend import MANY, everywhere, notes, of_place, of_time
from fluxbench.report.sentences import burst_order, conditions, method_note, shape
from fluxbench.report.tables.capabilities import capabilities_table, write_capabilities_csv
from fluxbench.report.tables.csv_file import write_csv
from fluxbench.report.tables.kernels import kernels_table, write_kernels_csv
from fluxbench.report.tables.state import state_table
from fluxbench.report.tables.text import grid, not_passed, prose

__all__ = [
    "answer",
    "capabilities_table",
    "correctness_table",
    "kernels_table",
    "method_note",
    "ranking_table",
    "state_table",
    "timing_table",
    "write_capabilities_csv",
    "write_csv",
    "write_kernels_csv",
]

_INTERVALS = "95% intervals in brackets or half of one after ±"
_INPUTS_NAMES = {"normal": "normal", "flux": "Flux-like"}
_KERNEL = 44  # characters of a shortened kernel name


def correctness_table(records: Iterable[Record]) -> str:
    """Return errors against the float64 reference, one row per variant and workload."""
    title = prose(
        "Errors against the float64 reference (no unit). rel L2 stands for both kinds of inputs, normal noise and "
        "Flux-like; worse: the one of the kind on which it takes more of its budget. All other numbers of a row are of "
        "that kind: its budget, used (the share of it that rel L2 takes), abs max, mean abs, MSE, cosine and NaN.",
        "So abs max, mean abs and MSE compare only between rows of the same kind; exact kernels with the same budget "
        "at the same length are.",
        "A kind with - is not recorded; older records hold the worse one alone.",
    )
    rel_l2 = [f"rel L2\n{name}" for name in (*(_INPUTS_NAMES[kind] for kind in INPUTS), "worse")]
    header = ("workload", *rel_l2, "its\nbudget", "used", "abs max", "mean abs", "MSE", "cosine", "NaN", "verdict")
    rows: list[Sequence[str] | str] = []
    for group in groups(records):
        for variant in group.variants:
            rows.append(variant + _class_note(group, variant))
            rows += [
                _correctness_row(record)
                for workload in group.workloads
                if (record := group.find(variant, workload)) is not None
            ]
    return "\n\n".join([title, grid(header, rows, left=(0, len(header) - 1))])


def _class_note(group: Group, variant: str) -> str:
    classes = {r.correctness.precision_class for r in group.records if r.variant == variant and r.correctness}
    return f"  ({', '.join(sorted(classes))})" if classes - {"exact"} else ""


def _correctness_row(record: Record) -> Sequence[str]:
    found = record.correctness
    verdict = record.status.value + (f": {reason(record.reason)}" if record.reason else "")
    name = f"  {record.workload.name}"
    if found is None:
        return (name, *("-",) * 10, verdict)
    used = "-" if found.rel_l2 is None else f"{found.rel_l2 / found.budget_rel_l2:.0%}"
    rel_l2 = [_rel_l2_on(kind, found) for kind in INPUTS]
    worse = (_error(found.rel_l2), _error(found.budget_rel_l2), used)
    errors = [_error(value) for value in (found.max_abs, found.mean_abs, found.mse)]
    cosine = "-" if found.cosine is None else f"{found.cosine:.7f}"
    return (name, *rel_l2, *worse, *errors, cosine, f"{found.nan_count}", verdict)


def _rel_l2_on(kind: str, found: Correctness) -> str:
    if kind not in found.rel_l2_by_inputs:
        return "-"
    value = found.rel_l2_by_inputs[kind]
    return "not finite" if value is None else _error(value)


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def timing_table(records: Iterable[Record]) -> str:
    """Return times in both regimes and sustained ratios by length, and what really ran at the longest."""
    parts: list[str] = []
    for group in groups(records):
        reference = reference_variant(group.records)
        title = f"{group.name}: median time per call in ms, {_INTERVALS}, by {group.axis}"
        passed = [record for record in group.records if record.timing]
        parts += [_titled(f"{title}; sustained, which ranks", conditions(passed)), _by_length(group, _time)]
        ran: list[Sequence[str] | str] = [
            (variant, *_what_ran(curve)) for variant in group.variants if (curve := group.curve(variant))
        ]
        if ran:
            heads = ("variant", "compile s", "graph breaks", "share", "dominant kernel")
            if any(record.burst for record in group.records):
                rested = _titled(f"{title}; burst, from a device at rest", conditions(passed, "burst"))
                parts += [rested, _by_length(group, _burst_time)]
            parts += [
                prose(
                    f"{group.name}: sustained time over {reference}'s (under 1 is faster), {_INTERVALS}, "
                    f"by {group.axis}"
                ),
                _by_length(group, _ratio),
                "\n".join(map(prose, notes(group.records))),
                f"{group.name}: what ran; share is of the call's device time at the longest workload that passed",
                grid(heads, ran, left=(0, 4)),
            ]
        parts.append(not_passed(group))
    return "\n\n".join(part for part in parts if part) or "There are no records."


def _titled(title: str, taken: str) -> str:
    return prose(f"{title}: {taken}" if taken else title)


def _by_length(group: Group, cell: Callable[[Record, Collection[str]], str]) -> str:
    unsigned = everywhere(group.records)
    lengths = [f"{group.length(workload):,}" for workload in group.workloads]
    rows: list[Sequence[str] | str] = []
    for variant in group.variants:
        found = (group.find(variant, workload) for workload in group.workloads)
        rows.append((variant, *("no record" if record is None else cell(record, unsigned) for record in found)))
    return grid((group.axis, *lengths), rows)


def _time(record: Record, unsigned: Collection[str]) -> str:
    if record.timing is None:
        return record.status.value
    return plus_minus(record.timing.median_ms, record.timing.ci95_ms) + of_time(record, record.timing, unsigned)


def _burst_time(record: Record, unsigned: Collection[str]) -> str:
    if record.timing is None:
        return record.status.value
    if record.burst is None:
        return "-"
    return plus_minus(record.burst.median_ms, record.burst.ci95_ms) + of_time(record, record.burst, unsigned)


def _ratio(record: Record, unsigned: Collection[str]) -> str:
    if record.timing is None:
        return record.status.value
    if record.variant == record.timing.reference_variant:
        return "reference"
    return plus_minus(record.timing.ratio, record.timing.ratio_ci95) + of_time(record, record.timing, unsigned)


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

    The sustained regime ranks; burst stands beside it. `peak_tflops`: the device's data-sheet rate for the workload's
    dtype, in TFLOP/s, None where unknown.
    """
    parts: list[str] = []
    for group in groups(records):
        places = {kind: ranked(group, group.longest, kind) for kind in ("exact", "quantized")}
        shown = [entry.record for placed in places.values() for entry in placed]
        unsigned = everywhere(shown)
        reference = reference_variant(group.records)
        peak = f"peak {peak_tflops:,.0f} TFLOP/s by data sheet" if peak_tflops else "peak unknown"
        title = f"Ranking at {shape(group)}; {peak}."
        rows: list[Sequence[str] | str] = []
        for kind, placed in places.items():
            if placed and kind == "quantized":
                rows.append("quantized: looser error budgets, so ranked apart")
            rows += [_ranking_row(entry, unsigned, peak_tflops if kind == "exact" else None) for entry in placed]
        if rows:
            of_ratio = f"Ratio: time over {reference}'s, under 1 is faster; {_INTERVALS}."
            sustained = [f"sustained\n{what}" for what in ("ratio", "ms", "TFLOP/s", "of peak")]
            heads = ("rank", "variant", *sustained, "burst\nms", "burst\nratio")
            sets = [names for placed in places.values() for names in ties(placed)]
            said = "; ".join(" = ".join(names) for names in sets)
            told = "All differences are measurable: no two intervals overlap."
            if sum(map(len, sets)) > MANY:
                told = "=: no measurable difference to others of these, 95% intervals of the sustained ratio overlap."
            elif said:
                told = f"No measurable difference (=: 95% intervals of the sustained ratio overlap): {said}."
            rule = prose(
                "Sustained ranks. A rank is one more than the number of variants that are measurably faster, so a wide "
                "interval can rank before a faster median.",
                "Each quantized kernel has an error budget of its own." if places["quantized"] else "",
            )
            below = [rule, prose(told), *map(burst_order, places.values()), *map(prose, notes(shown))]
            parts += [f"{title}\n{of_ratio}", grid(heads, rows, left=(1,)), "\n".join(filter(None, below))]
        else:
            parts += [title, "Nothing passed, so nothing is ranked."]
        parts.append(not_passed(group))
    return "\n\n".join(part for part in parts if part) or "There are no records."


def _ranking_row(entry: Ranked, unsigned: Collection[str], peak_tflops: float | None) -> Sequence[str]:
    timing, burst = timing_of(entry.record), entry.record.burst
    is_reference = entry.record.variant == timing.reference_variant
    rate = tflops(entry.record)
    return (
        f"{entry.rank or '-'}{of_place(entry, unsigned):<3}",
        entry.record.variant,
        "reference" if is_reference else interval(timing.ratio, timing.ratio_ci95),
        plus_minus(timing.median_ms, timing.ci95_ms),
        number(rate),
        f"{rate / peak_tflops:.1%}" if peak_tflops else "-",
        plus_minus(burst.median_ms, burst.ci95_ms) + of_time(entry.record, burst, unsigned) if burst else "-",
        ("reference" if is_reference else plus_minus(burst.ratio, burst.ratio_ci95)) if burst else "-",
    )
