"""Rows of short calls on a device: two measurements of one kernel agree."""

from __future__ import annotations

import random
import statistics

import pytest
import torch

from fluxbench import operations, variants
from fluxbench.operations import sets
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.worker import rows
from fluxbench.worker.prepared import PreparedWorkload
from fluxbench.worker.trial import Trial


@pytest.mark.gpu
@pytest.mark.parametrize(("operation", "within"), [("attention", 0.02), ("attention_training", 0.04)])
def test_on_a_gpu_two_measurements_of_one_short_kernel_agree(operation: str, within: float) -> None:
    """The same kernel under two names, each with rows of its own, five times.

    As on a page, a time is the median of three trials, each with inputs and rows of its own. A forward call takes less
    than 20 us.
    """
    device = torch.device("cuda")
    plan = Plan.on(device, grid=True, large=True)
    suffix = "-training" if operation == "attention_training" else ""
    workload = sets.by_name()[f"sdpa-b8-s64-h12-d64-bf16{suffix}"]
    call = operations.find(operation).bind(variants.find("torch_flash"), workload.shape)
    stopwatch, calls = Stopwatch(device), {workload.name: call}

    def both(seed: int) -> tuple[float, float]:
        prepared = {workload.name: PreparedWorkload.make(workload, device, 1 + seed, most=plan.contents)}
        names = ("a", variants.find("torch_flash").variant, calls, ("b", calls), prepared, None)
        one = Trial(*names, stopwatch, plan, random.Random(seed))
        taken = one.burst()
        one.check()
        assert one.wrong == {}
        own, beside = (statistics.median(taken[name][workload.name]) for name in ("samples_ms", "reference_ms"))
        assert taken["calls"][workload.name] * own >= 1e3 * plan.row_s / rows._NEARLY
        assert operation != "attention" or own < 0.02
        assert taken["launched_ms"][workload.name] >= 0.9 * own
        return own, beside

    with torch.inference_mode(operation == "attention"), torch.set_grad_enabled(False):
        tables = [[both(3 * table + trial) for trial in range(3)] for table in range(5)]
    ratios = [own / beside for own, beside in (map(statistics.median, zip(*table, strict=True)) for table in tables)]
    assert max(abs(ratio - 1) for ratio in ratios) <= within, (ratios, tables)
