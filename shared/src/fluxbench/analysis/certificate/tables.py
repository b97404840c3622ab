"""Tables of unchanged kernels that share no run: the independent unit of the certificate's A/A."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fluxbench.analysis.certificate import trials
from fluxbench.analysis.certificate.judging import as_measured, change_of
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison
from fluxbench.records.fingerprint import PACKAGE
from fluxbench.records.schema import BURST, RecordError
from fluxbench.stats.proportions import upper_bound

_Of = TypeVar("_Of")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One measurement of the trials: its newest record's time (UTC), its card, and how many runs it has."""

    measured_at: str
    card: str | None
    runs: int


@dataclass(frozen=True, kw_only=True)
class Tables:
    """How many tables were compared that share no run, and how many of them have a significant change in any row."""

    of: int
    called: int

    @property
    def upper_bound(self) -> float:
        """The one-sided 95% upper limit of the rate, of tables within sessions."""
        return upper_bound(self.called, self.of)


@dataclass(frozen=True, kw_only=True)
class Independent:
    """The tables of pairs of runs within a session, and those of pairs between sessions, which are counted apart.

    All tables between the same two sessions share what differs between these, so their rate has no limit.
    """

    sessions: tuple[Session, ...]
    within: Tables
    between: Tables

    @property
    def pairs(self) -> list[tuple[Session, Session]]:
        """The sessions that are compared with each other."""
        return _in_pairs(self.sessions)

    @property
    def of_two_cards(self) -> int:
        """How many of the pairs are of two cards, where a difference may be true."""
        return sum(one.card != other.card for one, other in self.pairs)


def independent(sessions: Sequence[Trials], regime: str = BURST) -> Independent:
    """Return the verdicts on disjoint pairs of runs in a regime: all runs count, and none is replaced."""
    return Independent(
        sessions=tuple(
            Session(
                measured_at=max((record.measured_at for record in one.records), default=""),
                card=str(card) if (card := one.fingerprint.get("card")) else None,
                runs=len(one.runs),
            )
            for one in sessions
        ),
        within=_tables((pair for one in sessions for pair in _within(one)), regime),
        between=_tables((pair for two in _in_pairs(sessions) for pair in _between(*two)), regime),
    )


def _in_pairs(sessions: Sequence[_Of]) -> list[tuple[_Of, _Of]]:
    return list(zip(sessions[::2], sessions[1::2], strict=False))


def earlier(folder: Path, present: Trials) -> list[Trials]:
    """Return the published trials of a target's certificate that may be added to the present ones, the oldest first.

    `folder` is `reports/<target>/certificate`. They must be of the same model of device, method version, driver,
    packages and number of processes; damaged ones are left out.
    """
    found: dict[tuple[object, ...], Trials] = {}
    for path in (*sorted(folder.glob("history/*/trials.json.gz")), folder / "records" / "trials.json.gz"):
        try:
            one = trials.read_file(path)
        except (OSError, RecordError):
            continue
        if _conditions(one) == _conditions(present) and _times(one) != _times(present):
            found[_times(one)] = one
    return list(found.values())


def _times(of: Trials) -> tuple[object, ...]:
    return tuple(record.measured_at for run in of.runs for record in run.records[:1])


def _conditions(of: Trials) -> dict[str, object]:
    """Return what must be equal for times to be of one kind."""
    kept = ("device", "device_kind", "compute_capability", "mig", "driver")
    fingerprint = {key: value for key, value in of.fingerprint.items() if key in kept or key.startswith(PACKAGE)}
    return {
        **fingerprint,
        "method_version": of.records[0].method_version if of.records else None,
        "processes": of.most_processes,
    }


def _within(session: Trials) -> Iterator[Comparison]:
    for number in range(0, len(session.runs) - 1, 2):
        yield compare(as_measured(session, number), as_measured(session, number + 1), across_graphs=True)


def _between(before: Trials, after: Trials) -> Iterator[Comparison]:
    for number in range(min(len(before.runs), len(after.runs))):
        yield compare(as_measured(before, number), as_measured(after, number), across_graphs=True)


def _tables(comparisons: Iterable[Comparison], regime: str) -> Tables:
    changes = [[change for row in one.rows if (change := change_of(row, regime))] for one in comparisons]
    return Tables(of=sum(map(bool, changes)), called=sum(any(change.significant for change in one) for one in changes))
