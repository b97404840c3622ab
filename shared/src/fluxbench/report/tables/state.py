"""What the device was doing while it was measured, what a call costs beside its time, and all flags."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fluxbench.analysis.failures import passed
from fluxbench.analysis.groups import Group, capped_regimes, groups, timing_of
from fluxbench.core.formatting import count, number, percent, plus_minus
from fluxbench.records.schema import BURST, CUPTI_AGREES_WITHIN, SUSTAINED, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Block, Column, Fold, Paragraph, Row, Table
from fluxbench.report.legend import name
from fluxbench.report.results import Results
from fluxbench.report.sentences import PRECISION, conditions, shape, title
from fluxbench.report.tables.flagged import flagged

_OPEN = 6  # groups that stand one after the other
_UNKNOWN = "-"
_Cell = Callable[[Record], str | None]  # None: unknown


@dataclass(frozen=True)
class _Column:
    """A column: its heading, its cells, and why it is empty where it is so on a GPU and on a CPU."""

    head: str
    cell: _Cell
    why: str
    why_on_cpu: str
    in_old_records: bool = False  # before there were bursts
    of_sensor: bool = False
    of_sustained: bool = False
    left: bool = False


def blocks(results: Results) -> list[Block]:
    """Return the device's state and a call's cost at each group's longest workload, and all flags.

    Of many groups those after the first ones are in a fold.
    """
    on_cpu = results.device.kind == "cpu"
    found = groups(results.records)
    could_run = [group for group in found if any(each.status is not Status.UNSUPPORTED for each in group.records)]
    of_groups = [[*_of_group(group, on_cpu)] for group in could_run or found]
    first, rest = ([*itertools.chain(*some)] for some in (of_groups[:_OPEN], of_groups[_OPEN:]))
    folded = [Fold(f"The same for {len(of_groups) - _OPEN} other groups of workloads", rest)] if rest else []
    return [*first, *folded] or [Paragraph("There are no records.")]


def _of_group(group: Group, on_cpu: bool) -> Iterator[Block]:
    records = [record for record in passed(group) if record.workload == group.longest]
    records.sort(key=lambda record: (timing_of(record).ratio, record.variant))
    if not records:
        yield Paragraph(f"Nothing passed at {shape(group)}, so nothing is known of the device's state there.")
    else:
        beside = f"Beside the time of a call: what it costs, and how it was sampled ({title(group)})"
        device = _table(_STATE, records, f"State of the device at {shape(group)}: medians while the samples were taken")
        cost = _table(_COST, records, beside, [_LINE, _WORDS, *_unknown(records, on_cpu)])
        yield Paragraph(" ".join([f"{title(group)}: {conditions(records)}.", *_out_of_regime(passed(group))]))
        yield Fold(f"State of the device, and what a call costs, for {count(len(records), 'variant')}", [device, cost])
    yield from flagged(group)


def _out_of_regime(records: Sequence[Record]) -> Iterator[str]:
    """Yield how many rows are of another state of the device than their regime's; nothing where none is."""
    flags = [flag for record in records for flag in record.flags]
    kept = Counter((flag.regime, flag.detail) for flag in flags if flag.kind is FlagKind.KEPT_OUT_OF_REGIME)
    for (regime, detail), times in kept.items():
        why = f" ({detail})" if detail else ""
        yield (
            f"In {times} of {len(records)} rows half or more of a process's {regime} samples were out of the regime"
            f"{why}, and kept."
        )
    if unsettled := sum(record.flagged(FlagKind.NOT_SETTLED) is not None for record in records):
        yield f"In {unsettled} of {len(records)} rows the speed did not settle in a process or more."


def _table(columns: Sequence[_Column], records: Sequence[Record], caption: str, notes: Sequence[str] = ()) -> Table:
    return Table(
        columns=[Column("variant", left=True), *(Column(column.head, column.left) for column in columns)],
        rows=[
            Row((name(record.variant), *(column.cell(record) or _UNKNOWN for column in columns))) for record in records
        ],
        caption=caption,
        notes=notes,
    )


def _telemetry(regime: str, field: str) -> _Cell:
    def cell(record: Record) -> str | None:
        state = record.telemetry.get(regime)
        value = getattr(state, field) if state else None
        return None if value is None else f"{value:,.0f}"

    return cell


def _throttled(record: Record) -> str | None:
    """Return what held the clock back; unknown where the device reported nothing else either."""
    readings = ("sm_clock_mhz", "power_w", "temperature_c")
    if all(getattr(state, field) is None for state in record.telemetry.values() for field in readings):
        return None
    states = {regime: record.telemetry[regime] for regime in (SUSTAINED, BURST) if regime in record.telemetry}
    reasons = [f"{regime}: {', '.join(s.throttle_reasons)}" for regime, s in states.items() if s.throttle_reasons]
    return "; ".join(reasons) or "none"


def _energy(record: Record) -> str | None:
    if record.energy_mj is None:
        return None
    ends = record.energy_ci95_mj
    return plus_minus(record.energy_mj, ends) if ends else number(record.energy_mj)


def _cupti(record: Record) -> str | None:
    if record.cupti is None:
        return None
    difference = record.cupti.difference
    return percent(difference) if abs(difference) <= CUPTI_AGREES_WITHIN else f"differs by {percent(abs(difference))}"


def _samples(regime: str) -> _Cell:
    def cell(record: Record) -> str | None:
        timing = record.timings.get(regime)
        return f"{timing.count:,} / {timing.discarded:,}" if timing else None

    return cell


def _converged(record: Record) -> str | None:
    if capped := capped_regimes(record):
        return "no" if capped == (SUSTAINED,) else f"no ({', '.join(capped)})"
    return None if all(timing.converged is None for timing in record.timings.values()) else "yes"


_sensor = partial(
    _Column,
    why="the driver does not report it, or NVML is not available",
    why_on_cpu="no sensor of a CPU is read",
    of_sensor=True,
)
_measured = partial(_Column, why="not measured", why_on_cpu="not measured")
_STATE = (
    _sensor("sustained\nMHz", _telemetry(SUSTAINED, "sm_clock_mhz"), of_sustained=True, in_old_records=True),
    _sensor("sustained\nW", _telemetry(SUSTAINED, "power_w"), of_sustained=True, in_old_records=True),
    _sensor("sustained\n°C", _telemetry(SUSTAINED, "temperature_c"), of_sustained=True, in_old_records=True),
    _sensor("burst\nMHz", _telemetry(BURST, "sm_clock_mhz")),
    _sensor("burst\nW", _telemetry(BURST, "power_w")),
    _sensor("throttle reasons", _throttled, in_old_records=True, left=True),
)
_COST = (
    _sensor("sustained\nmJ a call", _energy, of_sustained=True),
    _Column(
        "burst host\nlaunch µs",
        lambda record: None if record.launch_ms is None else number(1e3 * record.launch_ms),
        why="not measured",
        why_on_cpu="on a CPU the call is the work itself",
    ),
    _Column("CUPTI\ncross-check", _cupti, *("torch's profiler recorded nothing, or is not permitted",) * 2),
    _measured("processes", lambda record: f"{timing_of(record).processes}"),
    _measured("sustained samples\nkept / discarded", _samples(SUSTAINED), of_sustained=True),
    _measured("burst samples\nkept / discarded", _samples(BURST)),
    _measured("converged", _converged),
    _measured("device\ns", lambda record: None if record.device_s is None else number(record.device_s, 2)),
)
_LINE = f"Converged: yes where the intervals are as narrow as asked for. {_UNKNOWN}: not known."
_WORDS = (
    "MHz: the SM clock. Host launch: what the host takes to launch one call, apart from the time on the device, in "
    "burst: back to back the host is faster. CUPTI cross-check: by how much the time lies outside of what torch's "
    f"profiler saw; up to {percent(CUPTI_AGREES_WITHIN, 0)} the two agree. "
    "Discarded: samples that are not ranked, taken while settling or out of the regime. "
    f"Converged: {PRECISION}; no: the limits of time and processes came before. "
    "Device s: what measuring the row took of the device."
)


def _unknown(records: Sequence[Record], on_cpu: bool) -> Iterator[str]:
    """Yield why whole columns are empty, and what an empty cell is; nothing where all is known."""
    columns = (*_STATE, *_COST)
    empty = [column for column in columns if all(column.cell(record) is None for record in records)]
    if not empty:
        if any(column.cell(record) is None for record in records for column in columns):
            yield f"{_UNKNOWN}: unknown of this row."
        return
    is_old = all(record.burst is None for record in records)
    in_burst_alone = all(record.sustained is None for record in records)
    together: dict[str, list[str]] = {}
    for column in empty:
        why = column.why_on_cpu if on_cpu else column.why
        if is_old and not column.in_old_records and not (on_cpu and column.of_sensor):
            why = "measured by an older fluxbench, without this field"
        elif column.of_sustained and in_burst_alone and not on_cpu:
            why = "measured in burst alone"
        together.setdefault(why, []).append(column.head.replace("\n", " "))
    reasons = (f"{', '.join(heads)}: {why}." for why, heads in together.items())
    yield " ".join([f"{_UNKNOWN} is what is unknown.", *reasons])
