"""Which results still hold on this machine as it is now, and of the others, what exactly differs.

uvnote's cache key holds a cell's source, and no device, driver or imported package. No process is started on the
device, and no torch is needed.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from uvnote.parser import CodeCell

from fluxbench.bench import dependencies
from fluxbench.core import strict
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook import published
from fluxbench.notebook.document import Document, attributes_sha256, load
from fluxbench.notebook.outputs import WITHOUT_RECORDS
from fluxbench.notebook.store import Result, Store
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.status import Status

# These may pass the next time: the network is back, the other process has left the device.
_RETRYABLE = {Status.UNAVAILABLE, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED, Status.ERROR}
CYCLE = "it needs cells that need it, or one that does"
_MOST_BYTES = 1 << 30  # of what measuring cells without records leave


class State(enum.StrEnum):
    """What a cell's result is worth."""

    FRESH = "fresh"
    RETRYABLE = "retryable"  # it holds, and a variant failed in a way that may pass the next time
    STALE = "stale"
    FAILED = "failed"  # its last run failed; an older result may stand
    MISSING = "not run"


class _WithoutRecords(msgspec.Struct):
    """The part of `rates.json` or `trials.json` that says whether it holds."""

    fingerprint: dict[str, str | int | float | bool | None] | None = None
    reason: str | None = None


_OF_NEEDS = {
    State.STALE: ("which is stale", "which are stale"),
    State.FAILED: ("whose last run failed", "whose last runs failed"),
    State.MISSING: ("which was not run", "which were not run"),
}


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """A cell's state, the reasons for it, and the result to show: the last good one."""

    state: State
    reasons: tuple[str, ...]
    result: Result | None
    at_other_workloads: bool = False  # records of a measuring cell that are not to be shown beside those of now

    @property
    def holds(self) -> bool:
        """Whether the result is one of this machine as it is now."""
        return self.state in (State.FRESH, State.RETRYABLE)

    @property
    def shown(self) -> Result | None:
        """The result that tables and figures are drawn from: none at other workloads than those of now."""
        return None if self.at_other_workloads else self.result


def check(document: Document, store: Store, device: Device, settings: Settings) -> dict[str, Freshness]:
    """Return the freshness of every cell, in the order in which they run; those of a cycle come last.

    Raises as `depends_on` does.
    """
    cells: dict[str, Freshness] = {}
    order = document.in_order()
    for code in order:
        cells[code.id] = check_cell(code, document, store, device, settings, cells)
    for code in document.cells:
        if code not in order:
            result = store.last_good(code.id)
            state = State.STALE if result else State.MISSING
            cells[code.id] = Freshness(state=state, reasons=(CYCLE,), result=result)
    return cells


def depends_on(code: CodeCell, document: Document, device: Device, settings: Settings) -> Fingerprint:
    """Return what a result of this cell would depend on now.

    Raises `SetupError` where its header is not right or the settings name what does not exist.
    """
    if document.is_measuring(code):
        return dependencies.of(cell.parse(code.code, code.id), device, settings)
    depends = {
        **fingerprint.of_device(device),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cell": hashlib.sha256(code.code.encode()).hexdigest()[:12],
    }
    lock = document.path.parent / "uv.lock"
    if lock.is_file():  # which uv takes into account, and so does uvnote's own cache key
        depends["lock"] = f"uv.lock {hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if cell.uses_fluxbench(code.code):
        depends |= fingerprint.of_code(fingerprint.SHOWING)
        if records := published.of(code, document, device, settings):
            depends["published"] = records
    if notebooks := cell.reads(code.code):
        depends["other_results"] = ", ".join(_results_of(notebooks, document))
    return depends


def _results_of(notebooks: Iterable[str], document: Document) -> Iterator[str]:
    """Yield the names of the last good results of other notebooks' measuring cells, those beside this notebook."""
    for name in notebooks:
        with contextlib.suppress(SetupError):  # of a notebook that is missing or broken there are none
            other = load(document.path.with_name(f"{name}.md"))
            store = Store(other)
            for code in other.cells:
                if other.is_measuring(code) and (result := store.last_good(code.id)):
                    yield result.folder.name


def check_cell(
    code: CodeCell,
    document: Document,
    store: Store,
    device: Device,
    settings: Settings,
    needed: Mapping[str, Freshness],
) -> Freshness:
    """Return the freshness of one cell, given that of the cells that it needs. Raises as `depends_on` does."""
    now = depends_on(code, document, device, settings)  # first: what is wrong with the machine ends the check
    result = store.last_good(code.id)
    latest = store.latest(code.id)
    at_others = document.is_measuring(code) and _at_other_workloads(result, now)
    if latest and latest.run.failure:
        reason = f"its last run failed: {latest.run.failure}"
        return Freshness(state=State.FAILED, reasons=(reason,), result=result, at_other_workloads=at_others)
    if result is None:
        reason = "its result is damaged" if store.numbers(code.id) else "it was never run here"
        return Freshness(state=State.MISSING, reasons=(reason,), result=None)
    damaged = ["its last result is damaged; this is the one before"] if latest is None else []
    reasons = [*damaged, *_differences(result, now, document.is_measuring(code))]
    if result.run.depends.get("attributes") != attributes_sha256(code):
        reasons.append("the cell's first line changed")
    reasons += _of_needs(code, result, needed)
    if reasons:
        return Freshness(state=State.STALE, reasons=tuple(reasons), result=result, at_other_workloads=at_others)
    if document.is_measuring(code) and (retryable := _retryable(result)):
        return Freshness(state=State.RETRYABLE, reasons=(retryable,), result=result)
    return Freshness(state=State.FRESH, reasons=(), result=result)


def _at_other_workloads(result: Result | None, now: Fingerprint) -> bool:
    """Whether a measuring cell's records are of other workloads than it has now."""
    if not result or not result.records:
        return False
    measured = result.records[0].fingerprint
    return any(measured.get(key) != now.get(key) for key in ("workloads", "shapes"))


def _differences(result: Result, now: Fingerprint, is_measuring: bool) -> Iterator[str]:
    """Yield in what this machine differs from the one that a result was made on."""
    before_it_ran = {key: value for key, value in result.run.depends.items() if key != "attributes"}
    if not is_measuring:
        for difference in fingerprint.differences(before_it_ran, now):
            # An edited cell may use fluxbench now, or no longer: that makes it of no older fluxbench.
            if difference.key != "code" or before_it_ran.get("cell") == now.get("cell"):
                yield str(difference)
        return
    measured = _measured_fingerprint(result)  # a record holds what was there when it was written
    if isinstance(measured, str):
        yield measured
    elif differences := fingerprint.differences(measured, now):
        yield from map(str, differences)
    else:
        yield from (f"while it ran, {change}" for change in fingerprint.differences(before_it_ran, measured))


def _measured_fingerprint(result: Result) -> Fingerprint | str:
    """Return the fingerprint in what a measuring cell left, or why there is none."""
    if result.records is None:
        return "its records are damaged"
    if result.records:
        return result.records[0].fingerprint
    recorded = _without_records(result).fingerprint
    return "its records are missing" if recorded is None else recorded


def _of_needs(code: CodeCell, result: Result, needed: Mapping[str, Freshness]) -> Iterator[str]:
    """Yield what is not as it was of the cells that a cell needs."""
    for state, (of_one, of_several) in _OF_NEEDS.items():
        if needs := [need for need in code.needs if needed[need].state is state]:
            listed = needs[0] if len(needs) == 1 else f"{', '.join(needs[:-1])} and {needs[-1]}"
            yield f"it needs {listed}, {of_one if len(needs) == 1 else of_several}"
    inputs = result.run.inputs
    for need in code.needs:
        of_need = needed[need]
        if of_need.holds and need not in inputs:
            yield f"it now needs {need}"
        elif of_need.holds and of_need.result and not _same(result, need, of_need.result):
            yield f"{need} was run again"
    yield from (f"it no longer needs {need}" for need in inputs if need not in code.needs)


def _same(result: Result, need: str, now: Result) -> bool:
    """Whether a result was made of what a needed cell has left now: that very run, or one of the same content."""
    content = result.run.contents.get(need)
    return result.run.inputs[need] == now.number or (content is not None and content == now.run.sha256)


def _retryable(result: Result) -> str | None:
    """Return in a sentence what of a result failed in a way that may pass the next time, or None.

    What is unavailable beside variants that passed will be so again: the environment was there, and lacks a library.
    """
    statuses = {record.status for record in result.records or ()}
    retryable = _RETRYABLE - {Status.UNAVAILABLE} if Status.PASSED in statuses else _RETRYABLE
    records = [record for record in result.records or () if record.status in retryable]
    if records:
        names = ", ".join(dict.fromkeys(f"{record.variant} {record.status}" for record in records))
        return f"its failures are retryable: {names}"
    reason = _without_records(result).reason
    return f"its failures are retryable: {reason}" if reason else None


def _without_records(result: Result) -> _WithoutRecords:
    """Return what of the rates or the trials that a measuring cell left in place of records is asked for here."""
    for name in WITHOUT_RECORDS:
        with contextlib.suppress(OSError, strict.MalformedError):
            return strict.read(result.folder / name, _WithoutRecords, _MOST_BYTES)
    return _WithoutRecords()
