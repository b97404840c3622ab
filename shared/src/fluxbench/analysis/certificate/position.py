"""Does it matter where in an order something is timed? From samples whose place is known, and turns whose place is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from fluxbench.analysis.certificate.runs import Trials

THIRDS = ("first", "middle", "last")
IN_ROUND, IN_PROCESS = "place of a call in its round", "turn of a variant in its process"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How far the medians of three thirds of an order lie from the median of all, as shares, for one kernel."""

    kind: str  # `IN_ROUND` or `IN_PROCESS`
    base: str
    thirds: tuple[float | None, ...]  # as in `THIRDS`; None: nothing was timed there
    noise: float  # one standard error of such a median, the largest of the three
    count: int  # samples, or turns

    @property
    def largest(self) -> float:
        """The largest deviation, without its sign."""
        return max(abs(third) for third in self.thirds if third is not None)


def effects(trials: Trials) -> list[Effect]:
    """Return both kinds of effect of each kernel, its forms and workloads pooled.

    In a round: samples over the median of their own turn and workload. In a process: medians of turns over the median
    of all processes' at that variant and workload, the mean over workloads, so that a turn is one number.
    """
    found = []
    for base in trials.bases:
        in_round, in_process = _in_rounds(trials, base), _in_processes(trials, base)
        for kind, points in ((IN_ROUND, in_round), (IN_PROCESS, in_process)):
            if effect := _effect(kind, base, list(points)):
                found.append(effect)
    return found


def largest(found: Sequence[Effect]) -> Effect | None:
    """Return the effect with the largest deviation; None of none."""
    return max(found, key=lambda effect: effect.largest, default=None)


def _of_base(trials: Trials, base: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, run in enumerate(trials.runs):
        passed = {(record.variant, record.workload.name) for record in run.records if record.burst}
        for part in run.places:
            if trials.forms[part["variant"]].base == base and (part["variant"], part["workload"]) in passed:
                yield number, part


def _in_rounds(trials: Trials, base: str) -> Iterator[tuple[int, float]]:
    """Yield of each sample its third of the round and its deviation."""
    for _, part in _of_base(trials, base):
        middle = median(part["samples_ms"])
        for place, sample in zip(part["places"], part["samples_ms"], strict=True):
            yield _third(place, part["of"]), sample / middle - 1


def _in_processes(trials: Trials, base: str) -> Iterator[tuple[int, float]]:
    """Yield of each turn its third of the process and its deviation, the mean over its workloads."""
    medians: dict[tuple[str, str], list[float]] = {}
    turns: dict[tuple[int, int, str], list[tuple[int, str, float]]] = {}
    for number, part in _of_base(trials, base):
        middle = median(part["samples_ms"])
        medians.setdefault((part["variant"], part["workload"]), []).append(middle)
        key = number, part["process"], part["variant"]
        turns.setdefault(key, []).append((_third(part["turn"], part["turns"]), part["workload"], middle))
    overall = {key: median(its) for key, its in medians.items()}
    for (_, _, variant), its in turns.items():
        yield its[0][0], fmean(middle / overall[variant, workload] - 1 for _, workload, middle in its)


def _third(place: int, of: int) -> int:
    return min(2, 3 * place // of)


def _effect(kind: str, base: str, points: Sequence[tuple[int, float]]) -> Effect | None:
    if not points:
        return None
    overall = median(deviation for _, deviation in points)
    thirds = [[deviation for third, deviation in points if third == which] for which in range(len(THIRDS))]
    return Effect(
        kind=kind,
        base=base,
        thirds=tuple(median(its) - overall if its else None for its in thirds),
        noise=max(_error(its) for its in thirds if its),
        count=len(points),
    )


def _error(values: Sequence[float]) -> float:
    """Return the standard error of a median, of values that are all but normal: sqrt(pi / 2) of that of the mean.

    Their spread is 1.4826 times the median absolute deviation, which a few outliers do not change. Of one value nothing
    is known.
    """
    if len(values) < 2:
        return math.inf
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    return math.sqrt(math.pi / 2) * spread / math.sqrt(len(values))
