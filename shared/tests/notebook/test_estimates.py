"""How long the rest of a build will take."""

from __future__ import annotations

import pytest

from fluxbench.notebook.estimates import Times


@pytest.mark.parametrize(
    ("running", "ended", "left_s"),
    [
        ({}, {}, None),  # b was never timed, and nothing tells of it
        ({"a": (10.0, 0.05)}, {}, None),
        ({"a": (100.0, 0.5)}, {}, 100.0 + 50.0 + 5.0),  # a takes twice as long as it did; b weighs a quarter of it
        ({}, {"a": 80.0}, 20.0 + 5.0),
        ({"b": (10.0, None)}, {"a": 80.0}, 10.0 + 5.0),
        ({"b": (10.0, 0.25)}, {"a": 0.0, "c": 5.0}, 30.0),
        ({"b": (10.0, 0.25)}, {"a": 8.0, "c": 5.0}, 30.0),
        ({"c": (10.0, None)}, {"a": 1.0, "b": 1.0}, 0.0),
        ({"c": (10.0, 0.5)}, {"a": 1.0, "b": 1.0}, 10.0),
    ],
)
def test_the_time_left_follows(
    running: dict[str, tuple[float, float | None]], ended: dict[str, float], left_s: float | None
) -> None:
    times = Times({"a": 100.0, "b": None, "c": 5.0, "drawn": None}, {"a": 4, "b": 1, "c": 1})
    for cell, (elapsed_s, share) in running.items():
        times.advanced(cell, elapsed_s, share)
    for cell, duration_s in ended.items():
        times.ended(cell, duration_s)
    assert times.left_s() == left_s


@pytest.mark.parametrize(
    ("usual_s", "left_s"), [({"a": 30.0, "b": 30.0, "c": 30.0}, 30.0), ({"a": 50.0, "b": 4.0}, 50.0)]
)
def test_cells_that_run_at_once_share_the_time(usual_s: dict[str, float | None], left_s: float) -> None:
    assert Times(usual_s, {}, at_once=3).left_s() == left_s
