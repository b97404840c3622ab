"""Records -> figures: SVG files for the inside of a page, and beside each a CSV of the numbers that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fluxbench.analysis.history import Timeline
from fluxbench.analysis.ranking import Group, groups, timing_of
from fluxbench.core.formatting import number
from fluxbench.records.schema import Record, Status
from fluxbench.report.figures import cost as plots_cost
from fluxbench.report.figures import frontier as plots_frontier
from fluxbench.report.figures import history as plots_history
from fluxbench.report.figures import lines as plots_lines
from fluxbench.report.figures import rows as plots_rows
from fluxbench.report.figures.svg import Block, prose, write_figure
from fluxbench.report.legend import late_note, named


def latency(records: Iterable[Record], svg_path: Path) -> None:
    """Draw the sustained latency in ms of every variant against the workload's length. Raises `OSError`."""
    rows: list[Sequence[object]] = [plots_lines.HEADER]
    found = groups(records)
    for group in found:
        rows += plots_lines.rows(group)
    _write(svg_path, found, "Sustained latency of each variant", plots_lines.blocks, rows)


def ranking(records: Iterable[Record], svg_path: Path) -> None:
    """Draw every variant's time over the reference's at the longest workload, fastest sustained first; burst beside it.

    Raises `OSError`.
    """
    rows: list[Sequence[object]] = [plots_rows.RATIO_HEADER]
    found = groups(records)
    for group in found:
        rows += plots_rows.ratio_rows(group)
    _write(svg_path, found, "Sustained time of each variant over the reference's", plots_rows.ratio_blocks, rows)


def throughput(
    records: Iterable[Record], svg_path: Path, peak_tflops: float | None, matmul_tflops: float | None
) -> None:
    """Draw every variant's sustained TFLOP/s at the longest workload against what the device can do. Raises `OSError`.

    `peak_tflops` is the data-sheet rate of the workload's dtype and `matmul_tflops` what a matrix product reached on
    this device, both in TFLOP/s, None where unknown.
    """
    rows: list[Sequence[object]] = [plots_rows.RATE_HEADER]
    rows.append(("", "data-sheet peak", "", peak_tflops or "", "", "", "", ""))
    rows.append(("", "matmul measured", "", matmul_tflops or "", "", "", "", ""))
    found = groups(records)
    for group in found:
        rows += plots_rows.rate_rows(group, peak_tflops)

    def blocks(group: Group) -> list[Block]:
        return plots_rows.rate_blocks(group, peak_tflops, matmul_tflops)

    _write(svg_path, found, "Sustained throughput of each variant in TFLOP/s", blocks, rows)


def frontier(records: Iterable[Record], svg_path: Path) -> None:
    """Draw every kernel's error against its sustained time at the longest workload. Raises `OSError`."""
    rows: list[Sequence[object]] = [plots_frontier.HEADER]
    found = groups(records)
    for group in found:
        rows += plots_frontier.rows(group)
    _write(svg_path, found, "Error of each kernel against its sustained time", plots_frontier.blocks, rows)


def energy(records: Iterable[Record], svg_path: Path) -> None:
    """Draw the energy in mJ of one sustained call of every variant at the longest workload. Raises `OSError`."""
    rows: list[Sequence[object]] = [plots_cost.ENERGY_HEADER]
    found = groups(records)
    for group in found:
        rows += plots_cost.energy_rows(group)
    _write(svg_path, found, "Energy of a sustained call of each variant", plots_cost.energy_blocks, rows)


def parts(records: Iterable[Record], svg_path: Path) -> None:
    """Draw on what the time of one call of every variant is spent at the longest workload. Raises `OSError`."""
    rows: list[Sequence[object]] = [plots_cost.PARTS_HEADER]
    found = groups(records)
    for group in found:
        rows += plots_cost.parts_rows(group)
    _write(svg_path, found, "What one call's time is spent on, for each variant", plots_cost.parts_blocks, rows)


def history(timelines: Sequence[Timeline], svg_path: Path) -> None:
    """Draw every kernel's sustained time in ms at the longest workload over drivers and libraries. Raises `OSError`."""
    rows: list[Sequence[object]] = [plots_history.HEADER]
    blocks: list[Block] = []
    for timeline in timelines:
        rows += plots_history.rows(timeline)
        blocks += plots_history.blocks(timeline)
    description = " ".join(map(plots_history.summary, timelines))
    write_figure(svg_path, blocks, "Time of each kernel over drivers and libraries", description, rows)


def _write(
    svg_path: Path,
    found: Sequence[Group],
    title: str,
    blocks_of: Callable[[Group], list[Block]],
    rows: Sequence[Sequence[object]],
) -> None:
    blocks: list[Block] = []
    for group in found:
        drawn = blocks_of(group)
        missing = _missing(group)
        if not drawn:
            blocks.append(prose(missing, heading=f"Nothing passed: {group.name}"))
        else:
            blocks += [*drawn, prose(missing, gap=12)]
    if not blocks:
        blocks.append(prose("There are no records to draw.", heading="Nothing passed"))
    write_figure(svg_path, blocks, title, " ".join(_summary(group) for group in found) or "Nothing passed.", rows)


def _missing(group: Group) -> str:
    """Return which variants did not pass everywhere, and how that ended; empty where all passed."""
    endings = {
        variant: sorted({r.status.value for r in group.records if r.variant == variant} - {Status.PASSED.value})
        for variant in group.variants
    }
    together: dict[str, list[str]] = {}
    for variant, statuses in endings.items():
        if statuses:
            together.setdefault(", ".join(statuses), []).append(variant)
    parts = [f"{statuses} {', '.join(variants)}" for statuses, variants in together.items()]
    return f"Did not pass at every length (the tables say why): {'; '.join(parts)}." if parts else ""


def _summary(group: Group) -> str:
    """Return what the figure shows of a group, for a reader who does not see it."""
    entries = [entry for places in plots_rows.by_class(group).values() for entry in places]
    if not entries:
        return f"{group.name}: nothing passed."
    medians = [
        f"{named(entry.record)} {number(timing_of(entry.record).median_ms)} ms "
        f"({timing_of(entry.record).ratio:.2f} of the reference)"
        for entry in entries
    ]
    shown = f"{plots_rows.place(group)}, fastest first, sustained: {', '.join(medians)}."
    return " ".join(filter(None, (shown, late_note(entry.record for entry in entries), _missing(group))))
