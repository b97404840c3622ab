"""When a cell stops measuring, and the power of each variant."""

from __future__ import annotations

import pytest
from fakes import REPOSITORY, TINY
from sample_events import collected, readings, timed

from fluxbench.bench import measuring
from fluxbench.core.settings import Settings


def test_measuring_stops_in_time_and_energy_is_that_of_ranked_windows() -> None:
    for limit_s, seconds in ((20, 15.0), (100, 75.0), (120, 90.0), (1200, 1170.0), (None, 270.0)):
        settings = Settings(root=REPOSITORY, cache=REPOSITORY, cell_limit_s=limit_s)
        assert measuring.deadline_of(1000.0, settings) == 1000.0 + seconds

    def energy_mj(time_s: float) -> float:  # 400 W in the last four windows of the block, 100 W elsewhere
        return 1e3 * (100.0 * time_s + 300.0 * max(0.0, min(time_s, 1.6) - 1.2))

    of = collected([timed("torch_math")], readings(0.0, 3.0, energy_mj=energy_mj))
    power_w, half_width_w = measuring.powers(of)["torch_math", TINY.name]
    assert power_w == pytest.approx(400.0, rel=0.01)
    assert half_width_w == pytest.approx(0.0, abs=20.0)


def test_lengths_that_are_in_blocks_of_their_own_have_powers_of_their_own() -> None:
    """The one that comes first drew 200 W, the other one 400."""

    def energy_mj(time_s: float) -> float:
        return 1e3 * (200.0 * time_s + 200.0 * max(0.0, time_s - 3.0))

    event = timed("torch_math", workloads=("tiny", "tinier"))
    [whole] = event["blocks"]
    fields = ("samples_ms", "calls")
    first, second = ({**whole, **{name: {own: whole[name][own]} for name in fields}} for own in ("tiny", "tinier"))
    second["windows"] = [[begin + 2.5, end + 2.5] for begin, end in second["windows"]]
    of = collected([{**event, "blocks": [first, second]}], readings(0.0, 6.0, energy_mj=energy_mj))
    found = measuring.powers(of)
    assert {pair: round(power_w) for pair, (power_w, _) in found.items()} == {
        ("torch_math", "tiny"): pytest.approx(200, rel=0.02),
        ("torch_math", "tinier"): pytest.approx(400, rel=0.02),
    }
