"""Times of which a known part follows a control kernel's."""

from __future__ import annotations

import numpy as np
import pytest

from fluxbench.stats.following import beyond, slope
from fluxbench.stats.pooling import Levels

CLOCKS = (0.0, 0.0075)  # of two steps, as an H200 has had


def sides(
    rng: np.random.Generator, follows: float, *, change: float = 0.0, device: float = 0.0, moves: bool = True
) -> tuple[list[Levels], list[Levels]]:
    """Return times, and times over the control kernel's, of two sides of three processes at six lengths."""
    times, over = [], []
    for after in (0, 1):
        control = rng.choice(CLOCKS, size=3) * moves + after * device + rng.normal(0, 3e-4, size=3)
        own = follows * control + after * change + rng.normal(0, 7e-4, size=3)
        time = np.log(np.arange(1.0, 7.0))[:, None] + own + rng.normal(0, 3e-4, size=(6, 3))
        times.append(time)
        over.append(time - control)
    return times, over


def changes(levels: list[Levels]) -> float:
    return float(levels[1].mean() - levels[0].mean())


@pytest.mark.parametrize("follows", [0.2, 0.6, 1.0])
def test_how_far_a_time_follows_the_control_kernel_is_found_where_that_moves(follows: float) -> None:
    rng = np.random.default_rng(1)
    found = [slope(*sides(rng, follows)) for _ in range(200)]
    assert np.median(found) == pytest.approx(follows, abs=0.12)  # a little nearer to 1
    assert all(0 <= one <= 1 for one in found)


def test_a_device_that_changed_between_the_sides_is_taken_off_whole() -> None:
    """As of a slope from small differences within a side something would be left, which is no change of the kernel."""
    rng = np.random.default_rng(2)
    found = [slope(*sides(rng, 0.7, moves=False, device=0.02)) for _ in range(200)]
    assert sum(one == 1 for one in found) >= 198
    left = [changes(beyond(*sides(rng, 1.0, moves=False, device=0.02))) for _ in range(200)]
    assert np.mean(left) == pytest.approx(0.0, abs=2e-4)


@pytest.mark.parametrize("change", [0.0, 0.01])
@pytest.mark.parametrize("follows", [0.2, 0.9])
def test_a_change_of_the_kernel_is_what_is_left_and_mostly_scatters_less_than_either_time(
    follows: float, change: float
) -> None:
    """Times of cuDNN's kernel over control differed by 0.26% between processes, and by themselves by 0.13%."""
    rng = np.random.default_rng(3)
    drawn = [sides(rng, follows, change=change) for _ in range(400)]
    left, plain, over = (
        np.array([changes(levels) for levels in several])
        for several in ([beyond(*one) for one in drawn], *zip(*drawn, strict=True))
    )
    assert np.median(left) == pytest.approx(change, abs=2e-4)
    scatter = [np.median(np.abs(one - change)) for one in (left, plain, over)]
    assert scatter[0] <= 1.05 * min(scatter[1:])
    assert scatter[0] < 0.75 * max(scatter[1:])
