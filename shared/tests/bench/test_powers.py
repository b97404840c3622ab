"""When a cell stops measuring, and the power of each variant."""

from __future__ import annotations

import pytest
from fakes import REPOSITORY
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
    power_w, half_width_w = measuring.powers(of)["torch_math"]
    assert power_w == pytest.approx(400.0, rel=0.01)
    assert half_width_w == pytest.approx(0.0, abs=20.0)
