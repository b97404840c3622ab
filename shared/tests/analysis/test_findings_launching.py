"""Findings of what launching costs: of calls for which the device waits, and of what CUDA graphs hide."""

from __future__ import annotations

import math
from typing import Any

import pytest
from planted import kernel, page
from sample_records import LAUNCH_BOUND, REPLAYED, changed, record

from fluxbench.analysis.findings import launch_bound, of_group
from fluxbench.analysis.findings.finding import Kind
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.records.schema import Cupti
from fluxbench.stats.intervals import Estimate


def test_a_variant_is_launch_bound() -> None:
    [one] = of_group(page(kernel("flash_attn_4", launch_ms=0.72, flags=(changed_flag(2),))))
    [case] = one.cases
    assert (one.kind, one.cell, case.variant, case.waited) == (Kind.LAUNCH_BOUND, "kernels", "flash_attn_4", (2, 3))
    assert case.value.low < 1 / 0.9 < case.value.high < 1.12  # sustained over burst, the ends of both intervals in it
    assert of_group(page(kernel("flash_attn_4", launch_ms=0.2, flags=(REPLAYED,)))) == []  # no host is late by that
    [one] = of_group(page(kernel("flash_attn_4", launch_ms=0.3, flags=(REPLAYED,))))
    assert (one.kind, one.cases[0].waited) == (Kind.LAUNCH_BOUND, None)
    assert one.cases[0].value == Estimate(0.75 / 0.4, 0.0, math.inf)  # a launched time has no interval
    waiting = kernel("flash_attn_4", launch_ms=0.72, flags=(changed_flag(2),))
    found = of_group(page(waiting, kernel("flex", launch_ms=0.3, flags=(REPLAYED,))))
    assert [[case.variant for case in one.cases] for one in found] == [["flex"], ["flash_attn_4"]]
    busy = Cupti(events_ms=0.4, kernels_ms=0.399, span_ms=0.4)  # whatever the host does
    assert of_group(page([changed(one, cupti=busy) for one in waiting])) == []


@pytest.mark.parametrize(("launch_ms", "found"), [(90.0, 1), (30.0, 0)])
def test_a_step_of_a_model_is_launch_bound_where_launching_takes_as_long(launch_ms: float, found: int) -> None:
    step = sets.by_name()["flux1-2048px-step"]
    flag = REPLAYED.__class__(kind=REPLAYED.kind, regime="sustained", value=111.0)
    own = record("flash_attn_4", step, 100.0, launch_ms=launch_ms, flags=(flag,))
    assert len(list(launch_bound.find(groups([own, record("torch_native", step, 100.0)])[0]))) == found


def changed_flag(processes: float) -> Any:
    return LAUNCH_BOUND.__class__(kind=LAUNCH_BOUND.kind, regime=LAUNCH_BOUND.regime, value=processes)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"launch_ms": 0.72}, id="launched early enough"),
        pytest.param({"launch_ms": 0.3, "flags": (LAUNCH_BOUND,)}, id="launching takes less than the call"),
        pytest.param({"launch_ms": 0.3638, "flags": (LAUNCH_BOUND,)}, id="within its interval"),
    ],
)
def test_what_is_not_launch_bound(fields: dict[str, Any]) -> None:
    assert of_group(page(kernel("flash_attn_4", **fields))) == []
