"""Records -> figures of one row per variant: ratio to the reference, and throughput. Both at the longest workload.

Both are sustained, which ranks. Burst is a small mark beside the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fluxbench.analysis.ranking import (
    Group,
    Ranked,
    correctness_of,
    launch_bound,
    ranked,
    reference_variant,
    tflops,
    timing_of,
)
from fluxbench.core.formatting import interval, number
from fluxbench.records.schema import Record
from fluxbench.report.figures.style import look
from fluxbench.report.figures.svg import CHARACTER_PT, INK, SMALL_PT, WIDTH_PT, Block, axes, prose, tell, write_at
from fluxbench.report.legend import everywhere, late_note, named, notes, of_place
from fluxbench.report.sentences import conditions

ROW_PT = 17.0
NAME_PT = 34.0  # left end of the names
PLOT_LEFT_PT = 214.0
PLOT_RIGHT_PT = 480.0
TEXT_PT = 494.0  # left end of the numbers
_CLASSES = {
    "exact": "exact kernels",
    "quantized": "quantized kernels: looser error budgets, each its own, so ranked apart",
}


RATIO_HEADER = (
    *("workload", "precision_class", "rank", "variant", "regime", "ratio", "ratio_low", "ratio_high", "median_ms"),
    *("burst_ratio", "burst_ratio_low", "burst_ratio_high", "burst_median_ms"),
)
RATE_HEADER = ("workload", "variant", "regime", "tflops", "tflops_low", "tflops_high", "share_of_peak", "launch_bound")


def ratio_blocks(group: Group) -> list[Block]:
    """Return the parts that show each variant's time over the reference's, with its 95% interval, fastest first."""
    places = by_class(group)
    everything = [entry for entries in places.values() for entry in entries]
    if not everything:
        return []
    reference = reference_variant(group.records)
    records = [entry.record for entry in everything]
    timings = [timing for record in records for timing in (record.timing, record.burst) if timing]
    low = min(timing.ratio_ci95[0] for timing in timings)
    high = max(timing.ratio_ci95[1] for timing in timings)
    note = [
        "Left of the line is faster. Bars and their marks are sustained, which ranks: "
        f"95% intervals; {conditions(records)}. = says that one overlaps another's.",
    ]
    if any(record.burst for record in records):
        note.append(f"Small hollow diamonds are burst, from a device at rest: {conditions(records, 'burst')}.")
    note += notes(records, ("sustained",))
    unsigned = everywhere(records)
    blocks = [prose(" ".join(note), heading=f"Sustained time over {reference}'s: {place(group)}")]
    for index, (kind, entries) in enumerate(places.items(), start=1):
        if len(places) > 1:
            blocks.append(prose(_CLASSES[kind], gap=4))
        signs = [of_place(entry, unsigned) for entry in entries]
        blocks.append(_ratio_rows(entries, signs, (low, high), labelled=index == len(places), reference=reference))
    return blocks


def ratio_rows(group: Group) -> list[Sequence[object]]:
    """Return what `ratio_blocks` plots, in the columns of `RATIO_HEADER`."""
    rows: list[Sequence[object]] = []
    for kind, entries in by_class(group).items():
        for entry in entries:
            timing, burst = timing_of(entry.record), entry.record.burst
            who = (group.longest.name, kind, entry.rank, entry.record.variant, timing.regime)
            rested = (burst.ratio, *burst.ratio_ci95, burst.median_ms) if burst else ("",) * 4
            rows.append((*who, timing.ratio, *timing.ratio_ci95, timing.median_ms, *rested))
    return rows


def rate_blocks(group: Group, peak_tflops: float | None, matmul_tflops: float | None) -> list[Block]:
    """Return the parts that show each variant's throughput in TFLOP/s, against the device's rates where known."""
    entries = _fastest_first(group)
    if not entries:
        return []
    lines = {"bfloat16 peak": peak_tflops, "matmul measured": matmul_tflops}
    unknown = {
        "bfloat16 peak": "bfloat16 peak unknown: no data-sheet rate",
        "matmul measured": "matmul rate not measured",
    }
    rates = [f"{name} {number(rate)} TFLOP/s" if rate else unknown[name] for name, rate in lines.items()]
    records = [entry.record for entry in entries]
    note = (
        f"Sustained: medians and 95% intervals; {conditions(records)}. Two matrix products are counted, the softmax is "
        f"not. On this device: {'; '.join(rates)}."
    )
    if late := late_note(records):
        note += f" {late} Such rows have no interval here."
    return [prose(note, heading=f"Sustained throughput: {place(group)}"), _rate_rows(entries, lines, peak_tflops)]


def rate_rows(group: Group, peak_tflops: float | None) -> list[Sequence[object]]:
    """Return what `rate_blocks` plots, in the columns of `RATE_HEADER`."""
    rows: list[Sequence[object]] = []
    for entry in _fastest_first(group):
        share = _share(entry.record, peak_tflops)
        who = (group.longest.name, entry.record.variant, timing_of(entry.record).regime)
        rows.append((*who, *_rates(entry.record), "" if share is None else share, int(launch_bound(entry.record))))
    return rows


def by_class(group: Group) -> dict[str, list[Ranked]]:
    """Return the ranked variants at the longest workload by precision class, empty classes left out."""
    places = {kind: ranked(group, group.longest, kind) for kind in _CLASSES}
    return {kind: entries for kind, entries in places.items() if entries}


def place(group: Group) -> str:
    """Return where variants are ranked, for a heading."""
    text = f"{group.longest.text_tokens} text tokens, " if group.by_text else ""
    return f"{group.name} at {text}{group.longest.seq_len:,} in all"


def _fastest_first(group: Group) -> list[Ranked]:
    entries = [entry for places in by_class(group).values() for entry in places]
    return sorted(entries, key=lambda entry: timing_of(entry.record).median_ms)


def _share(record: Record, peak_tflops: float | None) -> float | None:
    """Return the share of the peak; None where it is unknown, or of another precision than the kernel's."""
    if not peak_tflops or correctness_of(record).precision_class != "exact":
        return None
    return tflops(record) / peak_tflops


def _rates(record: Record) -> tuple[float, float, float]:
    """Return the throughput at the median time and at the ends of its interval, in TFLOP/s, lowest end second."""
    low_ms, high_ms = timing_of(record).ci95_ms
    rate = tflops(record)
    middle_ms = timing_of(record).median_ms
    return rate, rate * middle_ms / high_ms, rate * middle_ms / low_ms


def _drawn(record: Record) -> tuple[float, float]:
    """Return the ends of the interval that is drawn of the throughput, which of a time of launching is none."""
    rate, low, high = _rates(record)
    return (rate, rate) if launch_bound(record) else (low, high)


def row_axes(figure: Any, top: float, rows: int, room_below: float) -> Any:
    """Return axes with so many rows, first on top, that leave room for the scale below them, in points."""
    height = rows * ROW_PT
    added = axes(figure, PLOT_LEFT_PT, top, PLOT_RIGHT_PT - PLOT_LEFT_PT, height)
    added.set_ylim(rows - 0.5, -0.5)
    added.yaxis.set_major_locator(FixedLocator(range(rows)))
    added.yaxis.set_major_formatter(FuncFormatter(lambda value, position: ""))
    added.grid(axis="x", alpha=0.18, linewidth=0.6)
    if not room_below:
        added.tick_params(axis="x", labelbottom=False, length=0)
    return added


def scale_x(plot: Any, low: float, high: float, unit: str) -> None:
    """Make the x-axis reach a little beyond these ends, logarithmic where they are far apart."""
    if low > 0 and high / low > 3:
        plot.set_xscale("log")
        plot.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plot.set_xlim(low / 1.12, high * 1.12)
    else:
        plot.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        plot.set_xlim(low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01)
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}{unit}"))


def baseline_of(top: float, index: int) -> float:
    """Return where the text of a row stands, in points from the figure's top."""
    return top + (index + 0.5) * ROW_PT + 0.34 * SMALL_PT


def mark_row(
    plot: Any,
    index: int,
    record: Record,
    middle: float,
    ends: tuple[float, float],
    told: str,
    start: float | None = None,
) -> None:
    """Draw a record's mark in its row, with a line over its interval or from a start, and what it tells."""
    style = look(record.variant)
    low, high = ends
    plot.plot([low if start is None else start, high], [index, index], color=style.colour, linewidth=1.6)
    shape = {"color": style.colour, "fillstyle": style.filling, "markersize": 7, "clip_on": False}
    (mark,) = plot.plot([middle], [index], style.marker, **shape)
    tell(mark, f"{named(record)}: {told}")


def _ratio_rows(
    entries: Sequence[Ranked],
    signs: Sequence[str],
    span: tuple[float, float],
    *,
    labelled: bool,
    reference: str | None,
) -> Block:
    room_below = 34.0 if labelled else 6.0

    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, top, len(entries), labelled)
        scale_x(plot, min(span[0], 1), max(span[1], 1), "×")
        plot.axvline(1, color=INK, linewidth=1.2)
        if labelled:
            and_burst = "; diamonds: burst" if any(entry.record.burst for entry in entries) else ""
            plot.set_xlabel(f"time per call over {reference}'s (sustained{and_burst})", fontsize=SMALL_PT)
        for index, entry in enumerate(entries):
            timing = timing_of(entry.record)
            told = f"{interval(timing.ratio, timing.ratio_ci95)} of {reference}'s time, sustained"
            mark_row(plot, index, entry.record, timing.ratio, timing.ratio_ci95, told)
            if burst := entry.record.burst:
                shape = {"color": INK, "fillstyle": "none", "markersize": 4.5, "clip_on": False}
                (rested,) = plot.plot([burst.ratio], [index], "d", **shape)
                tell(rested, f"{entry.record.variant}: {interval(burst.ratio, burst.ratio_ci95)}, burst")
            baseline = baseline_of(top, index)
            write_at(figure, 30, baseline, f"{entry.rank or '-'}{signs[index]}", ha="right")
            write_at(figure, NAME_PT, baseline, entry.record.variant, fontsize=SMALL_PT + 0.5)
            is_reference = entry.record.variant == reference
            ratio = "reference" if is_reference else interval(timing.ratio, timing.ratio_ci95)
            write_at(figure, TEXT_PT, baseline, ratio)
            write_at(figure, WIDTH_PT - 2, baseline, f"{number(timing.median_ms)} ms", ha="right")

    return len(entries) * ROW_PT + room_below, draw


def _rate_rows(entries: Sequence[Ranked], lines: dict[str, float | None], peak_tflops: float | None) -> Block:
    known = sorted((rate, name) for name, rate in lines.items() if rate)
    room_above = 14.0 * len(known)

    def draw(figure: Any, top: float) -> None:
        plot = row_axes(figure, top + room_above, len(entries), True)
        end = max([_drawn(entry.record)[1] for entry in entries] + [rate for rate, _ in known])
        plot.set_xlim(0, end * 1.03)
        plot.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        plot.set_xlabel("sustained TFLOP/s", fontsize=SMALL_PT)
        for index, (rate, name) in enumerate(known):
            plot.axvline(rate, color=INK, linewidth=1.2, dashes=(4, 2) if "matmul" in name else (1, 0))
            x = PLOT_LEFT_PT + (PLOT_RIGHT_PT - PLOT_LEFT_PT) * rate / (end * 1.03)
            write_at(figure, x, top + 14 * index + 8, f"{name} {number(rate)}", ha="right")
        for index, entry in enumerate(entries):
            rate, low, high = _rates(entry.record)
            told = f"{interval(rate, (low, high))} TFLOP/s, sustained"
            mark_row(plot, index, entry.record, rate, _drawn(entry.record), told, start=0)
            baseline = baseline_of(top + room_above, index)
            write_at(figure, NAME_PT, baseline, named(entry.record), fontsize=SMALL_PT + 0.5)
            write_at(figure, TEXT_PT + 9 * CHARACTER_PT, baseline, number(rate), ha="right")
            share = _share(entry.record, peak_tflops)
            kind = correctness_of(entry.record).precision_class
            said = "" if share is None else f"{share:.1%} of peak"
            write_at(figure, TEXT_PT + 13 * CHARACTER_PT, baseline, said if kind == "exact" else kind)

    return room_above + len(entries) * ROW_PT + 36, draw
