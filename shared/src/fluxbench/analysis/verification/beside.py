"""Whether what lies beside records is of the same device, and can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

import msgspec

from fluxbench.analysis.verification.cell import CONTROL, Cell, Sampled
from fluxbench.analysis.verification.origin import device_of, registered
from fluxbench.analysis.verification.problem import Finding, Findings, Kind, finding
from fluxbench.analysis.verification.times import equal
from fluxbench.device.model import Device
from fluxbench.device.peaks import peak
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import BURST, Record
from fluxbench.variants._base import YES, Variant

_SAME_CYCLES = 0.02  # by which the control kernel's cycles differ between cells of one model of device: up to 1.2%
_LEAST_TIMES = 10  # of a cell: the clock moves during long calls, beside which the control kernel runs once a process
_FULL = 0.995  # of the highest clock of a cell
_LONG_MS = 10.0  # of a call
_LEAST_CELLS = 3  # of which the middle is known to be none's own


def of_cell(cell: Cell) -> Findings:
    """Yield what is wrong with a cell as a whole."""
    yield from cell.damaged
    of_prints: dict[str, set[str]] = {}
    for own, versions, measured_at, method_version in _provenances(cell.records):
        named = {**own, "measured_at": measured_at, "method_version": method_version}
        named |= {f"version of {name}": value for name, value in versions.items()}
        for key, value in named.items():
            of_prints.setdefault(key, set()).add(str(value))
    for key, values in of_prints.items():
        if len(values) > 1:
            yield finding(Kind.SEVERAL, what=key, got=" and ".join(sorted(values)))
    first = next((record for record in cell.records if record.fingerprint.get("device")), None)
    if first is None:
        return
    if cell.device is not None:
        yield from _device_file(cell.device, first)
    if cell.rates is not None:
        yield from _rates(cell.rates, first)
    for name, found in (cell.capabilities or {}).items():
        yield from _capabilities(name, found)
    yield from _control(cell)


def _provenances(records: Iterable[Record]) -> list[tuple[Fingerprint, Mapping[str, str], str, int]]:
    """Return what records say of where they come from, each once: nearly all of a cell say the same."""
    every = ((one.fingerprint, one.versions, one.measured_at, one.method_version) for one in records)
    return list({msgspec.json.encode(one): one for one in every}.values())


def _device_file(named: Device, record: Record) -> Findings:
    keys = {"name": "device", "kind": "device_kind", "driver": "driver", "cuda": "cuda_driver", "card": "card"}
    keys |= {"power_limit_w": "power_limit_w", "mig": "mig", "ecc": "ecc", "compute_mode": "compute_mode"}
    pairs = [(key, getattr(named, key), record.fingerprint[of]) for key, of in keys.items() if of in record.fingerprint]
    dotted = ".".join(map(str, named.compute_capability)) if named.compute_capability else None
    pairs += [("compute_capability", dotted, record.fingerprint.get("compute_capability"))]
    for key, here, there in pairs:
        if here != there:
            yield finding(Kind.OTHER_DEVICE_FILE, name=key, expected=there, got=here)
    limits = {"memory_bytes": 2**45, "sm_clock_max_mhz": 10_000}
    if rates := peak(device_of(record)):
        limits["sm_clock_max_mhz"] = rates.limits.sm_clock_mhz
        full = Device(kind="cuda", name=named.name, memory_bytes=named.memory_bytes)
        if peak(full) is None:
            yield finding(Kind.DEVICE_FILE, name="memory_bytes", rule="be that of the card", got=named.memory_bytes)
    for key, most in limits.items():
        value = getattr(named, key)
        if value is not None and not 0 < value <= most:
            yield finding(Kind.DEVICE_FILE, name=key, rule=f"be at most {most:,}", got=value)


def _rates(file: Mapping[str, Any], record: Record) -> Findings:
    own = file.get("fingerprint")
    if isinstance(own, dict) and own.get("device") and (other := fingerprint.another_device(record.fingerprint, own)):
        yield finding(Kind.RATES, name="fingerprint", rule=f"be of {other[0]}", got=other[1])
    rates = peak(device_of(record))
    if rates is None:
        return
    for key, most in (("matmul_tflops", rates.limits.tflops()), ("copy_gb_s", rates.limits.gb_s())):
        value = file.get(key)
        if isinstance(value, int | float) and not 0 < value <= most:
            yield finding(Kind.RATES, name=key, rule=f"be at most {most:,.0f}, the device's limit", got=value)


def _capabilities(name: str, found: Mapping[str, Any]) -> Findings:
    if name not in registered():
        yield finding(Kind.UNKNOWN_VARIANT, variant=name)
        return
    declared = _declared(registered()[name].variant)
    for key, result in found.items():
        status, reason = (
            (result.get("status"), result.get("reason"))
            if isinstance(result, dict)
            else str(result).partition(": ")[::2]  # as schema 1 kept them
        )
        if key not in declared:
            yield finding(Kind.CAPABILITY, variant=name, key=key, rule="be one that it declares", got=status)
        elif status not in ("yes", "no", "wrong"):
            yield finding(Kind.CAPABILITY, variant=name, key=key, rule="be yes, no or wrong", got=status)
        elif (status == "yes") == bool(reason):
            yield finding(Kind.CAPABILITY, variant=name, key=key, rule="have a reason unless it is yes", got=status)


def _declared(variant: Variant) -> set[str]:
    """Return the capabilities that are tried of a variant at most."""
    declared = variant.capabilities
    keys = {*declared.dtypes, *declared.computes_in, *(f"head_dim {head_dim}" for head_dim in declared.head_dims)}
    return keys | {key for key in ("causal", "gqa", "backward", "varlen") if getattr(declared, key) is YES}


def _control(cell: Cell) -> Findings:
    """Yield in what the control kernel's times are not those of the samples."""
    series = [one for one in cell.samples or () if one.variant in CONTROL]
    if cell.samples is None or (cell.control is None and not series):
        return
    if cell.control is None:
        yield finding(Kind.CONTROL, beside="all", expected=f"{len(series)} series", got="none")
        return
    expected: dict[str, dict[int, dict[str | None, list[float]]]] = {}
    for one, first in _of_trials(cell.samples):
        if one.beside and len(one.samples_ms) == len(first.samples_ms):
            of_parts = expected.setdefault(one.beside, {}).setdefault(one.process, {})
            of_parts[first.workload] = first.series().ranked(one.samples_ms)
    for name in expected.keys() | cell.control.samples_ms.keys():
        of_samples = [part for of_parts in expected.get(name, {}).values() for part in of_parts.values()]
        of_file = [part for part in cell.control.samples_ms.get(name, ()) if part]
        flat = [[sample for part in parts for sample in part] for parts in (of_samples, of_file)]
        if len(flat[0]) != len(flat[1]) or not all(map(equal, *flat)):
            middles = [f"{len(times)} times, median {median(times):.6g} ms" if times else "none" for times in flat]
            yield finding(Kind.CONTROL, beside=name, expected=middles[0], got=middles[1])


def _of_trials(samples: Sequence[Sampled]) -> Iterator[tuple[Sampled, Sampled]]:
    """Yield each series of the control kernel with that of its trial whose calls were first, beside which it ran.

    A trial's series stand together, the control kernel's last.
    """
    first: Sampled | None = None
    for one in samples:
        if one.variant in CONTROL:
            if first is not None and (one.beside, one.process) == (first.variant, first.process):
                yield one, first
            first = None
        elif one.regime == BURST and (
            first is None
            or (one.variant, one.process) != (first.variant, first.process)
            or one.began_s[:1] < first.began_s[:1]
        ):
            first = one


def controls(cells: Sequence[Cell]) -> list[tuple[Cell, Finding]]:
    """Return the cells in which the control kernel took other cycles than in most cells of that model of device.

    It is machine code, so that its cycles depend on the chip alone; a CPU's depend on much else.
    """
    cycles: dict[tuple[str, str], list[tuple[Cell, float]]] = {}
    for cell in cells:
        device = next((device_of(record) for record in cell.records if record.fingerprint.get("device")), None)
        if cell.control and device and device.kind == "cuda" and (found := _cycles(cell)):
            cycles.setdefault((device.name, cell.control.kernel), []).append((cell, found))
    wrong = []
    for those in cycles.values():
        middle = median(found for _, found in those)
        if len(those) >= _LEAST_CELLS:
            wrong += [
                (cell, finding(Kind.CONTROL_CYCLES, expected=middle, got=found))
                for cell, found in those
                if abs(found / middle - 1) > _SAME_CYCLES
            ]
    return wrong


def _cycles(cell: Cell) -> float | None:
    """Return how many cycles the control kernel takes: its time in ms times the clock in MHz of the same round.

    Of rounds at the full clock, the highest of the cell, and of short calls: a call of tens of milliseconds brings the
    card over its power limit, and the control kernel after it runs at a clock that no reading shows. The lower quartile
    of these, since what disturbs it makes it longer. None where few rounds are left.
    """
    rounds = [
        (sample, clock)
        for one, first in _of_trials(cell.samples or ())
        if median(first.samples_ms) * first.calls_per_sample < _LONG_MS
        for sample, clock in zip(one.samples_ms, first.sm_clock_mhz, strict=False)
        if clock
    ]
    full = _FULL * max((clock for _, clock in rounds), default=0.0)
    cycles = [1e3 * sample * clock for sample, clock in rounds if clock >= full]
    return quantiles(cycles, n=4)[0] if len(cycles) >= _LEAST_TIMES else None
