"""A comparison as values: a row for each variant and workload, the control kernel, and what differs between the sides.

`report.comparison` words them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fluxbench.device.targets import BetweenRuns
from fluxbench.records.files import ControlTimes
from fluxbench.records.fingerprint import Difference, Incomparable
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.stats.significance import Change

CellKey = tuple[str, str]  # notebook, cell
RowKey = tuple[str, str, str, str]  # notebook, cell, variant, workload


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One side: its name in text, its records, and the control kernel's times beside them."""

    name: str
    records: tuple[Record, ...]
    controls: Mapping[CellKey, ControlTimes] = field(default_factory=dict)


class NoteKind(StrEnum):
    """Why a row has no change."""

    NOT_MEASURED_AGAIN = "not measured again"
    STATUS_CHANGED = "status changed"
    NOT_PASSED = "not passed"  # on both sides, with the same status
    ONLY_BEFORE = "only before"
    ONLY_AFTER = "only after"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True)
class Note:
    """Why a row has no change. The statuses and the reason are of a row that did not pass on both sides."""

    kind: NoteKind
    before: Status | None = None
    after: Status | None = None
    reason: str = ""  # of the record after, in one line
    incomparable: Incomparable | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant at one workload, with a change or a note that says why there is none."""

    notebook: str
    cell: str
    variant: str
    workload: str
    before: Status | None  # None: no record on that side
    before_ms: float | None  # geometric mean of the processes' medians, so that the ratio is that of the two
    after: Status | None
    after_ms: float | None
    change: Change | None  # of the burst time, or of the only one
    normalized: Change | None  # the same less what follows from the control kernel's change in the same cell
    sustained: Change | None  # of the sustained time, where `change` is of the burst time
    note: Note | None
    sustained_note: Incomparable | None = None  # why there is no `sustained` where there is a `change`
    follows: float | None = None  # by how much the variant's time follows the control kernel's, 0 to 1

    @property
    def cell_key(self) -> CellKey:
        """Its notebook and cell."""
        return self.notebook, self.cell

    @property
    def judged(self) -> Change | None:
        """The change whose verdict counts: normalized to control where a control kernel was timed."""
        return self.normalized or self.change

    @property
    def sustained_only(self) -> Change | None:
        """The sustained change, where it is significant and the burst change is not, normalized or as it is."""
        sustained = self.sustained
        if sustained is None or not sustained.significant or _significant(self.judged):
            return None
        return None if self.change and self.change.verdict is sustained.verdict else sustained


@dataclass(frozen=True, kw_only=True)
class OutlyingProcess:
    """A process that differs from the others of its variant and side by more than the page's spread explains.

    It is left out of the changes of some rows: of their normalized and sustained times, or of the times `as_is` alone.
    """

    notebook: str
    cell: str
    variant: str
    after: bool  # the side
    process: int  # from 1
    log_ratio: float  # of its times to those of the others, over the workloads
    rows: tuple[RowKey, ...]  # of the variant, that it is left out of
    sustained: bool = False  # under load
    as_is: bool = False  # the device was slower in it too

    @property
    def cell_key(self) -> CellKey:
        """Its notebook and cell."""
        return self.notebook, self.cell


@dataclass(frozen=True)
class NoControl:
    """Why a cell has no control kernel. Exactly one field is set, or none: no variant has its times on both sides."""

    missing: tuple[str, ...] = ()  # the sides that did not time one
    kernels: tuple[str, str] | None = None  # two different ones, before and after


@dataclass(frozen=True)
class Mixture:
    """Variants of a cell that were timed on one side only, where a time depends on what ran between its samples."""

    removed: tuple[str, ...]
    added: tuple[str, ...]


class Happened(StrEnum):
    """What changed. The library is all but the device: packages, and what a driver does to some kernels only."""

    DEVICE = "device"
    LIBRARY = "library"
    BOTH = "device and library"
    EITHER = "device or library"  # something changed, and no control kernel says which
    SUSTAINED = "sustained load"  # sustained times alone changed: power or clocks
    STATUS = "status"  # no time changed, and a row passes that did not, or does not any more
    NOTHING = "nothing"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the times changed between two sides."""

    before: str
    after: str
    rows: tuple[Row, ...]  # in the order of `after`, then those that are only in `before`
    device: Change | None  # of the control kernel, over the cells of the rows that are compared
    no_control: Mapping[CellKey, NoControl]  # the compared cells without one
    differs: Mapping[CellKey, tuple[Difference, ...]]  # the fingerprints of each cell that both sides have
    mixtures: Mapping[CellKey, Mixture]
    outlying: tuple[OutlyingProcess, ...]  # the most extreme first
    between: Mapping[CellKey, BetweenRuns]  # how far unchanged runs of the compared cells may differ
    between_sustained: Mapping[CellKey, BetweenRuns]  # under load, where there are such times

    @property
    def compared(self) -> tuple[Row, ...]:
        """The rows that have a change."""
        return tuple(row for row in self.rows if row.change)

    @property
    def compared_cells(self) -> tuple[CellKey, ...]:
        """The cells of the rows that have a change."""
        return tuple(dict.fromkeys(row.cell_key for row in self.compared))

    @property
    def beyond_device(self) -> tuple[Row, ...]:
        """The rows that changed otherwise than the control kernel beside them."""
        return tuple(row for row in self.rows if _significant(row.normalized))

    @property
    def without_control(self) -> tuple[Row, ...]:
        """The rows that changed with no control kernel beside them."""
        return tuple(row for row in self.rows if not row.normalized and _significant(row.change))

    @property
    def sustained_only(self) -> tuple[Row, ...]:
        """The rows that changed under sustained load only."""
        return tuple(row for row in self.rows if row.sustained_only)

    @property
    def status_changed(self) -> tuple[Row, ...]:
        """The rows of both sides with two statuses."""
        return tuple(row for row in self.rows if row.note and row.note.kind is NoteKind.STATUS_CHANGED)

    @property
    def happened(self) -> Happened:
        """What changed."""
        if not self.compared:
            return Happened.NOT_COMPARED
        if _significant(self.device):
            return Happened.BOTH if self.beyond_device else Happened.DEVICE
        if self.beyond_device:
            return Happened.LIBRARY
        if self.without_control:
            return Happened.EITHER
        if self.sustained_only:
            return Happened.SUSTAINED
        return Happened.STATUS if self.status_changed else Happened.NOTHING


def _significant(change: Change | None) -> bool:
    return change is not None and change.significant
