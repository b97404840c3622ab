"""How far each pair is: from what is noted in its folder, and from the cluster's queue."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from fluxbench.fleet.cluster import Queued
from fluxbench.fleet.pair import Job, Pair


class State(enum.StrEnum):
    """How far a pair is."""

    NEW = "not started"
    PENDING = "pending"
    RUNNING = "running"
    MEASURED = "measured"  # and not published yet
    PUBLISHED = "published"
    FAILED = "failed"
    LOST = "lost"  # its job ended without saying how: killed, or with its node


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A pair's state, and what there is to say about it."""

    pair: Pair
    state: State
    job: Job | None
    problems: tuple[str, ...] = ()
    detail: str = ""  # where it runs or ran, or why it waits

    @property
    def is_queued(self) -> bool:
        """Whether the cluster has a job of it."""
        return self.state in (State.PENDING, State.RUNNING)

    def text(self) -> str:
        """Return it as a line."""
        job = f"job {self.job.id}" if self.job and self.job.id else ""
        return f"{self.pair}: " + ", ".join(filter(None, (self.state.value, job, self.detail)))


def standing(pair: Pair, queued: Mapping[Pair, Queued]) -> Standing:
    """Return how far a pair is. `queued` must be from before the call, since a job's result is there when it ends."""
    job = pair.job()
    if waits := queued.get(pair):
        state = State.RUNNING if waits.is_running else State.PENDING
        return Standing(pair=pair, state=state, job=job, detail=waits.detail)
    if job is None:
        return Standing(pair=pair, state=State.NEW, job=None)
    if job.is_published:
        return Standing(pair=pair, state=State.PUBLISHED, job=job)
    result = pair.result(job)
    if result is None:
        problem = f"its job ended without a result; see {pair.logs} and {pair.home / 'build.log'}"
        return Standing(pair=pair, state=State.LOST, job=job, problems=(problem,))
    where = f"on {result.host}"
    if result.exit_code:
        problems = result.problems or (_end(result.exit_code),)
        return Standing(pair=pair, state=State.FAILED, job=job, problems=problems, detail=where)
    if job.refused:
        return Standing(pair=pair, state=State.FAILED, job=job, problems=job.refused, detail=where)
    return Standing(pair=pair, state=State.MEASURED, job=job, detail=where)


def _end(exit_code: int) -> str:
    """Return how a build ended that said nothing."""
    return f"signal {-exit_code} killed the build" if exit_code < 0 else f"the build ended with exit code {exit_code}"
