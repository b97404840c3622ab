"""How long the rest of a build will take."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from fakes import REPOSITORY
from notebooks import Machine

from fluxbench.bench.pool import FIRST_COUNTS
from fluxbench.device.model import Device
from fluxbench.notebook.document import load
from fluxbench.notebook.estimates import Times, at_once, compiles, limit_s, weight
from fluxbench.notebook.store import Store
from fluxbench.notebook.width import Width

# An H200's Flux page of 2026-11-23, at most two cells that compile at once: the cells in the order in which they would
# start, with their weights, and when each began, each of its processes began, and it ended. What came after 898 s was
# not seen; it is taken from how the last three cells went until then.
H200_S = {
    "triton": (4, (0, 3, 28, 75, 96)),
    "sdpa_compiled": (20, (0, 9, 223, 359, 445, 480, 517)),
    "flash_attn_3": (14, (0, 9, 137, 240, 327, 414, 445)),
    "flex": (9, (446, 453, 654, 733, 765, 796, 826)),
    "te": (9, (523, 533, 694, 764, 805, 847, 920)),
    "flash_attn_2": (7, (827, 831, 859, 877, 893, 930)),
    "xformers": (7, (920, 930, 960, 985, 1005, 1050)),
    "sdpa": (10, (0, 3, 93, 184, 239, 255, 269)),
    "flash_attn_4": (8, (96, 105, 184, 284, 327)),
    "sage": (8, (269, 271, 316, 359, 380)),
    "hf_kernels": (8, (328, 338, 377, 433, 458, 480, 503)),
    "gluon": (6, (380, 388, 468, 547, 598)),
    "cudnn_frontend": (6, (503, 508, 575, 654, 672, 695, 720)),
    "rates": (2, (603, 648)),
}
COMPILING = ("sdpa_compiled", "flash_attn_3", "flex", "te", "flash_attn_2", "xformers")


def share(seconds: tuple[int, ...], now: float) -> float | None:
    """Return how far a cell is that began its processes, after its own begin, at these seconds."""
    ends = seconds[2:]
    if not ends:
        return None
    begun = float(sum(FIRST_COUNTS if not process else 1 for process, end in enumerate(ends) if end <= now))
    present = sum(end <= now for end in ends)
    counts = 1 if present else FIRST_COUNTS
    part = max(0.0, (now - seconds[present + 1]) / (ends[present] - seconds[present + 1]))
    steps = max(FIRST_COUNTS + 2 + 2 / 3, begun + counts)
    return (begun + counts * part) / steps


def test_the_time_left_of_a_page_that_was_measured_is_about_right_once_a_third_is_done() -> None:
    times = Times(dict.fromkeys(H200_S), {name: weight for name, (weight, _) in H200_S.items()}, 4, COMPILING, 2)
    whole_s = max(seconds[-1] for _, seconds in H200_S.values())
    found = {}
    for now in range(10, whole_s, 10):
        for name, (_, seconds) in H200_S.items():
            if seconds[-1] <= now < seconds[-1] + 10:
                times.ended(name, seconds[-1] - seconds[0])
            elif seconds[0] < now < seconds[-1]:
                times.advanced(name, now - seconds[0], share(seconds, now))
        found[now] = times.left_s()
    late = {now: left for now, left in found.items() if left is not None and now > whole_s / 3}
    wrong = {now: abs(left / (whole_s - now) - 1) for now, left in late.items() if now < whole_s - 100}
    assert max(wrong.values()) < 1 / 3
    assert sum(wrong.values()) / len(wrong) < 0.25
    assert all(late[now] - late[now + 120] > 10 for now in late if now + 120 in late)  # it never stands still


@pytest.mark.parametrize(
    ("running", "ended", "left_s"),
    [
        ({}, {}, None),  # b was never timed, and nothing tells of it
        ({"a": (10.0, 0.05)}, {}, None),
        ({"a": (10.0, 0.1)}, {}, 0.9 * (10 + 0.9 * 100) + 25 + 5),  # b weighs a quarter of a
        ({"a": (100.0, 0.5)}, {}, 0.5 * (100 + 0.5 * 100) + 50 + 5),
        ({}, {"a": 80.0}, 20.0 + 5.0),
        ({"b": (10.0, None)}, {"a": 80.0}, 10.0 + 5.0),
        ({"b": (10.0, 0.25)}, {"a": 0.0, "c": 5.0}, 0.75 * (10 + 0.75 * 12)),
        ({"c": (10.0, None)}, {"a": 1.0, "b": 1.0}, 0.0),
        ({"c": (10.0, 0.5)}, {"a": 1.0, "b": 1.0}, 0.5 * (10 + 0.5 * 5)),
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
    assert times.left_s() == (left_s if left_s is None else pytest.approx(left_s))


@pytest.mark.parametrize("usual_s", [100.0, None])
def test_what_a_build_before_measured_of_a_cell_takes_no_time_and_does_not_make_others_seem_fast(
    usual_s: float | None,
) -> None:
    """A cell of 100 s, of which 60 s are measured, and one that weighs as much; both run as fast as the last time."""
    times = Times({"a": usual_s, "b": None}, {"a": 4, "b": 4})
    for elapsed_s in (10.0, 20.0, 30.0):
        times.advanced("a", elapsed_s, 0.6 + elapsed_s / 100, before=0.6)
        assert times.left_s() == pytest.approx(40.0 - elapsed_s + 100.0)
    times.advanced("a", 1.0, 1.0, before=1.0)
    times.ended("b", 100.0)
    assert times.left_s() == 0.0


@pytest.mark.parametrize(
    ("usual_s", "left_s"),
    [
        ({"a": 30.0, "b": 30.0, "c": 30.0}, 30.0),
        ({"a": 30.0, "b": 30.0, "c": 30.0, "d": 30.0}, 30.0 + 30.0 / 3**0.25),
        ({"a": 50.0}, 50.0 / 3**0.25),
    ],
)
def test_cells_that_run_at_once_share_the_time(usual_s: dict[str, float | None], left_s: float) -> None:
    assert Times(usual_s, {}, at_once=3).left_s() == pytest.approx(left_s)


def test_cells_that_may_not_compile_at_once_wait_for_each_other() -> None:
    times = Times({"a": 30.0, "b": 30.0}, {}, 2, compiling=("a", "b"), compiling_at_once=1)
    assert times.left_s() == pytest.approx(60.0 / 2**0.25)


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


def test_how_long_a_part_of_a_cell_took_does_not_limit_the_whole_one(machine: Machine) -> None:
    (machine.folder / "laboratory" / "partly").touch()
    machine.build()
    document = load(machine.notebook)
    settings = dataclasses.replace(machine.settings, cell_limit_s=500.0)
    assert limit_s(document, Store(document), settings) == 900 + 2 * 500 + 2 * 60
    (machine.folder / "laboratory" / "partly").unlink()
    machine.build("first")
    assert limit_s(document, Store(document), settings) == 900 + 500 + 3 * 60


@pytest.mark.parametrize(("memory_gb", "models", "kernels"), [(24, 1, 4), (85, 4, 4), (150, 6, 6)])
def test_as_many_models_share_a_gpu_as_fit_and_of_attention_and_two_at_most_of_what_fills_its_memory(
    monkeypatch: pytest.MonkeyPatch, memory_gb: int, models: int, kernels: int
) -> None:
    monkeypatch.setattr("fluxbench.core.cores.available", lambda: 16)
    gpu = Device(kind="cuda", name="made up", memory_bytes=memory_gb * 10**9)
    widths = {}
    for name in ("model", "flux", "scaling"):
        notebook = load(REPOSITORY / "notebooks" / f"{name}.md")
        widths[name] = Width.on(gpu, at_once(notebook.cells, notebook, gpu)).measuring
    assert widths == {"model": models, "flux": kernels, "scaling": 1 if memory_gb < 120 else 2}


@pytest.mark.parametrize(
    ("cores", "memory_gb", "cells"), [(16, 150, 8), (16, 85, 8), (12, 150, 6), (16, 24, 2), (4, 150, 1), (64, 400, 8)]
)
def test_as_many_cells_of_the_grid_share_a_gpu_as_its_memory_and_the_host_s_cores_allow(
    monkeypatch: pytest.MonkeyPatch, cores: int, memory_gb: int, cells: int
) -> None:
    monkeypatch.setattr("fluxbench.core.cores.available", lambda: cores)
    gpu = Device(kind="cuda", name="made up", memory_bytes=memory_gb * 10**9)
    notebook = load(REPOSITORY / "notebooks" / "sdpa.md")
    assert Width.on(gpu, at_once(notebook.cells, notebook, gpu)).measuring == cells


def test_a_variant_that_compiles_its_kernels_weighs_as_much_as_two(machine: Machine) -> None:
    gpu = Device(kind="cuda", name="NVIDIA H200", compute_capability=(9, 0))
    notebook = load(REPOSITORY / "notebooks" / "sdpa.md")
    weights = {code.id: weight(code, notebook, gpu, machine.settings) for code in notebook.cells}
    measured = {name: weights[name] for name in ("eager", "sdpa", "flex", "flash_attn_2", "flash_attn_4", "grid")}
    assert measured == {
        "eager": 2 + 2,
        "sdpa": 2 + 2,
        "flex": 2 + 2,
        "flash_attn_2": 1 + 2,
        "flash_attn_4": 2 + 2,
        "grid": 0,
    }


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("model", {"blocks", "blocks_more", "others"}),
        ("backward", {"sdpa_compiled", "flex", "flex_autotuned"}),
        ("decode", {"flex"}),
    ],
)
def test_cells_that_mostly_compile_have_several_compiled_variants_or_none_other(name: str, cells: set[str]) -> None:
    notebook = load(REPOSITORY / "notebooks" / f"{name}.md")
    assert {code.id for code in notebook.cells if compiles(code, notebook)} == cells
