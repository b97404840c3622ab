"""The parts of a burst round: by operations, and by what calls took."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from clocks import ON_CPU, PLAN, Ahead, Clock, LikeAGPU, contents
from fakes import tokens

from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound
from fluxbench.timing.burst import burst
from fluxbench.timing.parts import Key, in_parts, parts_of
from fluxbench.timing.stopwatch import Stopwatch


def ignored(*_: object) -> None:
    """Keep nothing of what a call returned."""


def test_workloads_of_up_to_twice_the_operations_are_one_part_and_the_fewest_come_first() -> None:
    flux = [tokens(f"t{text}", 4096 + text) for text in (512, 128, 256)]
    assert set(parts_of(flux).values()) == {0}
    several = [tokens("long", 4096), tokens("short", 512), tokens("longer", 5000), tokens("least", 400)]
    assert parts_of(several) == {"least": 0, "short": 0, "long": 1, "longer": 1}
    # Both are within twice of the middle one, and not of each other.
    assert parts_of(tokens(str(n), n) for n in (1000, 1400, 1800)) == {"1000": 0, "1400": 0, "1800": 1}
    both = tokens("one", 1024), tokens("its-training", 1024, "attention_training")
    assert parts_of(both) == {"one": 0, "its-training": 1}
    assert parts_of([]) == {}


def test_calls_of_a_part_are_in_random_order_and_those_of_no_workload_in_the_first() -> None:
    keys: list[Key] = [("b", "long"), ("b", "short"), ("a", "long"), ("a", "short"), ("control_kernel", "")]
    orders = set[tuple[tuple[Key, ...], ...]]()
    for seed in range(30):
        found = in_parts(keys, {"short": 0, "long": 1}, {}, random.Random(seed))
        assert [sorted(part) for part in found] == [
            [("a", "short"), ("b", "short"), ("control_kernel", "")], [("a", "long"), ("b", "long")],
        ]  # fmt: skip
        orders.add(tuple(map(tuple, found)))
    assert len(orders) > 6


def test_long_calls_of_a_part_are_divided_by_what_they_took_last() -> None:
    keys: list[Key] = [("a", name) for name in ("short", "1", "2", "3", "4")]
    part_of = {"short": 0} | dict.fromkeys("1234", 1)
    took: dict[Key, float] = {("a", name): 4.0 for name in "1234"}
    found = in_parts(keys, part_of, {**took, ("a", "short"): 0.1}, random.Random(0))
    assert [len(part) for part in found] == [1, 2, 2]  # 10 ms hold two of them
    found = in_parts(keys, part_of, {**took, ("a", "short"): 0.1, ("a", "3"): 30.0}, random.Random(0))
    assert [("a", "3")] in found
    assert [key for part in found for key in part] != keys
    [whole] = in_parts(keys[1:], part_of, took, random.Random(0))  # a round of one part stays as it is
    assert sorted(whole) == keys[1:]


def test_on_a_gpu_a_round_has_short_calls_first_and_rests_before_longer_ones(clock: Clock) -> None:
    """A part of 40 ms and more is followed by the first rest, before the short calls of the next round."""
    device = Ahead(clock)
    lasts = {"small": 0.0005, "middle": 0.008, "long": 0.04}
    calls = {(variant, name): device.bound(s) for name, s in lasts.items() for variant in "ba"}
    calls["control_kernel", ""] = device.bound(0.0005)
    pool = contents()["small"].pool
    given = {name: Contents(pool, 2, 0) for name in lasts}
    part_of = {"long": 2, "small": 0, "middle": 1}
    taken = burst(device, calls, 3, given, random.Random(0), PLAN, ignored, measured="a", part_of=part_of)
    assert {key: [round(ms, 6) for ms in its] for key, its in taken.samples_ms.items()} == {
        key: [1e3 * lasts.get(key[1], 0.0005)] * 3 for key in calls
    }
    firsts = {key: [min(places), max(places)] for key, places in taken.places.items()}
    assert all(least >= 0 and most <= 2 for (_, name), (least, most) in firsts.items() if name in ("", "small"))
    assert all(least >= 3 and most <= 4 for (_, name), (least, most) in firsts.items() if name == "middle")
    assert all(least >= 5 and most <= 6 for (_, name), (least, most) in firsts.items() if name == "long")
    assert len({tuple(taken.places[key][i] for key in calls) for i in range(3)}) > 1  # at random among those
    # A round begins with a call of 0.5 ms that is not timed, and each part does once it is known how short it is. Then
    # it is known too what others take, of which a part has 10 ms.
    later = [0.25, 0.002 / 4, *[0.0085 / 4] * 2, 0.0405 / 4]
    assert clock.slept == pytest.approx([PLAN.first_rest_s, 0.002 / 4, 0.016 / 4, *later * 2])


@pytest.mark.parametrize("seed", range(4))
def test_a_round_begins_a_quarter_of_a_second_after_the_last_long_call_whatever_came_after_it(
    clock: Clock, seed: int
) -> None:
    """Also before the first round: another variant's long calls may have come before it."""
    device, ended = Ahead(clock), list[float]()
    reference = device.bound(0.1)

    def call(given: Any) -> Any:
        ended.append(clock.now + 0.1)
        return reference.call(given)

    calls = {("b", "long"): Bound(call), ("a", "long"): device.bound(0.012), ("a", "short"): device.bound(1e-4)}
    given = {name: Contents(contents()["small"].pool, 2, 0) for name in ("long", "short")}
    plan = dataclasses.replace(PLAN, first_rest_s=0.05)  # as for all variants of a process but the first one
    part_of = {"short": 0, "long": 1}
    taken = burst(device, calls, 4, given, random.Random(seed), plan, ignored, part_of=part_of)
    assert clock.slept[0] == pytest.approx(0.25)
    for end, (begin, _) in zip(ended[-4:], taken.times[1:], strict=False):
        assert end + 0.25 - 1e-9 <= begin <= end + 0.25 + 0.02  # a shorter one may be of the same part


def test_on_a_gpu_parts_have_a_lead_of_the_whole_round_at_first_and_then_of_what_their_calls_took_to_launch(
    clock: Clock,
) -> None:
    stopwatch = LikeAGPU()
    takes: dict[str, Any] = {"smaller": iter([*[0.002] * 4, *[0.05] * 2, 0.002, *[0.002] * 9]), "small": 0.02}
    calls = {("a", name): clock.bound(seconds) for name, seconds in takes.items()}  # a call of a GPU is its launch
    burst(
        stopwatch, calls, 3, contents(), random.Random(0), PLAN, ignored, part_of={"small": 1, "smaller": 0}
    )  # fmt: skip
    untimed, rounds = stopwatch.spins[:2], stopwatch.spins[2:]
    assert untimed == [0.0, 0.0]
    # That of 52 ms, when the host was held up, tells nothing; a part never has more than the whole round.
    # The first part begins with an untimed call, whose launch counts too.
    assert rounds == pytest.approx([0.022] * 2 + [2 * 1.6 * 0.002 + 1e-3, 0.022] * 2)
    of_round = ["wait", ("spin", 2), "clear", "clear", "wait", ("spin", 2), "clear"]  # no long call is made untimed
    assert stopwatch.done[-7:] == of_round


def test_a_cpu_has_all_calls_of_a_round_in_random_order(clock: Clock) -> None:
    part_of = {"small": 0, "smaller": 1}
    calls = {(variant, name): clock.bound(0.001) for name in part_of for variant in "ab"}
    for seed in range(9):
        taken = burst(
            Stopwatch(ON_CPU), calls, 3, contents(), random.Random(seed), PLAN, ignored, measured="a",
            part_of=part_of,
        )  # fmt: skip
        if any(place > 1 for variant in "ab" for place in taken.places[variant, "small"]):
            return
    raise AssertionError("the calls of the first part were always first")
