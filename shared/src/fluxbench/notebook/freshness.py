"""Which results still hold on this machine as it is now, and of the others, what exactly differs.

uvnote's cache key holds a cell's source and nothing of devices, drivers or imported packages. No process is started on
the device, no torch is needed.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvnote.parser import CodeCell

from fluxbench.bench import dependencies
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook.document import Document, attributes_sha256
from fluxbench.notebook.store import Result, Store
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import Status

# What may go better the next time: the network is back, the other process has left the device.
RETRIED = {Status.UNAVAILABLE, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED, Status.ERROR}
# What the certificate's pages show by, and no other does.
CERTIFYING = {
    *("report/certificate.py", "analysis/certificate/position.py", "analysis/certificate/reruns.py"),
    *("analysis/certificate/runs.py", "analysis/certificate/summary.py", "analysis/comparison.py"),
    "stats/significance.py",
}
# What does not show: a drawn page depends on it through records alone, or not at all.
NOT_SHOWING = {
    *("timing/device_rates.py", "environments/cell.py", "bench/trials.py", "cli.py", "report/comparison_text.py"),
    *("bench/dependencies.py", "environments/prepare.py", "environments/locks.py", "core/progress.py"),
    *("device/targets.py", *fingerprint.MEASURING, *CERTIFYING),
} - {"device/peaks.py", "stats/intervals.py", "operations/workloads.py", "variants/_base.py"}
# What a cell calls that shows declarations of variants beside records.
_DECLARING = ("show.answer", "show.capabilities", "show.kernels")
CYCLE = "it needs cells that need it, or one that does"
_PACKAGE = Path(fingerprint.__file__).parents[1]


class State(enum.StrEnum):
    """What a cell's result is worth."""

    FRESH = "fresh"
    RETRY = "to be tried again"  # it holds, and a variant failed in a way that may pass the next time
    STALE = "stale"
    FAILED = "failed"  # its last run failed; an older result may stand
    MISSING = "not run"


_WHICH = {
    State.STALE: ("which is stale", "which are stale"),
    State.FAILED: ("whose last run failed", "whose last runs failed"),
    State.MISSING: ("which was not run", "which were not run"),
}


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """A cell's state, why, and the result that there is to show: the last good one."""

    state: State
    reasons: tuple[str, ...]
    result: Result | None

    @property
    def holds(self) -> bool:
        """Whether the result is one of this machine as it is now."""
        return self.state in (State.FRESH, State.RETRY)


def check(document: Document, store: Store, device: Device, settings: Settings) -> dict[str, Freshness]:
    """Return the freshness of every cell, in the order in which they run; those of a cycle come last."""
    found: dict[str, Freshness] = {}
    order = document.in_order()
    stuck = [code for code in document.cells if code not in order]
    for code in order:
        found[code.id] = check_cell(code, document, store, device, settings, found)
    for code in stuck:
        result = store.last_good(code.id)
        found[code.id] = Freshness(state=State.STALE if result else State.MISSING, reasons=(CYCLE,), result=result)
    return found


def check_cell(
    code: CodeCell,
    document: Document,
    store: Store,
    device: Device,
    settings: Settings,
    others: Mapping[str, Freshness],
) -> Freshness:
    """Return the freshness of one cell, given that of the cells that it needs. Raises as `depends_on` does."""
    now = depends_on(code, document, device, settings)  # first: what is not right about the machine is said at once
    result = store.last_good(code.id)
    latest = store.latest(code.id)
    if latest and latest.failure:
        return Freshness(state=State.FAILED, reasons=(f"its last run failed: {latest.failure}",), result=result)
    if result is None:
        reason = "its result is damaged" if store.numbers(code.id) else "it was never run here"
        return Freshness(state=State.MISSING, reasons=(reason,), result=None)
    reasons = []
    if latest is None:
        reasons.append("its last result is damaged; this is the one before")
    before = depended_on(result, document.is_measuring(code))
    if isinstance(before, str):
        reasons.append(before)
    else:
        reasons += fingerprint.differences(before, now)
        begun_with = depended_on(result, is_measuring=False)
        if not reasons and not isinstance(begun_with, str):  # a record says what was there when it was written
            reasons += [f"while it ran, {each}" for each in fingerprint.differences(begun_with, before)]
    if result.depends.get("attributes") != attributes_sha256(code):
        reasons.append("the cell's first line changed")
    for state, (of_one, of_several) in _WHICH.items():
        if needed := [need for need in code.needs if others[need].state is state]:
            reasons.append(f"it needs {_listed(needed)}, {of_one if len(needed) == 1 else of_several}")
    for need in code.needs:
        of_need = others[need]
        if not of_need.holds:
            continue
        if need not in result.inputs:
            reasons.append(f"it now needs {need}")
        elif of_need.result and result.inputs[need] != of_need.result.number:
            reasons.append(f"{need} was run again")
    reasons += [f"it no longer needs {need}" for need in result.inputs if need not in code.needs]
    if reasons:
        return Freshness(state=State.STALE, reasons=tuple(reasons), result=result)
    if passing := _may_pass(result):
        return Freshness(state=State.RETRY, reasons=(passing,), result=result)
    return Freshness(state=State.FRESH, reasons=(), result=result)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def depends_on(code: CodeCell, document: Document, device: Device, settings: Settings) -> Fingerprint:
    """Return what a result of this cell would depend on now. Raises `SetupError` where its header is not right."""
    if document.is_measuring(code):
        this = cell.parse(code.code, code.id)
        if cell.calls(code.code, "trials.measure"):
            names, chosen = dependencies.trials(device, settings)
            return dependencies.of(this, names, device, chosen)
        return dependencies.of(this, cell.measured(code.code), device, settings)
    found: dict[str, Any] = {
        **fingerprint.of_device(device),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cell": hashlib.sha256(code.code.encode()).hexdigest()[:12],
    }
    lock = document.path.parent / "uv.lock"
    if lock.is_file():  # which uv takes into account, and so does uvnote's own cache key
        found["lock"] = f"uv.lock {hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if "fluxbench" in code.code:
        declaring = any(cell.calls(code.code, name) for name in _DECLARING)
        hidden_rooms = ("notebook", "site", "kernels", *(() if declaring else ("variants",)))
        found_files = [
            file
            for file in sorted(_PACKAGE.rglob("*.py"))
            if file.relative_to(_PACKAGE).parts[0] not in hidden_rooms and file.name != "__init__.py"
        ]
        files = [file.relative_to(_PACKAGE).as_posix() for file in found_files]
        hidden = NOT_SHOWING - CERTIFYING if "import certificate" in code.code else NOT_SHOWING
        found |= fingerprint.of_code(file for file in files if file not in hidden)
    if cell.calls(code.code, "certificate.reruns"):  # it shows results of another notebook, which no needs= can name
        from fluxbench.analysis.certificate.reruns import latest  # which takes longer to load than all the rest

        found["reruns"] = latest(settings.root)
    return found


def depended_on(result: Result, is_measuring: bool) -> Fingerprint | str:
    """Return what a result did depend on, or why it cannot be taken for fresh whatever that was."""
    if not is_measuring:
        return {key: value for key, value in result.depends.items() if key != "attributes"}
    if result.records is None:
        return "its records are damaged"
    if result.records:
        return result.records[0].fingerprint
    found: Fingerprint | str = _beside(result).get("fingerprint", "its records are missing")
    return found


def _may_pass(result: Result) -> str | None:
    """Say what of a result failed in a way that may pass the next time, or None."""
    retried = [record for record in result.records or () if record.status in RETRIED]
    if retried:
        names = ", ".join(dict.fromkeys(f"{record.variant} {record.status}" for record in retried))
        return f"what failed may pass the next time: {names}"
    return f"what failed may pass the next time: {reason}" if (reason := _beside(result).get("reason")) else None


def _beside(result: Result) -> dict[str, Any]:
    """Return what a cell left that measures and leaves no records: rates, or trials."""
    for name in ("ceilings.json", "trials.json"):
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((result.folder / name).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
    return {}
