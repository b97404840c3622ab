"""Which variants of a page are measurably faster: what must be told, and how often equal ones are told apart."""

import math
import random

import pytest

from fluxbench.stats import ordering


def page(rng: random.Random, slow: list[float], variants: int = 41) -> list[list[float]]:
    """Return the logarithms of three processes of each variant, one in seven 0.8 to 10% wide; the slow one's first."""
    wide = [rng.random() < 1 / 7 for _ in range(variants)]
    spreads = [math.exp(rng.uniform(math.log(0.008), math.log(0.1))) if is_wide else 0.003 for is_wide in wide]
    return [slow, *([rng.gauss(0, spread) for _ in range(3)] for spread in spreads)]


@pytest.mark.parametrize("apart", [0.0, 0.008, 0.025])
def test_a_variant_of_two_processes_that_takes_thrice_as_long_is_slower_than_all(apart: float) -> None:
    rng = random.Random(2)
    for _ in range(5):
        several = page(rng, [math.log(3), math.log(3) + apart])
        faster = ordering.faster_than(ordering.levels(several))
        assert faster[0] == frozenset(range(1, 42))
        assert not any(0 in of_other for of_other in faster[1:])


def test_equal_variants_are_seldom_told_apart() -> None:
    rng = random.Random(3)
    pages = [page(rng, [rng.gauss(0, 0.003) for _ in range(3)]) for _ in range(12)]
    beaten = sum(bool(each) for several in pages for each in ordering.faster_than(ordering.levels(several)))
    assert beaten / (12 * 42) <= 0.07  # 5% of each; by chance up to 7% of so many


@pytest.mark.parametrize(("processes", "variants"), [(2, 4), (3, 2), (3, 4)])
def test_equal_variants_are_seldom_told_apart_by_ratios_to_one_of_them(processes: int, variants: int) -> None:
    """The reference's own ratio is 1 in each process, which does not say that variants do not vary."""
    rng, pages = random.Random(1), 500
    of_reference = of_others = 0
    for _ in range(pages):
        reference, *others = ([rng.gauss(0, 0.003) for _ in range(processes)] for _ in range(variants))
        ratios = [[one - other for one, other in zip(own, reference, strict=True)] for own in others]
        first, *rest = ordering.faster_than([ordering.REFERENCE, *ordering.levels(ratios)])
        of_reference += bool(first) or any(0 in faster for faster in rest)
        of_others += any(faster - {0} for faster in rest)
    assert max(of_reference, of_others) <= 0.06 * pages


def test_a_call_that_stalled_once_does_not_move_a_median_and_two_states_do() -> None:
    stalled = (0.4368, 0.4374, 0.6908, 0.4367), (0.4371, 0.4356, 11.8, 0.4355)
    assert math.sqrt(ordering.within([[math.log(ms) for ms in part] for part in stalled])) < 0.003
    assert math.sqrt(ordering.within([[0.0, 0.0, 0.9], [0.0, 0.001, 0.002], [0.0, 0.002, 0.001]])) < 0.002
    for states in ([9.8, 9.8, 9.34], [9.8, 9.34, 9.8, 9.34, 9.8]):
        assert 0.01 < math.sqrt(ordering.within([[math.log(ms) for ms in states]] * 3)) < 0.03
    rng = random.Random(5)
    found = [ordering.within([[rng.gauss(0, 0.01) for _ in range(8)] for _ in range(3)]) for _ in range(400)]
    assert 0.8 < sum(found) / len(found) / (math.pi / 2 * 0.01**2 / 8) < 1.2
    assert ordering.within([[0.0], [1.0]]) == 0.0  # single samples tell nothing


def test_a_single_process_is_told_from_others_by_a_large_difference_alone() -> None:
    assert ordering.faster_than(ordering.levels([[0.0], [1.0]])) == [frozenset(), frozenset()]
    rng = random.Random(4)
    told = 0
    for _ in range(100):
        alone, *others = ([rng.gauss(0, 0.003) for _ in range(count)] for count in (1, *[3] * 10))
        faster = ordering.faster_than(ordering.levels([alone, *others]))
        told += bool(faster[0]) or any(0 in of_other for of_other in faster)
    assert told <= 1
    slower = ordering.levels([[0.2], *([rng.gauss(0, 0.003) for _ in range(3)] for _ in range(10))])
    assert ordering.faster_than(slower)[0] == frozenset(range(1, 11))
