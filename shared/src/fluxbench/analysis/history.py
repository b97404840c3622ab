"""Records -> a page's variants over drivers and libraries, as measured on this model of device, revision by revision.

Earlier records are the published ones with their history, and the local results that `FLUXBENCH_HISTORY` names.
"""

from __future__ import annotations

import itertools
import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from fluxbench.analysis.ranking import Group, distrusted, groups, launch_bound, timing_of
from fluxbench.core.formatting import plus_minus
from fluxbench.device.detection import target_name
from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.records import fingerprint
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError, Status
from fluxbench.report.legend import late_note

VARIABLE = "FLUXBENCH_HISTORY"  # folders of earlier good results of the cells that a cell needs
VERSIONS = ("driver", "torch", "triton", "cudnn")  # what tells one revision from another
_WRAP = 110  # characters of a line of prose
_VERSION = 24  # characters of a version that are shown
_NAMED = 4  # variants that a sentence names before it counts the rest
_NO_TIME = datetime.min.replace(tzinfo=UTC)


def moment(measured_at: object) -> datetime | None:
    """Return the UTC time that an ISO 8601 text says, None where it says none; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(str(measured_at))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, kw_only=True)
class Revision:
    """What was measured with one driver and one set of libraries; one record per variant and workload."""

    versions: Mapping[str, str]  # of `VERSIONS` those that took part
    records: tuple[Record, ...]

    @cached_property
    def measured_at(self) -> datetime | None:
        """The UTC time of its newest record; None where no record says one."""
        return max((time for record in self.records if (time := moment(record.measured_at))), default=None)


@dataclass(frozen=True)
class Break:
    """Two measurements in succession of some variants whose times must not be compared; revisions count from 0."""

    before: int
    after: int
    reason: str  # a clause: "they were not measured in the same way: ..."
    variants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The longest workload of a group over the revisions in which it was measured."""

    group: Group
    revisions: tuple[Revision, ...]  # in order of time
    places: Mapping[str, tuple[Record | None, ...]]  # by variant, one a revision; None: not measured then

    @cached_property
    def points(self) -> dict[str, list[tuple[int, Record]]]:
        """The PASSED records of each variant that has one, with the index of their revision, in order of time."""
        found = {
            variant: [(at, record) for at, record in enumerate(places) if record and record.status is Status.PASSED]
            for variant, places in self.places.items()
        }
        return {variant: points for variant, points in found.items() if points}

    @cached_property
    def breaks(self) -> list[Break]:
        """Where a variant's time must not be compared with its time before."""
        found: dict[tuple[int, int, str], list[str]] = {}
        for variant, points in self.points.items():
            for (before, old), (after, new) in itertools.pairwise(points):
                if reason := not_comparable(old, new):
                    found.setdefault((before, after, reason), []).append(variant)
        return [Break(*where, tuple(variants)) for where, variants in sorted(found.items())]

    @cached_property
    def head(self) -> dict[str, list[str]]:
        """What the revisions are called: their number, date, driver and torch, and of the rest what differs."""
        versions = {name: [_plain(str(r.versions.get(name, "-"))) for r in self.revisions] for name in VERSIONS}
        dates = [f"{time:%Y-%m-%d}" if (time := revision.measured_at) else "no date" for revision in self.revisions]
        return {
            "revision": [f"{number}" for number, _ in enumerate(self.revisions, start=1)],
            "date": dates,
            **{
                name: texts
                for name, texts in versions.items()
                if (set(texts) != {"-"} if name in ("driver", "torch") else len(set(texts)) > 1)
            },
        }

    @property
    def where(self) -> str:
        """The workload in words."""
        return f"{self.group.name} at {self.group.length(self.group.longest):,} {self.group.axis}"

    def called(self, at: int) -> str:
        """Return one revision in words: `driver 580.10, torch 2.9.0, 2026-01-31`."""
        versions = [f"{name} {texts[at]}" for name, texts in self.head.items() if name in VERSIONS]
        return ", ".join([*versions, self.head["date"][at]])

    def broken(self) -> list[str]:
        """Return a sentence for each reason of a break."""
        between: dict[str, list[str]] = {}
        for each in self.breaks:
            both = [v for v, points in self.points.items() if {each.before, each.after} <= {at for at, _ in points}]
            who = "" if len(each.variants) == len(both) else f" ({_names(each.variants)})"
            between.setdefault(each.reason, []).append(f"{each.before + 1} and {each.after + 1}{who}")
        return [
            f"Times must not be compared between revisions {'; '.join(pairs)}, since {reason}."
            for reason, pairs in between.items()
        ]


@dataclass(frozen=True, kw_only=True)
class History:
    """The revisions in order of time, and a sentence for each thing that was left out."""

    revisions: tuple[Revision, ...]
    notes: tuple[str, ...]

    def timelines(self, present: Iterable[Record]) -> list[Timeline]:
        """Return the longest workload of each group of the present records over time."""
        return [_timeline(group, self.revisions) for group in groups(present)]


def published_folder(root: Path, device: Device, notebook: str) -> Path:
    """Return the folder that `fluxbench publish` fills for a device and a notebook."""
    return root / "reports" / target_name(device) / notebook


def local_folders() -> list[Path]:
    """Return the folders of earlier local results that the environment names."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def revisions(
    present: Sequence[Record], device: Device, published: Iterable[Path] = (), local: Iterable[Path] = ()
) -> History:
    """Return what is known over time of the variants of the present records, on this model of device.

    `published` are folders of `reports/<target>/`, `local` folders of single results. A record belongs to the revision
    of its driver and libraries. There, a present record stands for its variant and workload, so that the page agrees
    with itself, and else the newest. Revisions are ordered by their newest record. Raises nothing: what is damaged, or
    of another device, is left out with a note.
    """
    earlier, notes = _read(_files(published, local))
    unique: dict[tuple[str, Workload, str], Record] = {}
    for record in (*_newest_first(present), *_newest_first(earlier)):
        unique.setdefault((record.variant, record.workload, record.measured_at), record)
    shown = {record.variant for record in present}
    now = fingerprint.of_device(device)
    others: Counter[str] = Counter()
    found: dict[tuple[tuple[str, str], ...], dict[tuple[str, Workload], Record]] = {}
    for record in unique.values():
        if record.variant not in shown or "torch" not in record.versions:  # without torch nothing was run
            continue
        if other := fingerprint.another_device(record.fingerprint, now):
            others[other] += 1
            continue
        key = tuple((name, str(record.versions[name])) for name in VERSIONS if name in record.versions)
        found.setdefault(key, {}).setdefault((record.variant, record.workload), record)
    ordered = [Revision(versions=dict(key), records=tuple(its.values())) for key, its in found.items()]
    ordered.sort(key=lambda revision: revision.measured_at or _NO_TIME)
    notes += [
        f"Left out: {count:,} record{'s' * (count != 1)} measured on another device ({other})."
        for other, count in others.items()
    ]
    return History(revisions=tuple(ordered), notes=tuple(notes))


def not_comparable(before: Record, after: Record) -> str | None:
    """Say in a clause why the times of two PASSED records of a variant must not be compared, or None."""
    if reason := fingerprint.not_comparable(before.fingerprint, after.fingerprint):
        return reason
    old, new = timing_of(before).regime, timing_of(after).regime
    return None if old == new else f"the load was {old} and then {new}"


def text(history: History, timelines: Sequence[Timeline]) -> str:
    """Return each timeline as a text table, with what it is and what in it must not be compared."""
    parts: list[str] = []
    for timeline in timelines:
        title = (
            f"{timeline.where}: median sustained ms per call, 95% intervals in brackets or half of one after ±. "
            "A revision is what one driver and one set of libraries gave on this model of device, in order of time, "
            "dated by its newest record (UTC); -: not measured."
        )
        if not timeline.points:
            parts.append(_wrapped(f"{timeline.where}: nothing passed so far."))
            continue
        if len(timeline.revisions) == 1:
            parts.append(
                _wrapped(
                    f"One measurement so far: {timeline.called(0)}. After a change of driver or libraries, "
                    "`fluxbench rerun` and `make publish` add to it."
                )
            )
        parts += [_wrapped(title), _table(timeline)]
        if late := late_note(record for points in timeline.points.values() for _, record in points):
            parts.append(_wrapped(late))
        parts += map(_wrapped, timeline.broken())
        never = [variant for variant in timeline.places if variant not in timeline.points]
        if never:
            parts.append(_wrapped(f"Without a time in any: {', '.join(never)}."))
    return "\n\n".join([*parts, *map(_wrapped, history.notes)]) or "There are no records."


def _files(published: Iterable[Path], local: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of records."""
    of_published = ((folder, pattern) for folder in published for pattern in ("records/*.jsonl", "history/*/*.jsonl"))
    for folder, pattern in (*of_published, *((folder, "*.jsonl") for folder in local)):
        yield from sorted(folder.glob(pattern))


def _read(files: Iterable[Path]) -> tuple[list[Record], list[str]]:
    """Return the records of all files, and a sentence for each file that cannot be read."""
    found: list[Record] = []
    notes = []
    for file in files:
        try:
            its = records.read(file)
            if not all(map(_is_whole, its)):
                raise RecordError("a record's variant, measured_at, versions or fingerprint is of another type")
            found += its
        except (OSError, RecordError, RecursionError) as error:
            notes.append(f"Left out: {file.parent.name}/{file.name} cannot be read ({_plain(str(error), 200)}).")
    return found, notes


def _is_whole(record: Record) -> bool:
    texts, tables = (record.variant, record.measured_at), (record.versions, record.fingerprint)
    return all(isinstance(each, str) for each in texts) and all(isinstance(each, Mapping) for each in tables)


def _newest_first(found: Iterable[Record]) -> list[Record]:
    return sorted(found, key=lambda record: moment(record.measured_at) or _NO_TIME, reverse=True)


def _timeline(group: Group, revisions: Iterable[Revision]) -> Timeline:
    columns = [(each, found) for each in revisions if (found := _at(group, each))]
    return Timeline(
        group=group,
        revisions=tuple(each for each, _ in columns),
        places={variant: tuple(found.get(variant) for _, found in columns) for variant in group.variants},
    )


def _at(group: Group, revision: Revision) -> dict[str, Record]:
    """Return each variant's record at the longest workload; of one that was found out at any length that one."""
    its = [record for record in revision.records if record.workload in group.workloads]
    found = {record.variant: record for record in its if record.workload == group.longest}
    return found | {r.variant: r for r in its if distrusted(r) and r.variant in found}


def _table(timeline: Timeline) -> str:
    head = [[name, *texts] for name, texts in timeline.head.items()]
    rows = [[variant, *map(_cell, timeline.places[variant])] for variant in timeline.points]
    widths = [max(map(len, column)) for column in zip(*head, *rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *rest = zip(row, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]).rstrip()

    return "\n".join([*map(line, head), "  ".join("─" * width for width in widths), *map(line, rows)])


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    if not record.timing:
        return record.status.value
    return plus_minus(record.timing.median_ms, record.timing.ci95_ms) + " h" * launch_bound(record)


def _names(variants: Sequence[str]) -> str:
    if len(variants) > _NAMED:
        return f"{', '.join(variants[: _NAMED - 1])} and {len(variants) - _NAMED + 1} more"
    return " and ".join(filter(None, [", ".join(variants[:-1]), variants[-1]]))


def _plain(text: str, characters: int = _VERSION) -> str:
    """Return a text from a record fit for a line: in one line, printable, not longer than so many characters."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, _WRAP, break_long_words=False, break_on_hyphens=False)
