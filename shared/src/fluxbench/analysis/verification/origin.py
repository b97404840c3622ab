"""Where a record says that it comes from, and what it is called."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from fluxbench import operations, variants
from fluxbench.analysis.verification.problem import Findings, Kind, finding
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.precision import EXACT, ROUNDED
from fluxbench.records import fingerprint
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.variants.forms import COMPILE_BLOCKS, EVERY_FORM, FormedVariant

_AHEAD = timedelta(days=1)  # by which another machine's clock may be wrong
_ROUNDED_FROM = 7  # the method version from which on there is the class: until then such variants counted as exact
_SUFFIXES = {form.name: form.suffix for form in (*EVERY_FORM, COMPILE_BLOCKS)}


def device_of(record: Record) -> Device:
    """Return the device that a record names, see `fingerprint.device_of`."""
    return fingerprint.device_of(record.fingerprint)


@functools.cache
def registered() -> Mapping[str, FormedVariant]:
    """Return every variant by its name."""
    every = (*variants.REGISTRY, *variants.CERTIFICATE)
    return {
        variant.name + form.suffix: FormedVariant(variant, form)
        for variant in every
        for form in (*variant.forms, COMPILE_BLOCKS)
    }


def provenance(record: Record) -> Findings:
    """Yield what a record does not say of how it came about, or says in two ways."""
    own = record.fingerprint
    named = ("device", "device_kind", *["python"] * (record.method_version != 1))
    missing = [key for key in named if not isinstance(own.get(key), str)]
    missing += ["driver"] * (own.get("device_kind") == "cuda" and not own.get("driver"))
    missing += ["hashes of the measuring code"] * (
        not any(key.startswith(fingerprint.CODE) or key == "measuring_sha256" for key in own)
    )
    if missing:
        yield finding(Kind.LACKS, where="fingerprint", what=", ".join(missing))
    if record.status is Status.PASSED and "torch" not in record.versions:
        yield finding(Kind.LACKS, where="versions", what="torch")
    drivers = [record.versions.get("driver"), own.get("driver")]
    if all(drivers) and drivers[0] != drivers[1]:
        yield finding(Kind.DRIVER, versions=drivers[0], fingerprint=drivers[1])
    try:
        when = datetime.fromisoformat(record.measured_at)
    except ValueError:
        yield finding(Kind.DATE, must="be a time by ISO 8601", got=repr(record.measured_at[:40]))
    else:
        if when.utcoffset():  # times are compared as text too
            yield finding(Kind.DATE, must="be in UTC", got=record.measured_at)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
        if when > datetime.now(UTC) + _AHEAD:
            yield finding(Kind.DATE, must="not be in the future", got=record.measured_at)


def names(record: Record) -> Findings:
    """Yield in what a record's names are not those of what it holds."""
    known = sets.by_name().get(record.workload.name)
    if known is not None and known != record.workload:
        yield finding(Kind.WORKLOAD)
    suffix = _SUFFIXES.get(record.form)
    if suffix is None:
        yield finding(Kind.NAME, field="form", expected=f"one of {', '.join(_SUFFIXES)}", got=record.form)
    elif record.variant != record.kernel + suffix:
        yield finding(Kind.NAME, field="variant", expected=record.kernel + suffix, got=record.variant)
    formed = registered().get(record.variant)
    if formed is None:
        yield finding(Kind.UNKNOWN_VARIANT, variant=record.variant)
        return
    declared = formed.variant.precision_class
    was_exact = declared == ROUNDED and record.method_version < _ROUNDED_FROM and record.precision_class == EXACT
    if record.errors and record.precision_class != declared and not was_exact:
        yield finding(Kind.CLASS, expected=declared, got=record.precision_class)
    yield from _kernels(record, formed)


def _kernels(record: Record, formed: FormedVariant) -> Findings:
    """Yield that none of the profiled kernels is the variant's, as a worker refuses it."""
    if record.status is not Status.PASSED or device_of(record).kind != "cuda" or not record.kernels:
        return
    if record.workload.operation not in operations.NAMES:  # a record must not name what is imported and called
        return
    try:
        call = operations.find(record.workload.operation).attention(record.workload.shape)
    except ValueError:
        return
    pattern = formed.variant.pattern(call)
    if pattern and not any(re.search(pattern, kernel.name) for kernel in record.kernels):
        yield finding(Kind.KERNELS, pattern=pattern, got=record.kernels[0].name[:80])
