"""The rows of short calls that a trial times: at which workloads there are some, and why at others there are none."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from fluxbench import operations
from fluxbench.correctness.content import fresh_inputs
from fluxbench.operations.protocol import Bound
from fluxbench.timing.graph import SPARE_OF_SHORT, CapturedCalls, GraphPool, GraphRefused
from fluxbench.timing.lead import MOST_LAUNCH_S
from fluxbench.timing.parts import Key
from fluxbench.timing.plan import Plan
from fluxbench.timing.rotation import Rotation
from fluxbench.timing.rows import Row, calls_in_a_row, launched
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.worker.prepared import PreparedWorkload

_BEFORE = 1  # turns of a row before the first that is judged: its capture
_NEARLY = 1.25  # times as many calls as it has, up to which a row needs no more
_SOME = 4  # calls in succession that tell how many a row needs
_LONG_S = 0.1  # a call that takes so long is warm by itself; recording a graph takes up to 0.03 s
_REPLAYS = 3  # of a first row, of which the shortest tells: other workers use the device meanwhile
Calls = tuple[str, Mapping[str, Bound]]  # a variant, and what is timed of it by workload


class Rows:
    """The rows of a variant and of the reference beside it, which are captured once for all trials.

    Nothing that is timed here is kept, so other workers may use the device meanwhile.

    `own` are the variant's, by workload; `by_key` has the reference's too. `refused` says by workload why a short call
    of the variant has none. `known` is how many calls an earlier process had in a row, by variant and workload; 0 where
    it had none.
    """

    def __init__(
        self,
        variant: Calls,
        reference: Calls,
        workloads: Mapping[str, PreparedWorkload],
        stopwatch: Stopwatch,
        plan: Plan,
        rng: random.Random,
        known: Mapping[str, Mapping[str, int]] | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """`pause` is called between two rows, and may let others have the device alone."""
        self.own: dict[str, Row] = {}
        self.refused: dict[str, str] = {}
        self.by_key: dict[Key, Row] = {}
        self._launched: dict[str, tuple[float, float]] = {}
        spare = SPARE_OF_SHORT if plan.row_below_s < math.inf else None
        self._pool = GraphPool(stopwatch.device, spare) if plan.row_s and stopwatch.device.type == "cuda" else None
        self.found: dict[Key, Row | None] = {}  # less those that are refused
        asked: dict[Key, tuple[Bound, PreparedWorkload]] = {}
        for workload in variant[1] if plan.row_s else ():
            if reference[0] not in workloads[workload].rows:
                asked[reference[0], workload] = reference[1][workload], workloads[workload]
            if variant[0] != reference[0]:
                asked[variant[0], workload] = variant[1][workload], workloads[workload]

        def row(key: Key, calls: int) -> Row | str | None:
            pause()
            return _row(*asked[key], plan, rng, self._pool, beside=key[0] == reference[0], calls=calls)

        told = {(name, workload): calls for name, of in (known or {}).items() for workload, calls in of.items()}
        open_ = {key: each for key, each in asked.items() if each[0].captured and key not in told}
        told |= {key: calls_in_a_row(call_s, plan) for key, call_s in _warm_each_s(open_, stopwatch, plan).items()}
        made = {key: row(key, told.get(key, 0)) for key in asked}
        first = {key: one for key in open_ if isinstance(one := made[key], Row)}
        for (key, one), row_s in zip(first.items(), _replays_s([*first.values()], stopwatch), strict=True):
            if (needed := calls_in_a_row(row_s / one.calls, plan)) > _NEARLY * one.calls:
                made[key] = row(key, needed)
        self._variant, self._reference, self._workloads, self._plan = variant, reference, workloads, plan
        self._row, self._doubtful = row, {key: each for key, each in open_.items() if not told[key]}
        self._take_in(made)

    def settle(self, stopwatch: Stopwatch) -> None:
        """Make the rows of short calls that seemed too long for one, as other workers' work came between their events.

        To be called while no other worker uses the device.
        """
        doubtful, self._doubtful = self._doubtful, {}
        calls_s = _warm_each_s(doubtful, stopwatch, self._plan, passes=2)
        counts = {key: calls_in_a_row(call_s, self._plan) for key, call_s in calls_s.items()}
        self._take_in({key: self._row(key, count) for key, count in counts.items() if count})

    def _take_in(self, made: dict[Key, Row | str | None]) -> None:
        """Note which rows there are, and why there are no others."""
        (own, calls), (reference, _) = self._variant, self._reference
        refused = self._pool.refused() if self._pool else {}
        every = dict(made)
        every |= {key: why for key, row in made.items() if isinstance(row, Row) and (why := refused.get(row.launch))}
        for (name, workload), one in every.items():
            if not isinstance(one, str):
                self.found[name, workload] = one
            if name == reference:
                self._workloads[workload].rows[name] = one
        for workload in calls if self._plan.row_s else ():
            every[reference, workload] = self._workloads[workload].rows[reference]
            for name in dict.fromkeys((reference, own)):
                one = every.get((name, workload))
                if isinstance(one, Row):
                    self.by_key[name, workload] = one
                if name == own and isinstance(one, Row):
                    self.own[workload] = one
                elif name == own and isinstance(one, str):
                    self.refused[workload] = one

    def replayed_s(self, workload: str, stopwatch: Stopwatch) -> float | None:
        """Return how long a call of the variant takes in its row, at least; None where it has none at a workload."""
        row = self.own.get(workload)
        return _replays_s([row], stopwatch)[0] / row.calls if row else None

    def launch(self, stopwatch: Stopwatch, calls: Mapping[str, Bound]) -> Mapping[str, Row]:
        """Time the variant's calls where the host launches them; return its rows."""
        self._launched = {name: launched(stopwatch, calls[name].call, row) for name, row in self.own.items()}
        return self.own

    @property
    def launch_ms(self) -> dict[str, float]:
        """The time of the host for a call, by workload."""
        return {name: host_ms for name, (_, host_ms) in self._launched.items()}

    @property
    def fields(self) -> dict[str, object]:
        """What `bench.events.BurstSamples` has of rows."""
        return {
            "calls": {name: row.calls for name, row in self.own.items()},
            "launched_ms": {name: ms for name, (ms, _) in self._launched.items()},
            "refused": self.refused,
        }


def warm_s(bound: Bound, prepared: PreparedWorkload, stopwatch: Stopwatch) -> float:
    """Return how long a warm call takes, on contents that no other call gets."""
    inputs = bound.prepared(fresh_inputs(prepared.workload, stopwatch.device))
    stopwatch.wait()
    stopwatch.spin(0.0, 5)
    stopwatch.record()
    bound.call(inputs)
    stopwatch.record()
    return stopwatch.between_ms()[0] / 1e3


def warm_up(
    variant: Calls,
    reference: Calls,
    largest: str,
    workloads: Mapping[str, PreparedWorkload],
    stopwatch: Stopwatch,
    plan: Plan,
) -> float:
    """Return how long a warm call of a variant takes at its largest workload, by which its rounds are counted.

    That is the shorter of two, unless the first takes long: it may have waited for the host, or recorded a graph.
    Before a single round the calls of it that take most memory are made once, the reference's too: a first one takes
    memory from the driver, which the check has given back, and others find enough. Of several rounds the median is that
    of another call.
    """
    if plan.max_rounds > 1:
        warm = functools.partial(warm_s, variant[1][largest], workloads[largest], stopwatch)
        call_s = warm()
        return call_s if call_s > _LONG_S else min(call_s, warm())
    some = dict.fromkeys((largest, *by_memory(variant[1], workloads)[-1:]))
    seconds = {name: warm_s(variant[1][name], workloads[name], stopwatch) for name in some}
    for name in some if variant[0] != reference[0] else ():
        warm_s(reference[1][name], workloads[name], stopwatch)
    return seconds[largest]


def by_memory(names: Iterable[str], workloads: Mapping[str, PreparedWorkload]) -> list[str]:
    """Return names of workloads by the elements of their attention, which a call's memory grows with."""
    asked = {name: workloads[name].workload for name in names}
    elements = {name: operations.find(one.operation).attention(one.shape).elements for name, one in asked.items()}
    return sorted(elements, key=lambda name: elements[name])


def take_memory(
    variant: Calls,
    reference: Calls,
    largest: tuple[str, float],
    rounds: int,
    workloads: Mapping[str, PreparedWorkload],
    stopwatch: Stopwatch,
    plan: Plan,
) -> None:
    """Make the calls with most bytes once before `rounds` of which one is all that a long call has, as `warm_up`.

    `largest`: the workload with the most operations, and how long a call takes there.
    """
    most = max(variant[1], key=lambda name: workloads[name].workload.cost.min_bytes)
    call_s = largest[1] if most == largest[0] else warm_s(variant[1][most], workloads[most], stopwatch)
    if plan.rounds_of(call_s, rounds) == 1 and variant[0] != reference[0]:
        warm_s(reference[1][most], workloads[most], stopwatch)


def call_largest(
    variant: Calls, reference: Calls, some: Sequence[str], workloads: Mapping[str, PreparedWorkload]
) -> None:
    """Make the calls with most bytes at some workloads, whose memory captures may have given back, and do not wait."""
    if some:
        most = max(some, key=lambda name: workloads[name].workload.cost.min_bytes)
        for _, calls in (reference, variant):
            calls[most](workloads[most].contents.inputs)


def _warm_each_s(
    calls: Mapping[Key, tuple[Bound, PreparedWorkload]], stopwatch: Stopwatch, plan: Plan, passes: int = 1
) -> dict[Key, float]:
    """Return how long a warm call of each takes, at least; of a short one the mean of a few, which share two events.

    All are launched before the device is waited for: each wait lasts as long as the turns of all other workers. The
    device is kept busy before each for as long as the host took to launch it before.
    """
    given = {key: bound.prepared(prepared.contents.inputs) for key, (bound, prepared) in calls.items()}
    launch_s = dict.fromkeys(calls, 0.0)

    def means_s(keys: Sequence[Key], count: int) -> dict[Key, float]:
        for key in keys:
            stopwatch.spin(min(MOST_LAUNCH_S, count * launch_s[key]), count)
            stopwatch.record()
            began = time.perf_counter()
            for _ in range(count):
                calls[key][0].call(given[key])
            launch_s[key] = (time.perf_counter() - began) / count
            stopwatch.record()
        times = stopwatch.between_ms()[::2] if keys else []
        return {key: ms / 1e3 / count for key, ms in zip(keys, times, strict=True)}

    found = means_s([*calls], 1)
    for _ in range(passes - 1):
        found = {key: min(found[key], call_s) for key, call_s in means_s([*calls], 1).items()}
    return found | means_s([key for key, call_s in found.items() if call_s < plan.row_s], _SOME)


def _row(
    bound: Bound,
    prepared: PreparedWorkload,
    plan: Plan,
    rng: random.Random,
    pool: GraphPool | None,
    *,
    beside: bool,
    calls: int,
) -> Row | str | None:
    """Return a row of so many calls, why there is none, or None where a call is a sample by itself.

    The row of a reference `beside` a variant reads the variant's slots, unless what is prepared for a call depends on
    what a slot holds.
    """
    if not calls:
        return None
    workload = prepared.workload
    if operations.find(workload.operation).attention(workload.shape).retain_graph:
        return "the forward pass before it is not in the graph"
    apart = beside and bound.prepare is not None
    contents = prepared.contents.apart if apart else prepared.contents
    whole = _BEFORE + rng.randrange(plan.rounds(math.inf))  # a turn that there is, however long the calls are
    try:
        given = Rotation(bound, contents, prepared.case, calls, rng, whole=whole)
        return Row(calls, given, CapturedCalls(bound.call, given.turn(calls), pool, within=prepared.replays_within))
    except GraphRefused as error:
        if error.lack:  # a single call would be no such time
            raise error.lack from None
        return str(error)


def _replays_s(rows: Sequence[Row], stopwatch: Stopwatch) -> list[float]:
    """Return how long each row takes at least, with the contents that its slots have now."""
    for row in rows:
        stopwatch.spin(0.0, _REPLAYS)
        for _ in range(_REPLAYS):
            stopwatch.record()
            row.launch([])
            stopwatch.record()
    times = stopwatch.between_ms()[::2] if rows else []
    return [min(times[place : place + _REPLAYS]) / 1e3 for place in range(0, len(times), _REPLAYS)]
