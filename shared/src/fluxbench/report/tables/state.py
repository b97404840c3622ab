"""Records -> what the device was doing while it was measured, what a call costs beside its time, and what is marked."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from fluxbench.analysis.ranking import Group, capped, clocks_differ, groups, timing_of
from fluxbench.analysis.remarks import Mark, marks
from fluxbench.core.formatting import number, percent, plus_minus
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import CLOCKS_AGREE, Record, Status, Telemetry, Timing
from fluxbench.report.legend import MANY
from fluxbench.report.sentences import PRECISE, shape
from fluxbench.report.tables.text import WRAP, entries, grid, prose

UNKNOWN = "-"  # what the device did not say
_CLOCKS = re.compile(r"the two clocks differ by ([+-]?[\d.]+)%")  # as measuring marks it

# Where a column's numbers come from. The first sensors are those that a fluxbench without bursts asked, too.
_FIRST_SENSOR, _SENSOR, _LAUNCH, _CLOCK, _OTHER = "first sensor", "sensor", "launch", "clock", "other"
_Column = tuple[str, str, Callable[[Record], str]]  # heading, where its number comes from, and its cell


def state_table(records: Iterable[Record]) -> str:
    """Return the device's state and a call's cost at the longest workload, one row per variant, and all marks."""
    parts: list[str] = []
    for group in groups(records):
        shown = [record for record in group.records if record.workload == group.longest]
        shown = [record for record in shown if record.status is Status.PASSED]
        shown.sort(key=lambda record: (timing_of(record).ratio, record.variant))
        if shown:
            parts += [
                f"State of the device at {shape(group)}:\nmedians while the samples were taken.",
                grid(("variant", *_heads(_STATE)), _rows(_STATE, shown), left=(0, len(_STATE))),
                f"Beside the time of a call: energy, launch, a second clock, and how it was sampled ({group.name}).",
                grid(("variant", *_heads(_COST)), _rows(_COST, shown)),
                _WORDS,
                _unknown(shown),
            ]
        else:
            parts.append(f"Nothing passed at {shape(group)}, so nothing is known of the device's state there.")
        parts.append(_marked(group))
    return "\n\n".join(part for part in parts if part) or "There are no records."


def _marked(group: Group) -> str:
    passed = [record for record in group.records if record.status is Status.PASSED]
    found = [
        (mark.text, "", _named(mark, passed), mark.workloads)
        for mark in marks(group)
        if not _CLOCKS.fullmatch(mark.text)
    ]
    clocks = _clocks(passed)
    if found or clocks:
        title = f"Marked, since something was not as it should be ({group.name}):"
        return "\n".join([*entries(group, title, found), *clocks])
    return f"Nothing is marked ({group.name})." if passed else ""


def _named(mark: Mark, passed: Sequence[Record]) -> Sequence[str]:
    """Return the variants of a mark, or which are not where these are few against those."""
    there: dict[str, set[Workload]] = {}
    for record in passed:
        there.setdefault(record.variant, set()).add(record.workload)
    could = [variant for variant, workloads in there.items() if workloads.issuperset(mark.workloads)]
    others = [variant for variant in could if variant not in mark.variants]
    if len(mark.variants) <= MANY or 3 * len(others) > len(mark.variants):
        return mark.variants
    but = f" but {others[0]}" if others else ""
    return [f"all of the {len(could)} that passed there{but}", *others[1:]]


def _clocks(passed: Sequence[Record]) -> list[str]:
    """Return all marks of clocks that differ in one entry: how far, and of each variant of how many records."""
    found = [
        (record.variant, said[1]) for record in passed for text in record.marks if (said := _CLOCKS.fullmatch(text))
    ]
    if not found:
        return []
    ends = sorted({percent for _, percent in found}, key=float)
    span = " to ".join(f"{percent}%" for percent in dict.fromkeys((ends[0], ends[-1])))
    line = f"the two clocks differ by {span}, in {len(found)} of {len(passed)} records:"
    counts = Counter(variant for variant, _ in found)
    listed = ", ".join(f"{variant}\u00a0({count})" if count > 1 else variant for variant, count in counts.items())
    lines = textwrap.wrap(listed, WRAP, initial_indent=" " * 6, subsequent_indent=" " * 6, break_long_words=False)
    return [f"  {line}", *(each.replace("\u00a0", " ") for each in lines)]


def _mhz(telemetry: Telemetry | None) -> str:
    return UNKNOWN if telemetry is None or telemetry.sm_clock_mhz is None else f"{telemetry.sm_clock_mhz:,.0f}"


def _watt(telemetry: Telemetry | None) -> str:
    return UNKNOWN if telemetry is None or telemetry.power_w is None else f"{telemetry.power_w:,.0f}"


def _celsius(telemetry: Telemetry | None) -> str:
    return UNKNOWN if telemetry is None or telemetry.temperature_c is None else f"{telemetry.temperature_c:.0f}"


def _throttled(record: Record) -> str:
    """Return what held the clock back; unknown where the device said nothing else either."""
    if _mhz(record.telemetry) == _watt(record.telemetry) == _celsius(record.telemetry) == UNKNOWN:
        return UNKNOWN
    reasons = {
        regime: ", ".join(telemetry.throttle_reasons) if telemetry else ""
        for regime, telemetry in (("sustained", record.telemetry), ("burst", record.burst_telemetry))
    }
    return "; ".join(f"{regime}: {text}" for regime, text in reasons.items() if text) or "none"


def _energy(record: Record) -> str:
    if record.energy_mj is None:
        return UNKNOWN
    if record.energy_ci95_mj is None:
        return number(record.energy_mj)
    return plus_minus(record.energy_mj, record.energy_ci95_mj)


def _launch(record: Record) -> str:
    if record.launch_ms is None or _on_cpu(record):
        return UNKNOWN
    return number(1e3 * record.launch_ms)


def _on_cpu(record: Record) -> bool:
    return record.fingerprint.get("device_kind") == "cpu"


def _second_clock(record: Record) -> str:
    if record.second_clock is None:
        return UNKNOWN
    difference = record.second_clock.difference
    return f"differ by {percent(abs(difference))}" if clocks_differ(record) else percent(difference)


def _samples(timing: Timing | None) -> str:
    return f"{len(timing.samples_ms):,} / {timing.set_aside:,}" if timing else UNKNOWN


def _precise(record: Record) -> str:
    if found := capped(record):
        return "cap" if found == ("sustained",) else f"cap ({', '.join(found)})"
    asked = any(timing and timing.precise is not None for timing in (record.timing, record.burst))
    return "yes" if asked else UNKNOWN


_STATE: tuple[_Column, ...] = (
    ("sustained\nMHz", _FIRST_SENSOR, lambda record: _mhz(record.telemetry)),
    ("sustained\nW", _FIRST_SENSOR, lambda record: _watt(record.telemetry)),
    ("sustained\n°C", _FIRST_SENSOR, lambda record: _celsius(record.telemetry)),
    ("burst\nMHz", _SENSOR, lambda record: _mhz(record.burst_telemetry)),
    ("burst\nW", _SENSOR, lambda record: _watt(record.burst_telemetry)),
    ("throttle reasons", _FIRST_SENSOR, _throttled),
)
_COST: tuple[_Column, ...] = (
    ("sustained\nmJ a call", _SENSOR, _energy),
    ("burst host\nlaunch µs", _LAUNCH, _launch),
    ("second\nclock", _CLOCK, _second_clock),
    ("processes", _OTHER, lambda record: f"{timing_of(record).processes}"),
    ("sustained samples\ncounted / aside", _OTHER, lambda record: _samples(record.timing)),
    ("burst samples\ncounted / aside", _OTHER, lambda record: _samples(record.burst)),
    ("precise", _OTHER, _precise),
    ("device\ns", _OTHER, lambda record: UNKNOWN if record.device_s is None else number(record.device_s, 2)),
)
_WORDS = prose(
    "MHz: the SM clock. Host launch: what the host takes to launch one call, apart from the time on the device, in"
    " burst: back to back the host is faster.",
    f"Second clock: by how much the time lies outside of what torch's profiler saw; up to {percent(CLOCKS_AGREE, 0)}"
    " the clocks agree.",
    "Aside: samples that are kept and do not count, taken while settling or out of the regime.",
    f"Precise: {PRECISE}; cap: the caps of time and processes came before.",
    "Device s: what measuring the row took of the device.",
)


def _heads(columns: Sequence[_Column]) -> list[str]:
    return [head for head, _, _ in columns]


def _rows(columns: Sequence[_Column], shown: Sequence[Record]) -> list[Sequence[str] | str]:
    return [(record.variant, *(cell(record) for _, _, cell in columns)) for record in shown]


def _unknown(shown: Sequence[Record]) -> str:
    """Return why whole columns are empty, and what an empty cell is; empty where nothing is unknown."""
    columns = (*_STATE, *_COST)
    empty = [
        (head.replace("\n", " "), source)
        for head, source, cell in columns
        if all(cell(record) == UNKNOWN for record in shown)
    ]
    if not empty:
        some = any(cell(record) == UNKNOWN for record in shown for _, _, cell in columns)
        return f"{UNKNOWN}: not known of this row." if some else ""
    together: dict[str, list[str]] = {}
    for head, source in empty:
        together.setdefault(_why(source, shown), []).append(head)
    said = [f"{', '.join(heads)}: {why}." for why, heads in together.items()]
    return prose(f"{UNKNOWN} is what is not known.", *said)


def _why(source: str, shown: Sequence[Record]) -> str:
    on_cpu = all(map(_on_cpu, shown))
    if on_cpu and source in (_FIRST_SENSOR, _SENSOR):
        return "no sensor of a CPU is read"
    if source != _FIRST_SENSOR and all(record.burst is None for record in shown):
        return "an older fluxbench measured this, and did not ask"
    return {
        _FIRST_SENSOR: "the driver did not tell, or NVML may not be asked here",
        _SENSOR: "the driver did not tell, or NVML may not be asked here",
        _LAUNCH: "on a CPU the call is the work itself" if on_cpu else "not measured",
        _CLOCK: "torch's profiler recorded nothing, or may not",
        _OTHER: "not asked",
    }[source]
