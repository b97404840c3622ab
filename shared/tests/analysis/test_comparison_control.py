"""The control kernel beside variants that have unequally many processes."""

from __future__ import annotations

import numpy as np
import pytest
from sides import control, edited, side, timed, with_controls

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.control import device_effect
from fluxbench.analysis.comparison.levels import Samples
from fluxbench.analysis.comparison.model import Happened, Measured
from fluxbench.device.targets import BetweenRuns
from fluxbench.records.schema import Record
from fluxbench.stats.student import critical

pytestmark = pytest.mark.usefixtures("usual_spreads")

BEFORE = side("before", 1)


def test_variants_of_unequally_many_processes_are_all_compared_with_their_control_kernel() -> None:
    """On an H200's page one variant of a cell had four processes, others three or two: it alone was normalized."""

    def fewer(whole: Measured, processes: dict[str, int]) -> Measured:
        def edit(of: Record) -> Record:
            return timed(of, of.burst.samples_ms[: processes.get(of.variant)]) if of.burst else of

        some = edited(whole, edit)
        controls = {
            cell: control({name: of[: processes.get(name)] for name, of in one.samples_ms.items()})
            for cell, one in some.controls.items()
        }
        return with_controls(some, controls)

    for before, after in (({"torch_math": 2}, {"torch_math": 3}), ({"torch_flash": 2}, {"torch_math": 2})):
        found = compare(fewer(BEFORE, before), fewer(side("after", 12, device=1.03), after))
        assert all(row.normalized for row in found.rows)
        assert found.happened is Happened.DEVICE
        assert found.device
        assert found.device.ratio == pytest.approx(1.03, abs=0.002)


def test_the_device_is_found_unchanged_whatever_processes_variants_have() -> None:
    """By least squares: what a variant adds to the control kernel's time, and a slow process of some, is no change."""
    rng = np.random.default_rng(5)
    beside = {"flash": 0.30, "math": 0.40, "flex": 0.33, "copy": 0.36}
    counts = ({"flash": 5, "math": 2, "flex": 5, "copy": 2}, {"flash": 2, "math": 5, "flex": 2, "copy": 5})
    called, pages = 0, 400
    cell, unlimited = ("flux", "sdpa"), BetweenRuns(variant=0.0, workload=0.0, df=99, source="none")
    for _ in range(pages):
        pairs: dict[str, list[Samples]] = {name: [] for name in beside}
        for side_counts in counts:
            of_process = rng.normal(0, 0.003, 5)
            for name, ms in beside.items():
                levels = np.log(ms) + of_process[: side_counts[name]] + rng.normal(0, 0.0005, side_counts[name])
                pairs[name].append(tuple((float(np.exp(level)),) for level in levels))
        rows = [("flux", "sdpa", name, "any") for name in beside]
        effect = device_effect({cell: {name: (a, b) for name, (a, b) in pairs.items()}}, rows, {cell: unlimited})
        assert effect
        assert abs(effect.log_ratio) < 0.02
        called += abs(effect.log_ratio) > critical(0.05, effect.df) * effect.se
    assert 0.02 * pages < called < 0.09 * pages
