"""Early records: those of the first variants of a cell, while it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import CPU, GPU, TINIER, TINY
from sample_events import checked, failed, timed

from fluxbench.bench import events
from fluxbench.bench.collected import Collected
from fluxbench.bench.early import FOLDER, Early
from fluxbench.bench.recording import Context
from fluxbench.core import progress
from fluxbench.environments.cell import Cell
from fluxbench.records import files
from fluxbench.records.schema import Record
from fluxbench.records.status import FlagKind, Status

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
NAMES = ["torch_flash", "torch_math", "torch_native"]
OVER = {"event": "phase", "name": "waiting", "at": 1e9}  # what follows after a trial
Hears = Callable[..., None]


@pytest.fixture
def names() -> list[str]:
    return NAMES


@pytest.fixture(params=[CPU, GPU], ids=["cpu", "gpu"])
def hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, names: list[str]) -> Hears:
    """Let a cell hear events of a worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(tmp_path / "progress.jsonl"))
    collected = Collected()
    context = Context(cell=CELL, device=request.param, processes=3, fingerprint={}, measured_at="", powers={})
    collected.heard = Early(collected, names, (TINY, TINIER), context).hear

    def hear(*several: dict[str, object]) -> None:
        for event in several:
            collected.add(events.parse(json.dumps(event)))

    return hear


def began(variant: str) -> dict[str, object]:
    return {"event": "trial", "variant": variant}


def of(variant: str, *workloads: str) -> list[dict[str, object]]:
    """Return the events of a variant that is checked on one kind of inputs and timed, at both workloads by default."""
    names = workloads or (TINY.name, TINIER.name)
    checks = [checked(variant, name, thorough=False) for name in names]
    return [*checks, began(variant), timed(variant, workloads=names)]


def written() -> list[Record]:
    return list(files.read(Path(FOLDER) / "sdpa.jsonl"))


def seen() -> tuple[int, bool]:
    found = progress.read(Path("progress.jsonl"))
    return found.soon, found.early


def test_they_are_announced_before_the_second_variant_is_timed_and_written_after_it(hears: Hears) -> None:
    first, second = of("torch_flash"), of("torch_math")
    hears(*first, *second[:-2])
    assert seen() == (0, False)
    hears(second[-2])
    assert (seen(), Path(FOLDER).exists()) == ((1, False), False)
    hears(second[-1], OVER)
    assert seen() == (1, True)
    assert [(each.variant, each.workload.name, each.status) for each in written()] == [
        (variant, shape.name, Status.PASSED) for variant in ("torch_flash", "torch_math") for shape in (TINY, TINIER)
    ]
    assert all(each.flagged(FlagKind.EARLY) for each in written())
    hears(*of("torch_native"), OVER)
    assert (seen(), len(written())) == ((1, True), 4)


def test_of_variants_that_are_all_timed_at_once_all_are_written(hears: Hears) -> None:
    events_of = [of(name) for name in NAMES]
    hears(*(event for one in events_of for event in one[:-1]), *(one[-1] for one in events_of), OVER)
    assert {each.variant for each in written()} == set(NAMES)


@pytest.mark.parametrize("names", [["torch_math"]])
@pytest.mark.parametrize("without", [{}, {"burst": None}], ids=["on a CPU", "on a GPU"])
def test_a_cell_of_one_variant_has_them_when_that_and_not_its_reference_was_timed(
    hears: Hears, without: dict[str, object]
) -> None:
    hears(began("torch_flash"), timed("torch_flash", workloads=(TINY.name, TINIER.name)) | without, OVER)
    assert seen() == (0, False)
    hears(*of("torch_math"), OVER)
    assert {each.variant for each in written()} == {"torch_math"}


def test_a_variant_that_fails_while_it_is_timed_puts_them_off(hears: Hears) -> None:
    wrong = [failed("torch_math", shape.name) for shape in (TINY, TINIER)]
    hears(*of("torch_flash"), *of("torch_math")[:-1], *wrong)
    assert (seen(), Path(FOLDER).exists()) == ((1, False), False)
    hears(*of("torch_native"), OVER)
    assert seen() == (2, True)
    assert {each.variant for each in written()} == {"torch_flash", "torch_native"}


def test_what_is_still_to_be_timed_is_left_out(hears: Hears) -> None:
    hears(*of("torch_flash", TINY.name), failed("torch_math", TINIER.name), *of("torch_math", TINY.name), OVER)
    assert [(each.variant, each.workload.name, each.status) for each in written()] == [
        ("torch_flash", TINY.name, Status.PASSED),
        ("torch_math", TINY.name, Status.PASSED),
        ("torch_math", TINIER.name, Status.INCORRECT),
    ]


def test_where_they_cannot_be_written_the_measurement_goes_on(hears: Hears) -> None:
    Path(FOLDER).touch()
    hears(*of("torch_flash"), *of("torch_math"), OVER)
    assert seen() == (1, False)


@pytest.mark.parametrize("names", [["torch_flash", "no such variant"]])
def test_where_they_cannot_be_computed_the_measurement_goes_on(hears: Hears) -> None:
    hears(*of("torch_flash"), *of("no such variant"), OVER)
    assert (seen(), Path(FOLDER).exists()) == ((1, False), False)
