"""The front end: submits what is missing, follows the jobs, and publishes what they measured.

All state is in the pairs' folders and in the cluster's queue, so the command may be killed at any moment: the next one
goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fluxbench.core.errors import SetupError
from fluxbench.core.locks import only_one
from fluxbench.core.settings import Settings
from fluxbench.device import targets as targets_
from fluxbench.device.targets import Target
from fluxbench.fleet import copies
from fluxbench.fleet.call import Call
from fluxbench.fleet.cluster import Cluster, SilentError
from fluxbench.fleet.pair import FOLDER, Job, Pair, known
from fluxbench.fleet.standing import Standing, State, standing
from fluxbench.notebook import estimates
from fluxbench.notebook.document import load
from fluxbench.notebook.store import Store
from fluxbench.site.intake import check_name

_POLL_S = 1.0
_LONGEST_POLL_S = 15.0
_SLOWER = 1.3  # after each look at a queue in which nothing changed


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a fleet is to measure."""

    notebooks: Mapping[Pair, Path]
    targets: Mapping[str, Target]

    @property
    def pairs(self) -> list[Pair]:
        """Every notebook on every target."""
        return list(self.notebooks)


def asked(notebooks: Sequence[Path], names: Sequence[str], settings: Settings) -> Asked:
    """Return the pairs of notebooks and targets. Raises `SetupError` where one is not right."""
    fleet = settings.root / FOLDER
    named: dict[str, Path] = {}
    for path in notebooks:
        document = load(path)
        if not any(map(document.is_measuring, document.cells)):
            raise SetupError(
                f"a notebook of a fleet must measure something, got {path}; use `fluxbench publish {path}`"
            )
        if named.setdefault(document.path.stem, document.path) != document.path:
            raise SetupError(f"the notebooks of a fleet must have different names, got {path} too")
    for name in names:
        check_name(name)
    targets = {name: targets_.named(name, settings.root) for name in names}
    return Asked(
        notebooks={Pair(fleet, name, stem): path for name in targets for stem, path in named.items()}, targets=targets
    )


class Fleet:
    """The pairs, their cluster, and what is said of them while they run."""

    def __init__(
        self, asked: Asked, cluster: Cluster, settings: Settings, reports: Path, note: Callable[[str], None]
    ) -> None:
        self._asked, self._cluster, self._settings = asked, cluster, settings
        self._reports, self._note = reports, note
        self._noted: dict[Pair, str] = {}
        self._is_silent = False  # whether the cluster did not answer the last time

    def run(self, wait_s: float, *, again: bool = False) -> list[Standing]:
        """Measure and publish what is not published, and return how far each pair is then.

        `again` measures published pairs again, as far as their results are stale on their nodes. After `wait_s`
        seconds jobs that wait or run are left to the cluster. Raises `SetupError`, `OSError`.
        """
        fleet = self._settings.root / FOLDER
        fleet.mkdir(exist_ok=True)
        with only_one(
            fleet / "fleet.lock", f"only one fleet may use {fleet}, got another that runs; wait until it ends"
        ):
            self._cluster.check(self._asked.pairs, self._asked.targets)
            code = copies.snapshot(self._settings.root, fleet)
            standings = self._look()
            ahead = [one.pair for one in standings if self._is_missing(one, code, again=again)]
            deadline, poll_s = time.monotonic() + wait_s, _POLL_S
            while True:
                ahead = self._start(ahead, standings, code)
                before, standings = standings, self._publish(self._look(standings))
                is_done = not ahead and not self._is_silent and not any(one.is_queued for one in standings)
                if is_done or time.monotonic() >= deadline:
                    break
                poll_s = _POLL_S if standings != before else min(_LONGEST_POLL_S, poll_s * _SLOWER)
                time.sleep(min(poll_s, max(0.0, deadline - time.monotonic())))
            copies.clear(fleet, known(fleet))
        return standings

    def _is_missing(self, one: Standing, code: Path, *, again: bool) -> bool:
        """Whether a pair needs a job: none is queued, and what is there is failed, old, or wanted again."""
        if one.is_queued or one.state is State.MEASURED:
            return False
        is_old = one.job is None or one.job.code != copies.built_from(self._asked.notebooks[one.pair], code)
        return again or is_old or one.state is not State.PUBLISHED

    def _start(self, ahead: Sequence[Pair], standings: Sequence[Standing], code: Path) -> list[Pair]:
        """Give the cluster as many jobs as it may have at once, and return the pairs that are left."""
        queued = {one.pair for one in standings if one.is_queued}
        left = [pair for pair in ahead if pair not in queued]
        while left and len(queued) < self._cluster.at_once and not self._is_silent:
            try:
                self._submit(left[0], code)
            except SilentError as error:
                self._note_silence(error)
                break
            queued.add(left.pop(0))
        return left

    def _submit(self, pair: Pair, code: Path) -> None:
        """Give the cluster a pair's next job. Raises `SetupError`, `OSError`."""
        notebook, last = self._asked.notebooks[pair], pair.job()
        copies.prepare(pair, notebook, code)
        document = load(pair.document)
        job = Job(
            attempt=last.attempt + 1 if last else 1,
            code=copies.built_from(notebook, code),
            cluster=self._cluster.name,
            submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        pair.note(job)
        limit_s = estimates.limit_s(document, Store(document), self._settings)
        call = Call(pair=pair, attempt=job.attempt)
        number = self._cluster.submit(call, self._asked.targets[pair.target], limit_s)
        pair.note(msgspec.structs.replace(job, id=number))

    def _look(self, before: Sequence[Standing] = ()) -> list[Standing]:
        """Return how far each pair is; while the cluster is silent, how far it was before."""
        try:
            queued = self._cluster.queued(self._asked.pairs)
        except SilentError as error:
            if not before:
                raise
            self._note_silence(error)
            return list(before)
        self._is_silent = False
        return [self._noting(standing(pair, queued)) for pair in self._asked.pairs]

    def _note_silence(self, error: SilentError) -> None:
        if not self._is_silent:
            self._note(str(error))
        self._is_silent = True

    def _publish(self, standings: Sequence[Standing]) -> list[Standing]:
        """Publish what was measured, draw the site, and return how far each pair is then. Raises `OSError`."""
        measured = {one.pair: one.job for one in standings if one.state is State.MEASURED and one.job}
        if not measured:
            return list(standings)
        from fluxbench.fleet.taking import take  # which takes longer to load, and more memory, than all the rest
        from fluxbench.site.draw import draw

        refused = {pair: take(pair, self._settings, self._reports) for pair in measured}
        for problem in draw(self._reports).problems:
            self._note(problem)
        for pair, job in measured.items():
            pair.note(msgspec.structs.replace(job, is_published=not refused[pair], refused=refused[pair]))
        return [self._noting(standing(one.pair, {})) if one.pair in measured else one for one in standings]

    def _noting(self, one: Standing) -> Standing:
        """Say how far a pair is, where that has changed."""
        if self._noted.get(one.pair) != one.text():
            self._noted[one.pair] = one.text()
            self._note(one.text())
        return one
