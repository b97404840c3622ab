"""Simulated pages: what the verdicts promise of a whole page, and how the spreads of one are estimated."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from published import REPORTS

from fluxbench.analysis.simulation import sustained
from fluxbench.analysis.simulation.components import Components, Run, components, published
from fluxbench.analysis.simulation.of_target import of_target
from fluxbench.analysis.simulation.pages import SCENARIOS, Scenario, outcome
from fluxbench.device import targets
from fluxbench.device.targets import BetweenRuns

VARIANTS, WORKLOADS, PAGES = 20, 6, 100
SAME = BetweenRuns(variant=0.0005, workload=0.0, df=15, source="")
# Spreads of processes from 0.04 to 0.24%, as on an H200's page; a correlation of 0.72 between lengths.
SPREADS = np.geomspace(0.0004, 0.0024, VARIANTS)
PAGE = Components(
    runs=(),
    workloads=WORKLOADS,
    process=tuple(SPREADS * 0.72**0.5),
    workload=tuple(SPREADS * 0.28**0.5),
    same_card=None,
    other_card=None,
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("name", ["nothing changed", "nothing changed, correlation 0.8"])
def test_few_unchanged_pages_have_a_false_positive_and_intervals_hold_the_truth(name: str) -> None:
    """By degrees of freedom that were added as if lengths were independent, 10 to 50% of such pages had one."""
    found = outcome(BY_NAME[name], PAGE, SAME, PAGES)
    assert found.false_pages <= 8  # 5% are promised
    assert 0.935 <= found.covered / found.rows <= 0.965
    assert found.outlying <= 8


@pytest.mark.parametrize("at_one", [False, True])
def test_a_change_of_one_percent_is_found_at_all_lengths_and_at_one(at_one: bool) -> None:
    found = outcome(Scenario(name="", change=0.01, at_one=at_one), PAGE, SAME, PAGES)
    assert found.changed == PAGES
    assert found.found >= 90
    assert found.false_pages <= 8


def test_an_outlying_process_is_found_and_neither_hides_a_large_change_nor_makes_one() -> None:
    unchanged = outcome(Scenario(name="", outlying=0.02), PAGE, SAME, 40)
    assert unchanged.outlying >= 32
    assert unchanged.false_pages <= 4
    changed = outcome(Scenario(name="", change=0.05, outlying=0.02, of_changed=True), PAGE, SAME, 40)
    assert changed.found >= 32


def made_up(rng: np.random.Generator, runs: int, of_variant: float = 0.0, of_workload: float = 0.0) -> list[Run]:
    """Return runs of 200 variants, ten a cell, whose processes differ by 0.1% at all workloads and 0.05% at each."""
    levels = (
        of_variant * rng.normal(size=(runs, 200, 1, 1))
        + of_workload * rng.normal(size=(runs, 200, WORKLOADS, 1))
        + 0.001 * rng.normal(size=(runs, 200, 1, 3))
        + 0.0005 * rng.normal(size=(runs, 200, WORKLOADS, 3))
    )
    return [
        Run(
            name=f"run {number}",
            card=f"card {number}",
            method_version=6,
            levels={(f"{variant // 10}", f"{variant}"): levels[number, variant] for variant in range(200)},
        )
        for number in range(runs)
    ]


def test_the_components_of_made_up_runs_are_found() -> None:
    rng = np.random.default_rng(1)
    found = components([made_up(rng, 2, 0.002, 0.001)], [made_up(rng, 6, 0.0005)])
    assert np.mean(found.process) == pytest.approx(0.001, rel=0.1)
    assert np.mean(found.workload) == pytest.approx(0.0005, rel=0.05)
    assert found.correlation == pytest.approx(0.8, abs=0.03)
    assert found.same_card
    assert found.same_card.variant == pytest.approx(0.0005, rel=0.15)
    assert found.same_card.df == 5 * 20
    assert found.other_card
    assert found.other_card.variant == pytest.approx(0.002, rel=0.15)
    assert found.other_card.workload == pytest.approx(0.001, rel=0.1)


def test_a_variant_counts_that_runs_measured_in_unequally_many_processes() -> None:
    runs = made_up(np.random.default_rng(1), 6, 0.002, 0.001)
    fewer = [
        dataclasses.replace(run, levels={key: its[:, : 2 + (int(key[1]) + n) % 2] for key, its in run.levels.items()})
        for n, run in enumerate(runs)
    ]
    found = components([fewer], [])
    assert len(found.process) == 200
    assert np.mean(found.process) == pytest.approx(0.001, rel=0.1)
    assert found.other_card
    assert found.other_card.variant == pytest.approx(0.002, rel=0.15)
    assert found.other_card.workload == pytest.approx(0.001, rel=0.1)


def test_the_first_page_of_a_method_version_leaves_how_far_cards_differ_to_the_pages_before() -> None:
    rng = np.random.default_rng(2)
    found = components([made_up(rng, 1), made_up(rng, 6, 0.002)], [])
    assert np.mean(found.process) == pytest.approx(0.001, rel=0.15)
    assert len(found.runs) == 1
    assert found.other_card
    assert found.other_card.variant == pytest.approx(0.002, rel=0.15)


def test_the_published_pages_of_a_target_are_simulated() -> None:
    found = published(REPORTS.parent, "h200", "flux")
    assert found
    assert len(found.process) > 30
    assert 0.2 <= found.correlation <= 0.9
    simulation = of_target(REPORTS.parent, "h200", "flux", pages=1)
    assert simulation
    assert [one.scenario for one in simulation.outcomes] == list(BY_NAME)
    assert of_target(REPORTS.parent, "made-up", "flux") is None


def test_a_page_of_other_workloads_is_not_among_those_of_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = made_up(np.random.default_rng(3), 3)
    beside = [
        dataclasses.replace(
            run,
            levels={key: np.stack([its[:count], its[:count]], axis=1) for key, its in run.levels.items()},
            workloads=frozenset(f"{number}" for number in range(count)),
        )
        for run, count in zip(runs, (3, 3, 2), strict=True)
    ]
    monkeypatch.setattr("fluxbench.analysis.simulation.components.pages_of", lambda *_: beside)
    found = published(tmp_path, "made-up", "flux")
    assert found
    assert (found.runs, found.workloads) == (("run 0", "run 1"), 3)
    monkeypatch.setattr("fluxbench.analysis.simulation.components.pages_of", lambda *_: beside[::-1])
    found = published(tmp_path, "made-up", "flux")
    assert found
    assert (found.runs, found.workloads) == (("run 2",), 2)


@pytest.mark.parametrize("name", ["cpu", "h200"])
def test_runs_may_differ_as_far_as_published_ones_do(name: str) -> None:
    """Else `fluxbench diff` says that a kernel changed where it was only measured on another card."""
    configured, found = targets.named(name, REPORTS.parent), published(REPORTS.parent, name, "flux")
    assert found
    pairs = [(configured.runs, found.same_card)]
    if name == "h200":
        same_card, other_card = sustained.published(REPORTS.parent, name, "flux")
        pairs += [(configured.cards, found.other_card), (configured.runs_sustained, same_card)]
        pairs += [(configured.cards_sustained, other_card)]
    for allowed, seen in pairs:
        assert seen
        assert allowed.variant >= 0.95 * seen.variant
        assert allowed.workload >= 0.95 * seen.workload


def test_where_nothing_is_published_runs_differ_by_twice_what_an_h200_s_do() -> None:
    root = REPORTS.parent
    unknown, known = targets.named("any", root), targets.named("h200", root)
    for name in ("runs", "cards", "runs_sustained", "runs_with_pauses", "cards_sustained"):
        one, other = getattr(unknown, name), getattr(known, name)
        assert (one.variant, one.workload) == pytest.approx((2 * other.variant, 2 * other.workload))


def test_sessions_whose_windows_had_pauses_say_nothing_of_runs_without(tmp_path: Path) -> None:
    for name, version in (("2026-11-27T130209Z", 8), ("2026-11-28T062958Z", 9), ("2026-11-28T100157Z", 10)):
        shutil.copytree(
            REPORTS / "h200" / "certificate" / "history" / name,
            tmp_path / "reports" / "h200" / "certificate" / "history" / name,
        )
        found, _ = sustained.published(tmp_path, "h200", "flux")
        assert found
        assert (found.variant == 0) == (version == 10)
        assert found.df == {8: 27, 9: 68, 10: 20}[version]


def test_a_page_without_a_card_is_named_by_its_day() -> None:
    found = published(REPORTS.parent, "cpu", "flux")
    assert found
    assert all("card" not in name for name in found.runs)
