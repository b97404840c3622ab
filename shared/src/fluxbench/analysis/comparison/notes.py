"""Why two records are not compared."""

from __future__ import annotations

from fluxbench.analysis.comparison.model import Note, NoteKind
from fluxbench.analysis.groups import is_replayed
from fluxbench.records import method
from fluxbench.records.fingerprint import Incomparable
from fluxbench.records.schema import BURST, SUSTAINED, Record

_NEVER_EQUAL = 12  # values among the samples of a row that are not the same in two runs by chance


def note_of(old: Record | None, new: Record | None, refused: Incomparable | None) -> Note | None:
    """Return why there is no change between two records, or None; `refused` holds for all records of their cell."""
    if old is not None and new is not None:
        return _of_both(old, new, refused)
    if refused:
        return Note(NoteKind.INCOMPARABLE, incomparable=refused)
    return Note(NoteKind.ONLY_AFTER if old is None else NoteKind.ONLY_BEFORE)


def _of_both(old: Record, new: Record, refused: Incomparable | None) -> Note | None:
    if old == new or _is_copy(old, new):
        return Note(NoteKind.NOT_MEASURED_AGAIN)
    if old.status is not new.status or not (old.timings and new.timings):
        kind = NoteKind.NOT_PASSED if old.status is new.status else NoteKind.STATUS_CHANGED
        return Note(kind, old.status, new.status, " ".join((new.reason or "").split()).rstrip("."))
    if incomparable := refused or _shape(old, new) or _regime(old, new) or _calls(old, new):
        return Note(NoteKind.INCOMPARABLE, incomparable=incomparable)
    return None


def _is_copy(old: Record, new: Record) -> bool:
    """Whether both have the same samples to the last digit, which two runs never have, whatever the records say."""
    was, now = ({regime: timing.samples_ms for regime, timing in one.timings.items()} for one in (old, new))
    values = {sample for timing in old.timings.values() for part in timing.samples_ms for sample in part}
    return was == now and len(values) >= _NEVER_EQUAL


def _shape(old: Record, new: Record) -> Incomparable | None:
    if old.workload == new.workload:
        return None
    return Incomparable("shape", str(dict(old.workload.shape)), str(dict(new.workload.shape)))


def _regime(old: Record, new: Record) -> Incomparable | None:
    """Return the first regime that one side has and the other lacks: of what is compared first, and of what ranks."""
    for preferred, other in ((BURST, SUSTAINED), (SUSTAINED, BURST)):
        was, now = (preferred if preferred in record.timings else other for record in (old, new))
        if was != now:
            return Incomparable("regime", was, now)
    return None


def _calls(old: Record, new: Record) -> Incomparable | None:
    return calls_of(old, new, BURST if BURST in old.timings else SUSTAINED)


def calls_of(old: Record, new: Record, regime: str) -> Incomparable | None:
    """Return why two records did not time calls alike in a regime, or None.

    One side timed CUDA graphs, and the other calls as the host launches them; or sustained windows follow one another
    without a pause on one side alone.
    """
    replayed = (is_replayed(record, regime) for record in (old, new))
    was, now = ("as CUDA graphs" if graphs else "as the host launches them" for graphs in replayed)
    if was != now:
        return Incomparable("calls", was, now)
    versions = [record.method_version for record in (old, new)]
    on_gpu = old.fingerprint.get("device_kind") != "cpu"
    if regime != SUSTAINED or len({method.of_sustained(version, on_gpu=on_gpu) for version in versions}) == 1:
        return None
    return Incomparable("method", *map(method.words, versions))
