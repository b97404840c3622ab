"""Revisions: what was measured with one driver and one set of libraries, of all records of a page's variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from fluxbench.operations.workload import Workload
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import Record

VERSIONS = ("driver", "torch", "triton", "cudnn")  # what all variants share, and each one's own libraries beside them
_NOT_LIBRARIES = (*VERSIONS, "python", "cuda")
_NO_TIME = datetime.min.replace(tzinfo=UTC)

_Place = tuple[str, int]  # a card, and a method version
_Key = tuple[tuple[tuple[str, str], ...], int]  # of a revision: its versions, and how many sets of libraries are newer
_Records = dict[tuple[str, Workload], Record]


def moment(measured_at: object) -> datetime | None:
    """Return the UTC time of an ISO 8601 text, None where it is none; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(str(measured_at))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, kw_only=True)
class Revision:
    """What was measured with one driver and one version of each library; one record per variant and workload."""

    versions: Mapping[str, str]  # of `VERSIONS` those that took part
    records: tuple[Record, ...]

    @cached_property
    def measured_at(self) -> datetime | None:
        """The UTC time of its newest record; None where no record has one."""
        return max((time for record in self.records if (time := moment(record.measured_at))), default=None)


def revisions_of(
    present: Sequence[Record], now: Fingerprint, earlier: Iterable[Record] = ()
) -> tuple[list[Revision], Counter[tuple[str, str]]]:
    """Return the revisions of the present records' variants on a model of device, and what is of another one.

    A record belongs to the revision of its driver and libraries. There, a present record stands for its variant and
    workload, so that the page agrees with itself, and else the newest. A record with another version of its variant's
    own library belongs to an earlier revision with the same driver and torch. Where most of another revision's records
    are of another card or method, this revision's newest ones of that card and method are a second one: so an upgrade
    on one card can still be seen when the page is measured anew. Revisions are ordered by their newest record.
    """
    unique: dict[tuple[str, Workload, str], Record] = {}
    for record in (*_newest_first(present), *_newest_first(earlier)):
        unique.setdefault((record.variant, record.workload, record.measured_at), record)
    shown = {record.variant for record in present}
    others: Counter[tuple[str, str]] = Counter()
    newest: dict[_Key, _Records] = {}
    by_place: dict[_Key, dict[_Place, _Records]] = {}
    known: dict[tuple[tuple[tuple[str, str], ...], str], list[dict[str, str]]] = {}
    for record in unique.values():
        if record.variant not in shown or "torch" not in record.versions:  # without torch nothing was run
            continue
        if other := fingerprint.another_device(record.fingerprint, now):
            others[other] += 1
            continue
        versions = tuple((name, record.versions[name]) for name in VERSIONS if name in record.versions)
        key = versions, _age(libraries_of(record), known.setdefault((versions, record.variant), []))
        newest.setdefault(key, {}).setdefault((record.variant, record.workload), record)
        if place := _place(record):
            of_place = by_place.setdefault(key, {}).setdefault(place, {})
            of_place.setdefault((record.variant, record.workload), record)
    places = {key: _usual(records.values()) for key, records in newest.items()}
    columns = list(newest.items())
    for key, of_places in by_place.items():
        elsewhere = {place for other, place in places.items() if other[0] != key[0] and place}
        for place in sorted(elsewhere - {places[key]}):
            records = {pair: one for pair, one in of_places.get(place, {}).items() if newest[key][pair] is not one}
            columns += [(key, records)] if records else []
    revisions = [Revision(versions=dict(key[0]), records=tuple(records.values())) for key, records in columns]
    return sorted(revisions, key=lambda revision: revision.measured_at or _NO_TIME), others


def _place(record: Record) -> _Place | None:
    card = record.fingerprint.get("card")
    return (str(card), record.method_version) if card else None


def _usual(records: Iterable[Record]) -> _Place | None:
    """Return where most of some records were measured."""
    counts = Counter(_place(record) for record in records)
    return counts.most_common(1)[0][0] if counts else None


def libraries_of(record: Record) -> dict[str, str]:
    """Return the versions of the libraries that a record's variant has beside those of all, by name."""
    return {name: version for name, version in record.versions.items() if name not in _NOT_LIBRARIES}


def _age(libraries: dict[str, str], newer: list[dict[str, str]]) -> int:
    """Return how many other sets of a variant's libraries are newer; `newer` holds them, and gets a new one.

    Of a library that only one side names it is not known that it changed.
    """
    for age, other in enumerate(newer):
        if all(other.get(name, version) == version for name, version in libraries.items()):
            return age
    newer.append(libraries)
    return len(newer) - 1


def _newest_first(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: moment(record.measured_at) or _NO_TIME, reverse=True)
