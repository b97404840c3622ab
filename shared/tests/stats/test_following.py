"""Times of which a known part follows a control kernel's."""

from __future__ import annotations

import numpy as np
import pytest

from fluxbench.stats.following import Beside, slopes
from fluxbench.stats.pooling import Levels

CLOCKS = (0.0, 0.0075)  # of two steps, as an H200 has had


def drawn(
    rng: np.random.Generator,
    follows: float,
    *,
    change: float = 0.0,
    device: float = 0.0,
    moves: bool = True,
    scatter: float = 7e-4,
) -> Beside:
    """Return two sides of three processes at six lengths."""
    times: list[Levels] = []
    over: list[Levels] = []
    for after in (0, 1):
        control = rng.choice(CLOCKS, size=3) * moves + after * device + rng.normal(0, 3e-4, size=3)
        own = follows * control + after * change + rng.normal(0, scatter, size=3)
        time = np.log(np.arange(1.0, 7.0))[:, None] + own + rng.normal(0, 3e-4, size=(6, 3))
        times.append(time)
        over.append(time - control)
    return Beside(times, over)


def change_of(beside: Beside) -> tuple[float, float]:
    """Return the change that is left of a variant measured alone, and its error from not knowing the slope."""
    [slope] = slopes([beside])
    before, after = slope.beyond(beside)
    return float(after.mean() - before.mean()), slope.error * abs(beside.control_change)


@pytest.mark.parametrize("follows", [0.2, 0.6, 1.0])
def test_how_far_a_time_follows_the_control_kernel_is_found_where_that_moves(follows: float) -> None:
    rng = np.random.default_rng(1)
    found = [slopes([drawn(rng, follows)])[0] for _ in range(200)]
    assert np.median([one.value for one in found]) == pytest.approx(follows, abs=0.1)
    assert all(0 <= one.value <= 1 for one in found)
    assert np.median([one.error for one in found]) < 0.2


@pytest.mark.parametrize("change", [0.0, 0.01])
@pytest.mark.parametrize("follows", [0.2, 0.9])
def test_a_change_of_the_kernel_is_what_is_left_and_mostly_scatters_less_than_either_time(
    follows: float, change: float
) -> None:
    """Times of cuDNN's kernel over control differed by 0.26% between processes, and by themselves by 0.13%."""
    rng = np.random.default_rng(3)
    several = [drawn(rng, follows, change=change) for _ in range(400)]
    left = np.array([change_of(one)[0] for one in several])
    plain = np.array([one.change for one in several])
    over = plain - np.array([one.control_change for one in several])
    assert np.median(left) == pytest.approx(change, abs=2e-4)
    scatter = [np.median(np.abs(one - change)) for one in (left, plain, over)]
    assert scatter[0] <= 1.2 * min(scatter[1:])
    assert scatter[0] < 0.75 * max(scatter[1:])


@pytest.mark.parametrize("follows", [0.2, 0.6, 1.0])
def test_what_is_not_known_of_a_slope_is_an_error_where_the_device_changed(follows: float) -> None:
    """Before, all of the device's change was taken off: cuDNN's kernel seemed 1.6% faster where a clock fell by 2%."""
    rng = np.random.default_rng(2)
    found = [change_of(drawn(rng, follows, moves=False, device=0.02)) for _ in range(300)]
    assert np.mean([abs(left) <= 1.96 * error for left, error in found]) >= 0.93
    small = [error for _, error in (change_of(drawn(rng, follows, moves=False)) for _ in range(100))]
    assert np.median(small) < 2e-4  # of a device that did not change it is none


def test_of_a_device_that_changed_a_page_tells_how_kernels_follow_it() -> None:
    """So what one of its kernels changed is known better than by itself."""
    rng = np.random.default_rng(4)
    others = [drawn(rng, 1.0, moves=False, device=0.03) for _ in range(9)]
    changed = drawn(rng, 1.0, moves=False, device=0.03, change=0.03)
    alone, of_page = slopes([changed])[0], slopes([*others, changed])[-1]
    assert of_page.value > 0.95
    assert of_page.error < 0.07 < alone.error
    before, after = of_page.beyond(changed)
    assert after.mean() - before.mean() == pytest.approx(0.03, abs=2e-3)


def test_of_a_busy_cpu_the_scatter_of_its_own_times_counts() -> None:
    """There the control kernel scatters as far, by itself: a slope that chance gives must not be believed."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        beside = drawn(rng, 0.0, moves=False, scatter=0.05)
        noise = rng.normal(0, 0.1, size=(2, 3))
        over = [time - one for time, one in zip(beside.times, noise, strict=True)]
        found.append(slopes([Beside(beside.times, over)])[0])
    assert np.mean([abs(one.value) <= 2.5 * one.error for one in found]) >= 0.9


def test_one_run_alone_tells_the_slope_by_its_processes() -> None:
    """The first page of a method version has none to be compared with; `make simulate` reads it all the same."""
    both = drawn(np.random.default_rng(4), 0.2)
    [slope] = slopes([Beside(both.times[:1], both.over_control[:1])])
    assert 0 <= slope.value <= 1
    assert len(slope.beyond(Beside(both.times[:1], both.over_control[:1]))) == 1
