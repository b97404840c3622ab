"""A CPU's rounds: a variant and the reference in turn, on a clock that other programs' work moves too."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from clocks import ON_CPU, PLAN, Clock
from sample_records import changed, record

from fluxbench.analysis.ranking import Ordering
from fluxbench.records.schema import Record
from fluxbench.timing import interleaved
from fluxbench.timing.interleaved import (
    LEAST_RATIOS,
    LEAST_ROUNDS,
    NARROW,
    WIDE,
    WIDE_FOR,
    Side,
    half_interval,
    interleave,
)
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import Block


@pytest.fixture(autouse=True)
def _no_thread_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaved, "wait_for_quiet", lambda: None)  # it looks at real threads, in real time


class InTurn:
    """Numbers for calls in turn, and what the last call of each turn returned."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.kept: list[Any] = []

    def turn(self, calls: int) -> list[int]:
        return list(itertools.islice(self.numbers, calls))

    def keep(self, outputs: Any) -> None:
        self.kept.append(outputs)


class Busy:
    """A machine on which other programs come and go: a call gets a share of it that changes at random times."""

    def __init__(self, clock: Clock, seed: int, shares: Sequence[float] = (1.0, 1.0, 0.5, 0.3)) -> None:
        self.clock, self.rng, self.shares = clock, random.Random(seed), shares
        self.until, self.share = clock.now, 1.0

    def work(self, seconds: float) -> None:
        """Let a call pass that takes so long on an idle machine."""
        while seconds > 1e-12:
            if self.clock.now >= self.until:
                self.share = self.rng.choice(self.shares)
                self.until = self.clock.now + self.rng.expovariate(2.0)
            step = min(seconds, self.share * (self.until - self.clock.now))
            seconds -= step
            self.clock.now += step / self.share + 1e-9

    def call(self, seconds: float) -> Callable[[Any], None]:
        """Return a call that takes so long on an idle machine."""
        return lambda _: self.work(seconds)

    def rounds(self, own_s: float, reference_s: float | None, workloads: int = 1) -> Block:
        """Return the rounds of a call that takes so long beside one of a reference; None: of the reference alone."""
        names = [f"length {number}" for number in range(workloads)]
        sides = [
            Side(calls=dict.fromkeys(names, self.call(s)), given={name: InTurn() for name in names})
            for s in (own_s, reference_s)
            if s is not None
        ]
        call_s = dict.fromkeys(names, max(own_s, reference_s or 0.0))
        return interleave(Stopwatch(ON_CPU), sides, call_s, PLAN, self.rng)


def test_sides_alternate_and_a_sample_is_the_mean_of_a_round(clock: Clock) -> None:
    seen: list[str] = []

    def call(name: str, seconds: float) -> Any:
        def called(number: int) -> str:
            seen.append(name)
            clock.now += seconds
            return f"{name} {number}"

        return called

    own, beside = InTurn(), InTurn()
    sides = [Side(calls={"a": call("own", 0.001)}, given={"a": own}),
             Side(calls={"a": call("beside", 0.00125)}, given={"a": beside})]  # fmt: skip
    taken = interleave(Stopwatch(ON_CPU), sides, {"a": 0.00125}, PLAN, random.Random(0))
    assert (taken.calls, len(taken.windows), taken.warm_up, taken.settled) == ({"a": 8}, LEAST_RATIOS, 0, True)
    assert taken.samples_ms["a"] == pytest.approx([1.0] * LEAST_RATIOS)
    assert taken.reference_ms["a"] == pytest.approx([1.25] * LEAST_RATIOS)
    turns = [name for name, group in itertools.groupby(seen[index] for index in range(0, len(seen), 2)) for _ in group]
    assert all(set(pair) == {"own", "beside"} for pair in zip(turns[::2], turns[1::2], strict=True))
    assert own.kept == [f"own {last}" for last in range(7, 48, 8)]  # of the last call of each round
    assert beside.kept == [f"beside {last}" for last in range(7, 48, 8)]
    assert taken.windows[0] == pytest.approx((100.0, 100.018))


def test_long_calls_take_turns_once_a_round_and_the_reference_is_by_itself(clock: Clock) -> None:
    taken = Busy(clock, 0, shares=[1.0]).rounds(0.25, None, workloads=3)
    assert taken.calls == {"length 0": 1, "length 1": 1, "length 2": 1}
    assert taken.samples_ms == taken.reference_ms == {name: pytest.approx([250.0] * 2) for name in taken.calls}


def test_threads_that_still_work_are_waited_for_before_each_long_call(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(interleaved, "wait_for_quiet", lambda: waits.append(clock.now))
    taken = Busy(clock, 0, shares=[1.0]).rounds(0.25, 0.2, workloads=2)
    assert len(waits) == 2 * 2 * len(taken.windows)
    waits.clear()
    Busy(clock, 0, shares=[1.0]).rounds(0.002, 0.002)
    assert waits == []


def test_rounds_go_on_where_ratios_scatter_and_end_where_they_are_known_or_time_is_up(clock: Clock) -> None:
    quiet = Busy(clock, 0, shares=[1.0]).rounds(0.03, 0.02, workloads=6)
    assert len(quiet.windows) == LEAST_ROUNDS
    busy = Busy(clock, 1).rounds(0.03, 0.02, workloads=6)
    known = half_interval(busy.samples_ms, busy.reference_ms)
    in_calls_s = sum(end - begin for begin, end in busy.windows)
    assert len(busy.windows) > LEAST_ROUNDS
    assert known <= NARROW or in_calls_s >= PLAN.paired_s
    calls = {"own": clock.call(itertools.cycle([0.05, 0.2])), "beside": clock.call(0.1)}
    sides = [Side(calls={"a": call}, given={"a": InTurn()}) for call in calls.values()]
    hopeless = interleave(Stopwatch(ON_CPU), sides, {"a": 0.1}, PLAN, random.Random(0))
    assert sum(end - begin for begin, end in hopeless.windows) == pytest.approx(WIDE_FOR * PLAN.paired_s, abs=0.5)
    assert half_interval(hopeless.samples_ms, hopeless.reference_ms) > WIDE


def variant(name: str, blocks: Sequence[Block]) -> Record:
    """Return the record of a variant with the rounds of its processes."""
    timing = msgspec.structs.replace(
        record(name).timings["sustained"],
        statistic="median",
        samples_ms=tuple(tuple(each.samples_ms["length 0"]) for each in blocks),
        reference_ms=() if name == "torch_flash" else tuple(tuple(each.reference_ms["length 0"]) for each in blocks),
        reference_variant="torch_flash",
    )
    return changed(record(name), timings={"sustained": timing})


def test_a_ratio_far_from_1_needs_fewer_rounds(clock: Clock) -> None:
    rounds = {}
    for own_s in (0.05, 0.15):
        taken = [len(Busy(clock, seed, (1.0, 0.6)).rounds(own_s, 0.05, workloads=3).windows) for seed in range(20)]
        rounds[own_s] = sum(taken)
    assert rounds[0.15] < 0.8 * rounds[0.05]


def test_a_factor_of_one_and_a_half_is_always_told_on_a_busy_machine_and_none_where_there_is_none(clock: Clock) -> None:
    wrong = 0
    for seed in range(40):
        busy = Busy(clock, seed)
        seconds = {"torch_flash": None, "torch_native": 0.1, "torch_math": 0.15}
        flash, native, math = (
            variant(name, [busy.rounds(own_s or 0.1, own_s and 0.1) for _ in range(3)])
            for name, own_s in seconds.items()
        )
        order = Ordering([flash, native, math])
        assert [order.faster(one, math) for one in (flash, native)] == [True, True]
        wrong += order.apart(flash, native)
    assert wrong <= 6  # 5% to either side: more than six of 40 have a chance of 10%
