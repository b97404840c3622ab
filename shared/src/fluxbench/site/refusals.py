"""Why records from elsewhere cannot be believed or placed: a sentence for each thing that is wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from fluxbench.operations import sets
from fluxbench.operations.roofline import faster_than_possible
from fluxbench.records import fingerprint
from fluxbench.records.schema import Errors, Record, Timing
from fluxbench.records.status import Status
from fluxbench.site.collect import device_of, out_of_range
from fluxbench.variants.forms import EVERY_FORM

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_AHEAD = timedelta(days=1)  # by which another machine's clock may be wrong
_ROUNDING = 1e-3  # share by which a median may lie outside of samples that are kept rounded
_SUFFIXES = {form.name: form.suffix for form in EVERY_FORM}


def is_safe_name(name: str) -> bool:
    """Whether a name is safe as a part of a path."""
    return _SAFE.fullmatch(name) is not None


def of_all(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each thing that is wrong with records that each fit the schema."""
    first = next((record.fingerprint for record in records if record.fingerprint.get("device")), {})
    problems = []
    for record in records:
        who = f"{record.cell}, {record.variant} at {record.workload.name}"
        problems += [f"{who}: {problem}" for problem in _of_one(record)]
        other = fingerprint.another_device(first, record.fingerprint)
        if other and record.fingerprint.get("device"):
            problems.append(f"{who}: all records of a target must be of one device: {other[0]} -> {other[1]}")
    twice = Counter((record.notebook, record.variant, record.workload.name) for record in records)
    problems += [
        f"{variant} at {workload}: there must be one record of it in {notebook}, got {count}"
        for (notebook, variant, workload), count in twice.items()
        if count > 1
    ]
    return list(dict.fromkeys(problems))


def _of_one(record: Record) -> Iterator[str]:
    yield from _provenance(record)
    yield from _names(record)
    if record.status is not Status.PASSED:
        return
    for output, errors in record.errors.items():
        if _over_budget(errors):
            yield (
                f"PASSED must be within its budget of {errors.budget_rel_l2:g}, got {errors.rel_l2} in output {output}"
            )
    if wrong := out_of_range(record):
        yield wrong
        return
    for regime, timing in record.timings.items():
        impossible = faster_than_possible(timing.median_ms, record.workload, device_of(record), record.precision_class)
        for problem in filter(None, (impossible, _outside_samples(timing))):
            yield f"{regime}: {problem}"


def _over_budget(errors: Errors) -> bool:
    return errors.rel_l2 is None or errors.nan_count > 0 or errors.rel_l2 > errors.budget_rel_l2


def _provenance(record: Record) -> Iterator[str]:
    """Yield what a record does not say of how it came about."""
    own = record.fingerprint
    missing = [key for key in ("device", "device_kind", "python") if not isinstance(own.get(key), str)]
    missing += ["driver"] * (own.get("device_kind") == "cuda" and not own.get("driver"))
    missing += ["hashes of the measuring code"] * (not any(key.startswith(fingerprint.CODE) for key in own))
    if missing:
        yield f"its fingerprint must have {', '.join(missing)}"
    if record.status is Status.PASSED and "torch" not in record.versions:
        yield "its versions must have torch"
    drivers = [record.versions.get("driver"), own.get("driver")]
    if all(drivers) and drivers[0] != drivers[1]:
        yield f"its driver must be one, got {drivers[0]} in versions and {drivers[1]} in fingerprint"
    try:
        when = datetime.fromisoformat(record.measured_at)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    except ValueError:
        yield f"measured_at must be a time by ISO 8601, got {record.measured_at[:40]!r}"
    else:
        if when > datetime.now(UTC) + _AHEAD:
            yield f"measured_at must not be in the future, got {record.measured_at}"


def _names(record: Record) -> Iterator[str]:
    """Yield in what a record's names are not those of what it holds."""
    known = sets.by_name().get(record.workload.name)
    if known is not None and known != record.workload:
        yield "its workload must have the shape that fluxbench knows by this name"
    suffix = _SUFFIXES.get(record.form)
    if suffix is None:
        yield f"its form must be one of {', '.join(_SUFFIXES)}, got {record.form}"
    elif record.variant != record.kernel + suffix:
        yield f"its variant must be named {record.kernel + suffix}, for its kernel and form, got {record.variant}"


def _outside_samples(timing: Timing) -> str | None:
    samples = [sample for of_process in timing.samples_ms for sample in of_process]
    low, high = min(samples) * (1 - _ROUNDING), max(samples) * (1 + _ROUNDING)
    if low <= timing.median_ms <= high:
        return None
    return f"median_ms must lie within the samples, got {timing.median_ms:g} of {low:g} to {high:g}"
