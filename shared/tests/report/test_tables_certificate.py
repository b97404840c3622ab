"""The tables of the certificate and of reruns: their numbers are those of the trials, and what is missing is said."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from certificates import AGAIN, FORMS, answers, as_json, made_up, results_of, shown, with_fields, with_forms
from published import REPORTS
from sample_records import results
from tabled import bullets, rows_of, table_of, words

from fluxbench import show
from fluxbench.analysis.certificate import reruns
from fluxbench.analysis.certificate.certificate import certify
from fluxbench.analysis.certificate.summary_json import to_json
from fluxbench.records.method import METHOD_VERSION
from fluxbench.report import results as of_cells
from fluxbench.report import tables
from fluxbench.report.blocks import Fold, Paragraph

pytestmark = pytest.mark.usefixtures("usual_spreads")

# Reruns.


def test_reruns_show_how_far_ratios_differ_and_which_runs_these_are() -> None:
    found = shown("reruns", None)
    table = table_of(found)
    assert rows_of(table) == [
        ("burst", "under 2 ms", "40", "0.10%", "0.21%", "flex at w"),
        ("sustained", "from 2 ms", "7", "2.00%", "3.00%", "te at v"),
    ]
    text = words(found)
    assert "9 rows: 1 significant changes, 2 undecided; under sustained load 4 significant changes. " in text
    assert "The control kernel's change was significant in 5 of the pairs." in text
    assert "Sustained ratios that are launch-bound in some run are left out: 2." in text
    assert "Left out, with only one run: te, flex." in text
    [(runs, _)] = bullets(found, "Runs of the same fingerprint")
    assert runs == "sdpa: 2026-01-31 12:02:00 UTC, 2026-01-31 12:01:00 UTC"


def test_reruns_say_why_there_are_none() -> None:
    nothing = {"pairs": 0, "rows": 0, "called": 0, "undecided": 0, "called_sustained": 0, "device_moved": 0}
    told = "there is no result of notebooks/flux.md here; run `make publish`"  # as a page before has it
    none = {"notebook": "flux", "runs": 0, "cells": {}, "compared": nothing, "at_once": True, "reason": told}
    text = words(shown("reruns", None, none))
    assert "No difference of burst ratios under 2 ms: it takes two runs of the notebook flux " in text
    assert "make publish" not in text
    assert words(shown("reruns", None, {})) == "There are no fresh runs: the results cell read no other notebook."


# The simulation.


def test_the_simulation_says_how_far_runs_differ() -> None:
    path = REPORTS / "h200" / "certificate" / "records" / "simulation.json"
    given = results(notebook="certificate", simulation=json.loads(path.read_text(encoding="utf-8")))
    notes = " ".join(table_of(tables.find("simulation").blocks(given)).notes)
    for which, name in (("one", "same card"), ("another", "another card")):
        variant = given.simulation["between"][name]["variant"]
        assert f"Runs on {which} card differ beyond that by {100 * variant:.3f}%" in notes


# The certificate.


def test_a_good_harness_meets_every_target() -> None:
    found = shown("certificate", made_up())
    [verdict, *_] = found
    assert isinstance(verdict, Paragraph)
    assert verdict.words == (
        "NVIDIA H200: 0 of 3 independent A/A tables had a false positive in burst (a rate of at most 63.2% with 95% "
        "confidence). Injected slowdowns detected in burst: 1% in all of 180 comparisons with 95% intervals of ±0.16%, "
        "2% in all of 180 comparisons with 95% intervals of ±0.16%. Of an H200's 7 targets 4 are met, 3 need more "
        "trials."
    )  # 20 tables, and 200 comparisons
    rows = answers(found)
    assert [row["met"] for row in rows.values()] == [
        *("too few", "-", "too few", "too few", "-", "yes", "yes", "-", "yes", "-", "yes", "-", "-", "-")
    ]
    assert rows["A/A: false positives"]["of"] == "180 comparisons in 15 pairs of runs"
    targets = [row["target, H200"] for row in rows.values() if row["met"] != "-"]
    assert targets == [
        *(
            "<= 5% of >= 20, 2 sessions",
            "<= 1% of >= 200",
            "<= 10%",
            ">= 95% of >= 100",
            ">= 100% of >= 100",
            "<= 0.2%",
            "<= 0.3% of 3 runs",
        )
    ]
    again = rows["Flux again: a burst ratio differs by"]
    assert (again["answer"], again["of"]) == ("0.21%", "3 runs, 40 ratios")
    assert rows["Flux again: a sustained ratio differs by"]["answer"] == "not measured"
    assert rows["an event costs"]["answer"] == "1.60 µs"
    text = words(found)
    assert "NVIDIA H200; 6 runs of 3 fresh processes each. In burst, single calls on a device that rested: SM " in text
    assert "SM clock 1,980 MHz; power 150 to 155 W; temperature 41 °C." in text
    assert "Measured 2026-01-31 12:05:00 UTC." in text
    assert f"The trials are of method version {METHOD_VERSION} (" in text


def test_tables_of_one_session_and_of_two_share_runs_and_are_never_added_up() -> None:
    measured = results_of(made_up(runs=4, sustained=True))
    earlier = made_up(runs=5, sustained=True, of_process=0.0004)
    before = with_fields(earlier, measured_at="2026-01-30T12:00:00+00:00")
    found = dataclasses.replace(measured, earlier_trials=(as_json(before),))
    rows = answers(tables.find("certificate").blocks(found))
    for regime in ("", ", sustained"):
        of_one, of_two = (
            rows[f"A/A{regime}: tables of {which} with a false positive"] for which in ("one session", "two sessions")
        )
        assert of_one["answer"] == "0 of 4; at most 52.7%"
        assert (of_two["answer"], of_two["of"]) == (
            "0 of 4",
            "disjoint pairs of runs, 1 pair of sessions; not independent",
        )
    of_another_card = msgspec.structs.replace(before, fingerprint={**before.fingerprint, "card": "another"})
    of_another = dataclasses.replace(measured, earlier_trials=(as_json(of_another_card),))
    rows = answers(tables.find("certificate").blocks(of_another))
    for regime in ("", ", sustained"):
        of_two = rows[f"A/A{regime}: tables of two sessions with a difference"]
        assert of_two["of"] == "disjoint pairs of runs, 1 pair of sessions, 1 of two cards; not independent"


def test_slowdowns_that_no_trial_has_are_not_mentioned() -> None:
    few = {name: form for name, form in FORMS.items() if form.percent in (0.0, 1.0)}
    found = shown("certificate", with_forms(made_up(runs=2, sustained=True), few))
    detected = [name for name in answers(found) if name.startswith("a slowdown of")]
    assert detected == ["a slowdown of 1% is detected", "a slowdown of 1% is detected, sustained"]
    assert "not measured of" not in words(found)
    assert "0 of 1 independent A/A tables had a false positive in burst (a rate of at most 95.0% with 95% " in words(
        found
    )
    assert "confidence), and 0 of 1 sustained. Injected slowdowns detected in burst: 1% in " in words(found)
    rows = answers(found)
    assert rows["A/A: tables of one session with a false positive"]["of"].startswith(
        "disjoint pairs of successive runs, 1 session;"
    )
    assert (
        rows["a slowdown of 1% is detected, sustained"]["of"]
        == "12 comparisons; truly 0.95% to 1.00%, standard error up to 0.03%"
    )


def test_a_kernel_that_did_not_pass_leaves_the_others_truths_known() -> None:
    whole = made_up(runs=2, sustained=True)
    passed = with_forms(whole, {name: form for name, form in FORMS.items() if form.base == "torch_flash"})
    found = shown("certificate", msgspec.structs.replace(passed, variants=FORMS))
    assert "standard error up to 0.0" in answers(found)["a slowdown of 1% is detected, sustained"]["of"]


def test_a_bad_harness_misses_targets_and_the_verdict_counts_them() -> None:
    again = {**AGAIN, "runs": 2, "burst_faster": {**AGAIN["burst_faster"], "max": 0.02}, "at_once": True}
    found = shown("certificate", made_up(runs=5, of_run=0.01), again)
    rows = answers(found)
    missed = [name for name, row in rows.items() if row["met"] == "no"]
    assert "A/A: false positives" in missed
    assert "Flux again, several cards: a burst ratio differs by" in missed
    [verdict, *_] = found
    text = words([verdict])
    assert text.startswith(
        "NVIDIA H200: 2 of 2 independent A/A tables had a false positive in burst (a rate of at most 100.0% "
    )
    assert text.endswith(f" targets {len(missed)} are missed, 2 need more trials.")


def test_the_target_of_the_position_needs_little_noise() -> None:
    name = "the position in the order moves a median by"
    moved = answers(shown("certificate", made_up(runs=4, by_place=lambda place: 0.01 if place < 2 else 0.0)))[name]
    assert (moved["met"], moved["target, H200"]) == ("no", "<= 0.2%")
    coarse = answers(shown("certificate", made_up(runs=2, of_process=0.01)))[name]
    assert coarse["met"] == "too few"
    samples, count = 2 * 2 * 3 * 3 * 6 * 12, 2 * 2 * 3 * 6  # of two kernels in two runs
    assert coarse["of"].startswith(f"{samples:,} samples, {count} trials; noise ")
    assert coarse["of"].endswith(", over half of the target")


@pytest.mark.parametrize(
    ("difference", "runs", "met"), [(0.003, 3, "yes"), (0.0031, 3, "no"), (0.003, 2, "too few"), (0.0031, 2, "no")]
)
def test_the_target_of_reruns(difference: float, runs: int, met: str) -> None:
    again = {**AGAIN, "runs": runs, "burst_faster": {**AGAIN["burst_faster"], "max": difference}}
    assert answers(shown("certificate", made_up(runs=2), again))["Flux again: a burst ratio differs by"]["met"] == met


def test_the_method_version_of_the_trials_is_said_above_the_fold() -> None:
    trials = with_fields(made_up(runs=2), method_version=10)
    seen = words([block for block in shown("certificate", trials) if not isinstance(block, Fold)])
    assert "The trials are of method version 10 (no pause between sustained windows). They hold for pages of" in seen
    assert "this version, of versions 8 and 9 for burst times alone, and not for others. " in seen


def test_what_was_not_measured_is_said_with_why() -> None:
    found = shown("certificate", None, {}, {"reason": "no torch"})
    text = words(found)
    assert text.startswith("The harness could not be tested: two runs that passed are needed for a comparison.")
    assert "No value of event_overhead_us: no torch." in text
    assert {row["answer"] for row in answers(found).values()} == {"not measured"}
    assert {row["met"] for row in answers(found).values()} <= {"-", "too few"}
    alone = words(shown("certificate", made_up(runs=2), {})[:1])
    assert alone.endswith(" need more trials, 1 is not measured.")
    told = words(shown("certificate", with_fields(made_up(runs=2), telemetry={})))
    assert "The device reports no clock, power or temperature. Another process used the device: python 12." in told


# What is published beside the page.


def test_the_summary_and_the_reruns_are_published() -> None:
    trials = made_up(runs=2)
    given = results_of(trials)
    certificate = tables.find("certificate")
    assert certificate.files
    [(name, text)] = certificate.files(given).items()
    expected = to_json(certify(trials, reruns.read(AGAIN), {"event_us": 1.6}))
    [verdict, *_] = certificate.blocks(given)
    expected = {"verdict": words([verdict]), **expected}
    assert (name, json.loads(text)) == ("summary.json", json.loads(json.dumps(expected)))
    found = tables.find("reruns")
    assert found.files
    assert {key: json.loads(value) for key, value in found.files(given).items()} == {"reruns.json": AGAIN}


def test_showing_a_table_writes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_cells.write(results_of(None), tmp_path)
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_RESULTS")
    monkeypatch.setenv("UVNOTE_INPUT_RESULTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    show.table("reruns")
    assert json.loads((tmp_path / "reruns.json").read_text(encoding="utf-8")) == AGAIN


def test_the_results_cell_reads_the_notebook_that_its_header_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(REPORTS / "h200" / "flux" / "records" / "device.json", tmp_path)
    cell = tmp_path / "results.py"
    cell.write_text('# /// script\n# [tool.fluxbench]\n# reads = ["flux"]\n# ///\n', encoding="utf-8")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(cell), raising=False)
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_DEVICE")
    monkeypatch.setenv("UVNOTE_INPUT_DEVICE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fluxbench.analysis.simulation.of_target.PAGES", 2)  # of which 200 take half a minute
    show.results("certificate")
    found = of_cells.read(tmp_path)
    assert found.notebook == "certificate"
    assert reruns.read(found.reruns).cells.keys() >= {"sdpa", "flex"}  # at least those that are published
