"""Whether a record's telemetry, energy and flags can be those of its samples, on its device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean, median

from fluxbench.analysis.verification.cell import Cell, Sampled
from fluxbench.analysis.verification.origin import device_of
from fluxbench.analysis.verification.problem import Findings, Kind, finding
from fluxbench.analysis.verification.rebuilt import Expected
from fluxbench.device.peaks import peak
from fluxbench.records.method import EACH_PROFILES
from fluxbench.records.schema import BURST, CUPTI_AGREES_WITHIN, SUSTAINED, Record
from fluxbench.records.status import FlagKind, Status

_TEMPERATURES_C = (0, 120)
_OVER_LIMIT = 1.15  # of the power limit: a card exceeds it for less than a driver's mean
_SAME_POWER = 0.25  # by which the energy counter and the driver's power, a mean over a second, differ
_CLOCK = 0.1  # by which a median over readings and one over samples differ
_EQUAL = 1e-6  # relative
_SHARE = 2e-4  # by which a share differs that was rounded to four decimals
_MOST_COMPILE_S = 3600.0
_READS = (("sm_clock_mhz", _CLOCK), ("temperature_c", 0.2))


def of_record(record: Record, cell: Cell) -> Findings:
    """Yield what a record says of the device that cannot be, or that its own fields contradict."""
    if record.status is not Status.PASSED:
        return
    limits = _limits(record, cell)
    for regime, state in record.telemetry.items():
        for name, (least, most) in limits.items():
            value = getattr(state, name)
            if value is not None and not least <= value <= most:
                yield finding(Kind.TELEMETRY, regime=regime, name=name, least=least, most=most, got=value)
    if record.sustained and record.energy_mj is not None:
        loaded = record.telemetry.get(SUSTAINED)
        expected = ((loaded and loaded.power_w) or 0.0) * record.sustained.median_ms
        low, high = record.energy_ci95_mj or (record.energy_mj, record.energy_mj)
        if abs(record.energy_mj / expected - 1) > _EQUAL if expected else True:
            rule = f"be the power times the sustained time, {expected:.6g} mJ"
            yield finding(Kind.COST, name="energy_mj", rule=rule, got=record.energy_mj)
        elif not low <= record.energy_mj <= high:
            yield finding(Kind.COST, name="energy_ci95_mj", rule="hold the energy", got=f"{low:.6g} to {high:.6g}")
    yield from _costs(record, cell)
    yield from _own_flags(record)


def _limits(record: Record, cell: Cell) -> dict[str, tuple[float, float]]:
    rates = peak(device_of(record))
    clocks = [float(rates.limits.sm_clock_mhz)] if rates else []
    own = cell.device.sm_clock_max_mhz if cell.device else None
    clocks += [float(own)] if own is not None and not clocks else []
    found = {"temperature_c": (float(_TEMPERATURES_C[0]), float(_TEMPERATURES_C[1]))}
    if clocks:
        found["sm_clock_mhz"] = (1.0, clocks[0])
    limit_w = record.fingerprint.get("power_limit_w")
    if isinstance(limit_w, int | float) and limit_w:
        found["power_w"] = (0.0, _OVER_LIMIT * limit_w)
    return found


def _costs(record: Record, cell: Cell) -> Findings:
    memory = cell.device.memory_bytes if cell.device else None
    needed = {"peak_memory_bytes": record.peak_memory_bytes}
    needed["memory"] = record.memory.total_bytes if record.memory else None
    for name, taken in needed.items():
        if taken is not None and memory is not None and taken > memory:
            rule = f"not exceed the device's memory, {memory:,} bytes"
            yield finding(Kind.COST, name=name, rule=rule, got=taken)
    if record.compile_s is not None and record.compile_s > _MOST_COMPILE_S:
        rule = f"be at most {_MOST_COMPILE_S:,.0f} s, longer than a cell may take"
        yield finding(Kind.COST, name="compile_s", rule=rule, got=record.compile_s)
    if record.cupti and record.cupti.kernels_ms > record.cupti.span_ms * (1 + CUPTI_AGREES_WITHIN):
        yield finding(Kind.COST, name="kernels_ms", rule="not exceed the span of the kernels", got="a longer sum")


def _own_flags(record: Record) -> Findings:
    """Yield flags that the fields of a record do not bear out, and those that they ask for."""
    on_gpu = device_of(record).kind != "cpu"
    differs = record.cupti.difference if record.cupti else 0.0
    if not record.burst:  # method versions 1 and 2
        return
    asked: Mapping[FlagKind, bool] = {
        FlagKind.EARLY: False,  # of a page that was not finished
        FlagKind.CUPTI_DIFFERS: abs(differs) > CUPTI_AGREES_WITHIN,
        FlagKind.NO_ENERGY: on_gpu and record.sustained is not None and record.energy_mj is None,
    }
    for kind, is_asked in asked.items():
        flag = record.flagged(kind)
        if is_asked and not flag:
            yield finding(Kind.NO_FLAG, flag=kind.value, why=f"{differs:+.1%}" if differs else "it has none")
        elif flag and not is_asked:
            yield finding(Kind.FLAG, flag=kind.value, expected="none", got=flag.value)
    no_cupti = record.flagged(FlagKind.NO_CUPTI)
    if no_cupti and record.cupti:
        yield finding(Kind.FLAG, flag=no_cupti.kind.value, expected="none", got=no_cupti.value)
    in_rows = record.flagged(FlagKind.REPLAYED, regime=BURST)
    if not (no_cupti or record.cupti or in_rows) and record.kernels:
        # A study may profile some workloads alone, and none whose calls are samples in rows.
        yield finding(Kind.NO_FLAG, flag=FlagKind.NO_CUPTI.value, why="it has none")
    flag = record.flagged(FlagKind.CUPTI_DIFFERS)
    if flag and flag.value is not None and abs(flag.value - differs) > 0.002:
        yield finding(Kind.FLAG, flag=flag.kind.value, expected=f"{differs:.4f}", got=flag.value)


def against_samples(record: Record, cell: Cell, expected: Mapping[str, Expected]) -> Findings:
    """Yield what a record says of the device that is not as at its samples."""
    series = cell.by_pair.get((record.variant, record.workload.name), [])
    on_gpu = device_of(record).kind != "cpu"
    bursts = [one for one in series if one.regime == BURST]
    if on_gpu and record.cupti and bursts:
        first = min(bursts, key=lambda one: one.process)
        expected_ms = median(first.samples_ms)
        if abs(record.cupti.events_ms / expected_ms - 1) > 1e-5:
            yield finding(Kind.COST, name="events_ms", rule=f"be {expected_ms:.6g}", got=record.cupti.events_ms)
    limits = _limits(record, cell)
    for regime, state in record.telemetry.items():
        those = [one for one in series if one.regime == regime]
        for name, (least, most) in limits.items():
            values = [value for one in those for value in getattr(one, name) if value is not None]
            if values and not least <= min(values) <= max(values) <= most:
                got = max(values) if max(values) > most else min(values)
                yield finding(Kind.TELEMETRY, regime=regime, name=name, least=least, most=most, got=got)
                return
        for name, within in _READS:
            if (got := getattr(state, name)) is None:
                continue
            ranked = _ranked(those, name)
            if ranked and not min(ranked) * (1 - within) <= got <= max(ranked) * (1 + within):
                yield finding(Kind.TELEMETRY, regime=regime, name=name, least=min(ranked), most=max(ranked), got=got)
        reasons = {reason for one in those for reason in chain.from_iterable(filter(None, one.throttle_reasons))}
        if unseen := set(state.throttle_reasons) - reasons:
            yield finding(Kind.FLAG, flag="throttle_reasons", expected="those of samples", got=", ".join(unseen))
    loaded = [one for one in series if one.regime == SUSTAINED]
    watts = _ranked(loaded, "power_w")
    state_ = record.telemetry.get(SUSTAINED)
    if (
        watts
        and state_
        and state_.power_w
        and not (min(watts) * (1 - _SAME_POWER) <= state_.power_w <= max(watts) * (1 + _SAME_POWER))
    ):
        yield finding(
            Kind.TELEMETRY, regime=SUSTAINED, name="power_w", least=min(watts), most=max(watts), got=state_.power_w
        )
    yield from _profiled(record, bursts)
    yield from _discarded(record, series, expected)
    yield from _counted(record, series, on_gpu)


def _ranked(series: Iterable[Sampled], name: str) -> list[float]:
    return [
        value
        for one in series
        for value, ranked in zip(getattr(one, name), one.ranked, strict=False)
        if ranked and value is not None
    ]


def _profiled(record: Record, bursts: Sequence[Sampled]) -> Findings:
    """Yield a flag that does not count the processes of which it is not known which kernels ran, where some told it."""
    told = [bool(one.kernels) for one in bursts]
    if record.method_version < EACH_PROFILES or not any(told):
        return
    silent, flag = told.count(False), record.flagged(FlagKind.NOT_PROFILED)
    if silent and not flag:
        yield finding(Kind.NO_FLAG, flag=FlagKind.NOT_PROFILED.value, why=f"{silent} processes")
    elif flag and flag.value != silent:
        yield finding(Kind.FLAG, flag=flag.kind.value, expected=silent or "none", got=flag.value)


def _discarded(record: Record, series: Sequence[Sampled], expected: Mapping[str, Expected]) -> Findings:
    """Yield a share of discarded samples that is not that of the series, or none where some were discarded."""
    for regime in record.timings:
        affected = [one for one in series if one.regime == regime and any(one.off)]
        flag = record.flagged(FlagKind.DISCARDED, regime=regime)
        is_reference = regime in expected and record.variant == expected[regime].reference_variant
        share = sum(sum(one.off) for one in affected) / sum(len(one.off) for one in affected) if affected else 0.0
        if affected and not flag:
            yield finding(Kind.NO_FLAG, flag=FlagKind.DISCARDED.value, why=f"{share:.1%} of its {regime} samples")
        elif (
            flag
            and regime == BURST
            and flag.value is not None
            and abs(flag.value - share) > _SHARE
            and not is_reference
        ):
            yield finding(Kind.FLAG, flag=flag.kind.value, expected=f"{share:.4f}", got=flag.value)


def _counted(record: Record, series: Sequence[Sampled], on_gpu: bool) -> Findings:
    """Yield a flag whose count of processes is not that of the blocks, where these say what it counts."""
    blocks = [(one, one.ahead_ms) for one in series if one.settled is not None and one.ahead_ms is not None]
    launched = [one.launched_ms for one in series if one.launched_ms is not None]
    if not (blocks or launched) or record.variant in {one.reference for one in series}:  # it has several in a process
        return
    asked = {
        FlagKind.NOT_SETTLED: sum(not one.settled for one, _ in blocks),
        FlagKind.LAUNCH_BOUND: sum(ahead_ms < median(one.samples_ms) for one, ahead_ms in blocks) if on_gpu else 0,
    }
    for kind, count in asked.items():
        flag = record.flagged(kind)
        filled = kind is FlagKind.LAUNCH_BOUND and record.is_filled  # which old records did not ask
        if count and not flag and not filled:
            yield finding(Kind.NO_FLAG, flag=kind.value, why=f"{count} processes")
        elif flag and flag.value != count:
            yield finding(Kind.FLAG, flag=kind.value, expected=count or "none", got=flag.value)
    flag, mean_ms = record.flagged(FlagKind.REPLAYED), round(fmean(launched), 6) if launched else None
    replayed = sum(one.replayed or one.launched_ms is not None for one in series)
    if replayed and not flag:
        yield finding(Kind.NO_FLAG, flag=FlagKind.REPLAYED.value, why=f"{replayed} processes")
    elif flag and not (replayed and _is_mean(flag.value, mean_ms)):
        yield finding(Kind.FLAG, flag=flag.kind.value, expected=mean_ms or "none", got=flag.value)


def _is_mean(value: float | None, mean_ms: float | None) -> bool:
    """Whether a flag's time is the mean of those that are known: none, where no process has one."""
    if value is None or mean_ms is None:
        return value is None and mean_ms is None
    return abs(value / mean_ms - 1) <= _SHARE
