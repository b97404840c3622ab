"""Effects of a time's place in the round, and of a trial in the process, on made-up trials whose truth is known."""

from __future__ import annotations

import math

import msgspec
import pytest
from certificates import BASES, PROCESSES, ROUNDS, UNSLOWED, made_up

from fluxbench.analysis.certificate import position
from fluxbench.analysis.certificate.trials import Place, Trials


@pytest.fixture(scope="module")
def good() -> Trials:
    return made_up()


def test_without_an_effect_of_position_there_is_noise_alone(good: Trials) -> None:
    found = position.effects(good)
    assert [(one.kind, one.base) for one in found] == [
        (kind, base) for base in BASES for kind in (position.IN_ROUND, position.IN_PROCESS)
    ]
    assert all(one.largest < 4 * one.noise < 0.004 for one in found)
    assert [one.count for one in found[:2]] == [6 * 6 * 3 * PROCESSES * ROUNDS, 6 * 6 * PROCESSES]


def test_an_effect_of_the_place_in_the_round_is_found() -> None:
    found = position.effects(made_up(by_place=lambda place: 0.01 if place < 2 else 0.0))
    first = [one.thirds[0] for one in found if one.kind == position.IN_ROUND]
    assert first == [pytest.approx(0.01, abs=0.004)] * 2
    assert all(one.largest < 0.002 for one in found if one.kind == position.IN_PROCESS)


def test_an_effect_of_the_trial_in_the_process_is_found() -> None:
    found = position.effects(made_up(by_trial=lambda trial: 0.01 if trial >= 8 else 0.0))
    in_process = [one for one in found if one.kind == position.IN_PROCESS]
    assert [one.thirds[2] for one in in_process] == [pytest.approx(0.01, abs=0.002)] * 2
    largest = position.largest(found)
    assert largest
    assert (largest.kind, largest.largest) == (position.IN_PROCESS, max(abs(one.thirds[2] or 0) for one in in_process))
    assert position.largest([]) is None


def test_thirds_and_their_noise_are_those_of_the_formula(good: Trials) -> None:
    place = Place(
        process=0, variant=UNSLOWED[0], workload="flux1-1024px-t128", trial=5, trials=6,
        places=(0, 1, 2, 3, 4, 5), of=6, samples_ms=(1.00, 1.02, 1.04, 1.04, 1.06, 1.10),
    )  # fmt: skip
    one = msgspec.structs.replace(good.runs[0], places=(place,))
    in_round, in_process = position.effects(msgspec.structs.replace(good, runs=(one,)))
    # Deviations from 1.04 by third: -4, -2; 0, 0; 2, 6%. Medians -3, 0, 4% around 0.
    assert in_round.thirds == pytest.approx((-0.03 / 1.04, 0.0, 0.04 / 1.04))
    mad = 0.02 / 1.04  # of the last third
    assert in_round.noise == pytest.approx(math.sqrt(math.pi / 2) * 1.4826 * mad / math.sqrt(2))
    assert (in_process.thirds, in_process.noise, in_process.count) == ((None, None, 0.0), math.inf, 1)
