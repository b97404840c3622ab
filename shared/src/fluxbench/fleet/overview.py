"""`fluxbench fleet status`: what runs where, of all pairs that ever had a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.formatting import utc
from fluxbench.fleet.cluster import Cluster, Queued
from fluxbench.fleet.pair import Pair, known
from fluxbench.fleet.standing import Standing, State, standing


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The pairs, by target and notebook."""

    standings: tuple[Standing, ...]

    @property
    def is_done(self) -> bool:
        """Whether every pair is published."""
        return all(one.state is State.PUBLISHED for one in self.standings)

    def text(self) -> str:
        """Return it for a person: a line for each pair, and one for each problem."""
        if not self.standings:
            return "No fleet has run here."
        rows = [("target", "notebook", "state", "job", "submitted", "")]
        for one in self.standings:
            number, when = (one.job.id or "", utc(one.job.submitted_at)) if one.job else ("", "")
            rows.append((one.pair.target, one.pair.notebook, one.state.value, number, when, one.detail))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for row, problems in zip(rows, [(), *(one.problems for one in self.standings)], strict=True):
            lines.append("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
            lines += [f"    {problem}" for problem in problems]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return it as JSON."""
        facts = [
            {
                "target": one.pair.target,
                "notebook": one.pair.notebook,
                "state": one.state.value,
                "job": one.job.id if one.job else None,
                "attempt": one.job.attempt if one.job else None,
                "submitted_at": one.job.submitted_at if one.job else None,
                "detail": one.detail,
                "problems": one.problems,
            }
            for one in self.standings
        ]
        return json.dumps({"pairs": facts, "done": self.is_done}, indent=1)


def overview(fleet: Path, clusters: Mapping[str, Cluster]) -> Overview:
    """Return how far the pairs are. Writes nothing. Raises `SetupError` where a cluster does not answer."""
    pairs = list(known(fleet))
    queued: dict[Pair, Queued] = {}
    for name, cluster in clusters.items():
        queued.update(cluster.queued([pair for pair in pairs if (job := pair.job()) and job.cluster == name]))
    return Overview(standings=tuple(standing(pair, queued) for pair in pairs))


def problems(standings: Sequence[Standing]) -> list[str]:
    """Return a sentence for each pair that is not published."""
    return [
        f"{one.text()}{': ' if one.problems else ''}{'; '.join(one.problems)}"
        for one in standings
        if one.state is not State.PUBLISHED
    ]
