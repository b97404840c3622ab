"""Burst: single calls between two device events on a rested device.

Each call gets contents that it has not seen, copied to the same addresses right before it; the last-level cache is
cleared after that. Calls of about one length are interleaved in random order, and the device rests between rounds, and
in a round before longer calls.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fluxbench.correctness.content import Content
from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.timing.lead import Lead
from fluxbench.timing.parts import Key, first_key, in_parts
from fluxbench.timing.plan import Plan
from fluxbench.timing.processor import all_ms, others_ms
from fluxbench.timing.rows import Row
from fluxbench.timing.stopwatch import Stopwatch

Keep = Callable[[Key, Mapping[str, object], Content | None], None]  # what a call returned, for which content

_LEAST_REST_S = 0.05  # of a GPU from calls of one kind to those of another
_REST = 0.25  # of a GPU after a round, over the time of that round
_MAX_REST_S = 0.5  # twice what a card at its power limit needs to its full clock
_UNTIMED_MS = 1.0  # of a call that is made before each part; a longer one would tire the device
_TIRING_MS, _RECOVERY_S = 20.0, 0.25  # calls of a part after which a card at its power limit has its full clock so late
_LATE, _ROUNDS_OF_LATE = 0.5, 3  # of a call's time the host's share, with which it may have waited, or recorded a graph


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The samples of some rounds: each callable's, one in each of `rounds`, which is all or some of them.

    `late` are those of a GPU for which the device may have waited for the host; where calls begin on an idle device it
    is not known. Processor times are of a CPU and of callables with a workload. `others_ms` is what other threads took
    from the change of contents to the call; `resting_ms` what they took in the rest before a round.
    """

    samples_ms: dict[Key, list[float]]
    rounds: dict[Key, list[int]]  # of each sample, from 0
    places: dict[Key, list[int]]  # of each sample in the order of its round, from 0
    spans: dict[Key, list[tuple[float, float]]]  # of each sample, begin and end of the part of its round
    times: list[tuple[float, float]] = field(default_factory=list)  # begin and end of each round, monotonic seconds
    late: dict[Key, list[int]]  # samples, from 0
    launch_ms: dict[Key, list[float]]  # time of the host in a call, while the device is busy
    others_ms: dict[Key, list[float]]
    call_cpu_ms: dict[Key, list[float]]  # of all threads in a call
    resting_ms: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Burst:
        """Return one without a round yet."""
        names = ("samples_ms", "rounds", "places", "spans", "late", "launch_ms", "others_ms", "call_cpu_ms")
        by_key: dict[str, Any] = {name: {key: [] for key in keys} for name in names}
        return cls(**by_key)


def burst(
    stopwatch: Stopwatch,
    calls: Mapping[Key, Bound],
    rounds: int,
    contents: Mapping[str, Contents],
    rng: random.Random,
    plan: Plan,
    keep: Keep,
    rows: Mapping[Key, Row] | None = None,
    cheap: Collection[str] = (),
    measured: str | None = None,
    part_of: Mapping[str, int] | None = None,
) -> Burst:
    """Time every callable once a round, in random order, with a rest before each round.

    On a GPU a round may have parts, one after the other: `part_of` says in which one the single calls of a workload
    are (`timing.parts`), all others are in the first. A later part begins after a rest of a quarter of the one before.
    Such a round begins 0.25 s after the last part whose calls took 20 ms or more, or after the first rest of a grid.

    On a GPU workloads at which a call of the `measured` variant is long take part in the first round and in as many
    more as `Plan.rounds_of` gives for its time there, the reference beside it too. Those with equally many take part in
    the same ones, at random. Where that may be the host's time, the next round tells, or the third, and the shortest
    sample counts. Rounds without a workload are left out.

    A key is a variant and the workload whose `contents` it gets, new ones right before each of its calls; a callable of
    no workload gets none. The first one of a round is called, untimed, at its begin on a GPU, and where it is known to
    be short at that of each part, on contents of the round before. `keep` gets what each timed call returned, before
    another one runs. A key of `rows` has several calls in its place, whose mean is the sample; `keep` gets the last
    one's output. The first rest is `first_rest_s`. Others are at least `min_rest_s`, and on a GPU a quarter of the
    round before, up to 0.5 s. Where there are rows alone, whose calls are short, all rests are `min_rest_s`. `Lead`
    keeps the device busy until the host is ahead, which it tries at `cheap` workloads if there are some. Calls of more
    launches than a queue holds begin on an idle device, as do all beside them: the host would be ahead by as much as
    the call before left it.

    Rows of calls however long (`Plan.row_below_s`) are timed as whoever replays a graph again and again has them: its
    first replay after the host has launched its kernels takes less time than those that follow. So each is replayed
    once before the rounds, a replay is what is untimed, and where other calls are launched one precedes each row.
    """
    taken, rows = Burst.of(calls), rows or {}
    single = {key for key in calls if key not in rows and key[1] in contents}
    drawn = {key: contents[key[1]].draw(rounds, rng) if key in single else [] for key in calls}
    idle = any(bound.idle for bound in calls.values())
    part_of = {} if stopwatch.on_cpu else {key[1]: (part_of or {}).get(key[1], 0) for key in single}
    first = first_key(calls, part_of)
    warm_rows = rows if plan.row_below_s == math.inf else {}
    launched = None if first in warm_rows else first
    lead = Lead(stopwatch, calls, contents, rows, launched, cheap, grid=bool(plan.row_s))
    for each in warm_rows.values():
        each.launch(())
    rests = bool(single) and not stopwatch.on_cpu
    rest = plan.first_rest_s if rests or stopwatch.on_cpu else plan.min_rest_s
    recovery_s = plan.first_rest_s if plan.row_s else _RECOVERY_S
    if len({*part_of.values()}) > 1:
        rest = max(rest, recovery_s)  # after the long calls of another variant
    tired_until = -math.inf
    counts, of_workloads = dict.fromkeys(calls, rounds), [key for key in calls if key[1]]
    undecided = [key for key in single if key[0] == measured and not stopwatch.on_cpu]
    ranks = [0, *(rng.sample(range(1, rounds), rounds - 1) if measured and not stopwatch.on_cpu else range(1, rounds))]

    def launch(key: Key) -> None:
        """Put a timed call, on contents that none has had, into the device's queue."""
        began_s = time.perf_counter()
        if single and key in warm_rows:
            warm_rows[key].launch(())
        content = drawn[key][len(taken.launch_ms[key])] if drawn[key] else None
        before_ms = others_ms()
        inputs = contents[key[1]].put(content) if content else {}
        changing_ms = others_ms() - before_ms
        call, prepared = _next(key, calls, rows, inputs)
        before_ms = others_ms()
        if idle:
            stopwatch.begin_idle()
        stopwatch.clear_cache()
        taken.others_ms[key].append(changing_ms + others_ms() - before_ms)
        before_ms = all_ms()
        stopwatch.record()
        started = time.perf_counter()
        out = call(prepared)
        taken.launch_ms[key].append(1e3 * (time.perf_counter() - started))
        stopwatch.record()
        if not idle and stopwatch.host_was_late():
            taken.late[key].append(len(taken.launch_ms[key]) - 1)
        taken.call_cpu_ms[key].append(all_ms() - before_ms)
        keep(key, out, content)
        lead.took(key, time.perf_counter() - began_s)

    for rank in ranks:
        if rank and rank >= max((counts[key] for key in of_workloads), default=rounds):
            continue
        schedule = [key for key in calls if rank < counts[key]]
        first, place = first_key(schedule, part_of), 0
        last_ms = {
            key: its[-1] * (rows[key].calls if key in rows else 1) for key, its in taken.samples_ms.items() if its
        }
        parts = in_parts(schedule, part_of, last_ms, rng)
        for number, part in enumerate(parts):
            stopwatch.wait()
            before_ms = others_ms()
            time.sleep(rest)
            began_part = time.monotonic()
            if not number:
                taken.resting_ms.append(others_ms() - before_ms)
                began = began_part
            # What runs first finds a device that did nothing: cuDNN was 0.6% slower there, of 0.4 ms.
            untimed = not stopwatch.on_cpu and (not number or last_ms.get(first, math.inf) <= _UNTIMED_MS)
            lead.take(schedule, part, first if untimed else None)
            if untimed:
                stopwatch.clear_cache()
                if row := warm_rows.get(first):
                    row.launch(())
                else:
                    calls[first](contents[first[1]].inputs)
            for key in part:
                launch(key)
            samples_ms = stopwatch.between_ms()[::2]
            ended = time.monotonic()
            for key, sample in zip(part, samples_ms, strict=True):
                taken.samples_ms[key].append(sample / (rows[key].calls if key in rows else 1))
                taken.places[key].append(place)
                taken.rounds[key].append(len(taken.times))
                taken.spans[key].append((began_part, ended))
                place += 1
            rest = rest_after(ended - began_part)
            if sum(samples_ms) >= _TIRING_MS:
                tired_until = ended + recovery_s
        taken.times.append((began, ended))
        for key in list(undecided):
            samples, latest_ms = taken.samples_ms[key], taken.launch_ms[key][-1]
            if latest_ms > _LATE * samples[-1] and len(samples) < min(rounds, _ROUNDS_OF_LATE):
                drawn[key] = _with_whole_in(drawn[key], _ROUNDS_OF_LATE)
                continue
            undecided.remove(key)
            count = plan.rounds_of(min(samples) / 1e3, rounds)
            if len(samples) == 1:
                drawn[key] = _first_of(drawn[key], count)
                count = len(drawn[key])
            counts |= {beside: count for beside in calls if beside[1] == key[1]}
        rest = max(plan.min_rest_s, rest_after(ended - began)) if rests else plan.min_rest_s
        if len(parts) > 1:
            rest = max(rest, tired_until - time.monotonic())
    return taken


def _first_of(drawn: Sequence[Content], count: int) -> list[Content]:
    """Return the first of some contents, the first one included; with whole outputs one at least, if any has.

    That may take one more than `count`.
    """
    if _place_of_whole(drawn) >= count:
        count = max(2, count)
    return _with_whole_in(drawn, count)[:count]


def _with_whole_in(drawn: Sequence[Content], first: int) -> list[Content]:
    """Return all of some contents, with whole outputs one of the `first`, the last of these, if any has them."""
    place = _place_of_whole(drawn)
    if place < first:
        return list(drawn)
    return [*drawn[: first - 1], drawn[place], *drawn[first:place], drawn[first - 1], *drawn[place + 1 :]]


def _place_of_whole(drawn: Sequence[Content]) -> int:
    """Return the place of the first content with whole outputs; 0 where none has them."""
    return next((place for place, content in enumerate(drawn) if content.expected is not None), 0)


def rest_after(round_s: float) -> float:
    """Return how long a GPU rests after a round, in seconds."""
    return min(_MAX_REST_S, _REST * round_s)


def rest_between(calls_s: float) -> float:
    """Return how long a GPU rests from calls that lasted `calls_s` to the first round of others, in seconds."""
    return max(_LEAST_REST_S, rest_after(calls_s))


def copies(outputs: Mapping[str, object]) -> dict[str, object]:
    """Return copies of the outputs that are tensors, made in the order of the stream."""
    return {name: out.clone() if isinstance(out, torch.Tensor) else out for name, out in outputs.items()}


def _next(
    key: Key, calls: Mapping[Key, Bound], rows: Mapping[Key, Row], inputs: Tensors
) -> tuple[Callable[[Any], Mapping[str, object]], Any]:
    """Return what is timed, and what it gets: a call with these inputs prepared, or a row's calls."""
    if row := rows.get(key):
        return row.launch, row.given.turn(row.calls)
    return calls[key].call, calls[key].prepared(inputs)
