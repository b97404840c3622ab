"""Which variant a process times beside all others: a clock, of which the time counts and not the output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from fluxbench.operations.protocol import Bound

Calls = dict[str, Bound]  # by workload


@dataclass
class Clocks:
    """Calls of variants that run and whose outputs alone are wrong, by variant and workload."""

    calls: dict[tuple[str, str], Bound] = field(default_factory=dict)

    def of(self, name: str, workloads: Iterable[str]) -> Calls:
        """Return those of a variant at some workloads."""
        return {workload: self.calls[name, workload] for workload in workloads if (name, workload) in self.calls}


def groups(
    references: Collection[str],
    variants: Collection[str],
    workloads: Collection[str],
    right_calls: Callable[[str, Collection[str]], Calls],
    clocks: Clocks,
) -> Iterator[tuple[str, Calls]]:
    """Yield references with their calls, each of the workloads that are timed beside it: one of all where it can be.

    Where that one cannot be timed, for want of memory say, it is another reference, or else one of the variants.
    `right_calls` builds and checks a variant at some workloads, and returns its calls where it was right.
    """
    rest = dict.fromkeys(workloads)
    tried: dict[str, Calls] = {}

    def known(name: str) -> Calls:
        if name not in tried:
            tried[name] = right_calls(name, rest)
        return {workload: bound for workload, bound in tried[name].items() if workload in rest}

    candidates = [*references]
    while rest:
        name, calls = _best(candidates, rest, known, clocks)
        if not calls and len(candidates) > len(references):
            return
        if calls:
            yield name, calls
        rest = {workload: None for workload in rest if workload not in calls}
        candidates = [*references, *variants]


def _best(
    names: Iterable[str], workloads: Collection[str], right_calls: Callable[[str], Calls], clocks: Clocks
) -> tuple[str, Calls]:
    """Return the first variant that can be timed at the most workloads, with its calls; neither if none can.

    Where its output is wrong its time is as good a measure of the device as any: ratios of the others are over it, and
    its own record says that it is INCORRECT. One that is right nowhere comes after those that are right somewhere.
    """
    best: tuple[str, Calls] = "", {}
    most = (False, 0)
    for name in dict.fromkeys(names):
        right = right_calls(name)
        calls = {**clocks.of(name, workloads), **right}
        if (bool(right), len(calls)) > most:
            best, most = (name, calls), (bool(right), len(calls))
        if right and len(calls) == len(workloads):
            break
    return best
