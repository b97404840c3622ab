"""How long the rest of a build will take."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from fakes import REPOSITORY
from notebooks import Machine

from fluxbench.device.model import Device
from fluxbench.notebook.document import load
from fluxbench.notebook.estimates import Times, at_once, limit_s, weight
from fluxbench.notebook.store import Store
from fluxbench.notebook.width import Width


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


def test_a_build_may_take_three_times_as_long_as_the_last_one(machine: Machine) -> None:
    document = load(machine.notebook)
    settings = dataclasses.replace(machine.settings, cell_limit_s=500.0)
    never_run = limit_s(document, Store(document), settings)
    assert never_run == 900 + 2 * 500 + 2 * 60
    machine.build()
    assert limit_s(document, Store(document), settings) == 900 + 4 * 60  # cells take less than a second here
    run = Store(document).last_good("first")
    assert run is not None
    changed = msgspec.structs.replace(run.run, duration=400.0)
    Store(document).add("first", changed, run.folder, run.run.artifacts)
    assert limit_s(document, Store(document), settings) == 900 + 3 * 400 + 3 * 60


def test_models_share_a_gpu_two_at_once_attention_four_and_what_fills_its_memory_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fluxbench.core.cores.available", lambda: 16)
    gpu = Device(kind="cuda", name="made up")
    widths = {}
    for name in ("model", "flux", "scaling"):
        notebook = load(REPOSITORY / "notebooks" / f"{name}.md")
        widths[name] = Width.on(gpu, at_once(notebook.cells, notebook)).measuring
    assert widths == {"model": 2, "flux": 4, "scaling": 1}


def test_a_variant_that_compiles_its_kernels_weighs_as_much_as_two(machine: Machine) -> None:
    gpu = Device(kind="cuda", name="NVIDIA H200", compute_capability=(9, 0))
    notebook = load(REPOSITORY / "notebooks" / "sdpa.md")
    weights = {code.id: weight(code, notebook, gpu, machine.settings) for code in notebook.cells}
    measured = {name: weights[name] for name in ("sdpa", "flex", "flash_attn_2", "flash_attn_4", "grid")}
    assert measured == {"sdpa": 7 + 1, "flex": 2, "flash_attn_2": 1, "flash_attn_4": 2, "grid": 0}
