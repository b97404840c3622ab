"""Records over time: a page's variants by driver and library versions, on one model of device."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fluxbench.analysis.comparison.notes import calls_of
from fluxbench.analysis.groups import Group, groups, is_distrusted, ranking_regime
from fluxbench.analysis.revision import VERSIONS, Revision, libraries_of, revisions_of
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.records import files, fingerprint
from fluxbench.records.fingerprint import Incomparable
from fluxbench.records.schema import Record, RecordError
from fluxbench.records.status import Status

VARIABLE = "FLUXBENCH_HISTORY"  # folders of earlier good results of the measuring cells, separated like PATH
_MACHINE = ("card", "power_limit_w", "ecc", "compute_mode", "cpu")  # no version, and times may depend on it
_VERSION = 24  # characters of a version that are shown
_NAMED = 4  # variants that a sentence names before it counts the rest


@dataclass(frozen=True)
class Break:
    """Two measurements in succession of some variants whose times must not be compared; revisions count from 0."""

    before: int
    after: int
    reason: Incomparable
    variants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The longest workload of a group over the revisions in which it was measured."""

    group: Group
    revisions: tuple[Revision, ...]  # in order of time
    records: Mapping[str, tuple[Record | None, ...]]  # by variant, one a revision; None: not measured then

    @cached_property
    def points(self) -> dict[str, list[tuple[int, Record]]]:
        """The PASSED records of each variant that has one, with the index of their revision, in order of time."""
        points = {
            variant: [(index, r) for index, r in enumerate(by_revision) if r and r.status is Status.PASSED]
            for variant, by_revision in self.records.items()
        }
        return {variant: of_variant for variant, of_variant in points.items() if of_variant}

    @cached_property
    def breaks(self) -> list[Break]:
        """Where a variant's time must not be compared with its time before."""
        variants: dict[tuple[int, int, Incomparable], list[str]] = {}
        for variant, points in self.points.items():
            for (before, old), (after, new) in itertools.pairwise(points):
                if reason := not_comparable(old, new):
                    variants.setdefault((before, after, reason), []).append(variant)
        ordered = sorted(variants.items(), key=lambda item: (*item[0][:2], str(item[0][2])))
        return [Break(*where, tuple(names)) for where, names in ordered]

    @cached_property
    def head(self) -> dict[str, list[str]]:
        """The names of the revisions: number, date, driver and torch, and of the other versions those that differ.

        A library of some variants is there where two revisions have two versions of it.
        """
        versions = {name: [_plain(r.versions.get(name, "-")) for r in self.revisions] for name in VERSIONS}
        dates = [f"{time:%Y-%m-%d}" if (time := revision.measured_at) else "no date" for revision in self.revisions]
        return {
            "revision": [f"{number}" for number, _ in enumerate(self.revisions, start=1)],
            "date": dates,
            **{
                name: texts
                for name, texts in versions.items()
                if (set(texts) != {"-"} if name in ("driver", "torch") else len(set(texts)) > 1)
            },
            **{name: texts for name, texts in self._libraries.items() if len(set(texts) - {"-"}) > 1},
        }

    @cached_property
    def _libraries(self) -> dict[str, list[str]]:
        """The versions of the variants' own libraries by revision, by name; "-" where none used it."""
        used = [
            [libraries_of(record) for of_variant in self.records.values() if (record := of_variant[index])]
            for index, _ in enumerate(self.revisions)
        ]
        names = sorted({name for revision in used for libraries in revision for name in libraries})

        def version(revision: list[dict[str, str]], name: str) -> str:
            versions = sorted({libraries[name] for libraries in revision if name in libraries})
            return _plain(" and ".join(versions)) or "-"

        return {name: [version(revision, name) for revision in used] for name in names}

    @property
    def where(self) -> str:
        """The workload in words."""
        return f"{self.group.name} at {self.group.longest.x:,} {self.group.axis}"

    def change(self, variant: str, after: int) -> float | None:
        """Return the change of a variant's time since the revision before, as a share of it.

        None where it has no time in one of them, or where the two must not be compared or are not known to be of one
        card.
        """
        old, new = self.records[variant][after - 1], self.records[variant][after]
        if not (old and new and old.status is new.status is Status.PASSED and old.timing and new.timing):
            return None
        cards = {record.fingerprint.get("card") for record in (old, new)}
        if len(cards) > 1 or not all(cards) or not_comparable(old, new):
            return None
        return new.timing.median_ms / old.timing.median_ms - 1

    def label(self, index: int) -> str:
        """Return one revision in words: `driver 580.10, torch 2.9.0, 2026-01-31`."""
        versions = [f"{name} {texts[index]}" for name, texts in self.head.items() if name not in ("revision", "date")]
        return ", ".join([*versions, self.head["date"][index]])

    def break_sentences(self) -> list[str]:
        """Return a sentence for each reason of a break."""
        pairs: dict[Incomparable, list[str]] = {}
        for one in self.breaks:
            pairs.setdefault(one.reason, []).append(self._between(one.before, one.after, one.variants))
        return [
            f"Times must not be compared between revisions {'; '.join(between)}, since {reason}."
            for reason, between in pairs.items()
        ]

    def machine_sentences(self) -> list[str]:
        """Return a sentence for all but versions in which the machine differs where times are compared."""
        variants: dict[tuple[int, int, str], list[str]] = {}
        for variant, points in self.points.items():
            for (before, old), (after, new) in itertools.pairwise(points):
                differences = fingerprint.differences(old.fingerprint, new.fingerprint)
                if (found := [str(one) for one in differences if one.key in _MACHINE]) and not not_comparable(old, new):
                    variants.setdefault((before, after, ", ".join(found)), []).append(variant)
        return [
            f"Between revisions {self._between(before, after, names)} more than versions changed: {differences}."
            for (before, after, differences), names in sorted(variants.items())
        ]

    def _between(self, before: int, after: int, variants: Sequence[str]) -> str:
        """Return two revisions by their numbers, with the variants unless it is all that both have."""
        both = [name for name, points in self.points.items() if {before, after} <= {index for index, _ in points}]
        who = "" if len(variants) == len(both) else f" ({_names(variants)})"
        return f"{before + 1} and {after + 1}{who}"


@dataclass(frozen=True, kw_only=True)
class History:
    """The revisions in order of time, a timeline for each group of the page, and notes on what was excluded."""

    revisions: tuple[Revision, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...]


def of(present: Sequence[Record], device: Device, earlier: Iterable[Record] = ()) -> History:
    """Return the history of the present records' variants on this model of device.

    See `revision.revisions_of`.
    """
    revisions, others = revisions_of(present, fingerprint.of_device(device), earlier)
    return History(
        revisions=tuple(revisions),
        timelines=tuple(_timeline(group, revisions) for group in groups(present)),
        notes=tuple(
            f"Excluded: {count:,} record{'s' * (count != 1)} measured on another device ({was} -> {is_})."
            for (was, is_), count in others.items()
        ),
    )


def earlier(root: Path, device: Device, notebook: str) -> tuple[list[Record], list[str]]:
    """Return all published records of a notebook on a device and earlier local ones, and a note on each bad file.

    Published are `reports/<target>/<notebook>/records` and `history/*` below `root`; local are the folders in the
    environment variable `FLUXBENCH_HISTORY`.
    """
    published = root / "reports" / target_name(device, notebook) / notebook
    local = [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    records: list[Record] = []
    notes = []
    for file in _files((published / "records", *sorted(published.glob("history/*")), *local)):
        try:
            records += files.read(file)
        except (OSError, RecordError) as error:
            reason = _plain(str(error), 200)
            notes.append(f"{file.parent.name}/{file.name} cannot be read, so its records are missing here: {reason}.")
    return records, notes


def not_comparable(before: Record, after: Record) -> Incomparable | None:
    """Return why the times of two PASSED records of a variant must not be compared, or None."""
    old, new = ((record.fingerprint, record.method_version) for record in (before, after))
    if incomparable := fingerprint.not_comparable(old, new, burst=True):
        return incomparable
    was, now = ranking_regime([before]), ranking_regime([after])
    return calls_of(before, after, now) if was == now else Incomparable("regime", was, now)


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    return (file for folder in folders for file in files.paths(folder))


def _timeline(group: Group, revisions: Iterable[Revision]) -> Timeline:
    columns = [(revision, records) for revision in revisions if (records := _longest(group, revision))]
    return Timeline(
        group=group,
        revisions=tuple(revision for revision, _ in columns),
        records={variant: tuple(records.get(variant) for _, records in columns) for variant in group.variants},
    )


def _longest(group: Group, revision: Revision) -> dict[str, Record]:
    """Return each variant's record at the longest workload; of a variant that is distrusted the one that says why."""
    of_group = [record for record in revision.records if record.workload in group.workloads]
    longest = {record.variant: record for record in of_group if record.workload == group.longest}
    return longest | {r.variant: r for r in of_group if is_distrusted(r) and r.variant in longest}


def _names(variants: Sequence[str]) -> str:
    if len(variants) > _NAMED:
        return f"{', '.join(variants[: _NAMED - 1])} and {len(variants) - _NAMED + 1} more"
    return " and ".join(filter(None, [", ".join(variants[:-1]), variants[-1]]))


def _plain(text: str, characters: int = _VERSION) -> str:
    """Return a text from a record fit for a line: in one line, printable, not longer than so many characters."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= characters else f"{line[: characters - 1]}…"
