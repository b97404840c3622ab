"""The certificate on made-up runs whose truth is known: a good harness passes, and a bad one does not."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from certificates import BASES, FORMS, PROCESSES, WORKLOADS, made_up
from fakes import GPU, clean

from fluxbench.analysis.certificate import position
from fluxbench.analysis.certificate import runs as certificate_runs
from fluxbench.analysis.certificate import summary as certificate_summary
from fluxbench.analysis.certificate.runs import PERCENT, Trials
from fluxbench.bench import measuring as bench
from fluxbench.bench import trials as certificate_trials
from fluxbench.bench.observations import Observations
from fluxbench.bench.series import Turn
from fluxbench.device import detection as hardware
from fluxbench.environments import cell
from fluxbench.records.schema import Record, RecordError, Status
from fluxbench.report import certificate
from fluxbench.stats.significance import Verdict

SUMMARY = {
    *("a_a", "detection", "position_effect_max", "rerun_ratio_max_difference", "clock_agreement_max_difference"),
    *("event_overhead_us", "measured_at", "fingerprint"),
}
GOOD_AGAIN = {
    "runs": 3,
    "reason": None,
    "burst_faster": {"max": 0.0021, "count": 40},
    "sustained_faster": {"max": 0.011, "count": 40},
    "clocks": [{"variant": "flex", "workload": "flux1-1024px-t128", "difference": -0.004}],
}


@pytest.fixture(scope="module")
def good() -> Trials:
    return made_up()


@pytest.fixture(scope="module")
def noisy() -> Trials:
    """A harness that errs by 1% between two runs of the same thing, which its processes do not show."""
    return made_up(of_run=0.01)


def rows(trials: Trials) -> list[Any]:
    return [row for each in certificate_runs.a_a(trials) for row in each.rows]


def summary(trials: Trials | None, again: dict[str, Any] | None = None) -> dict[str, Any]:
    return certificate_summary.summary(trials, again or {}, {"event_us": 1.6})


# A/A.


def test_each_run_is_compared_with_each_later_one(good: Trials) -> None:
    assert len(certificate_runs.a_a(good)) == 15
    assert len(rows(good)) == 15 * len(BASES) * 2 * len(WORKLOADS)
    assert {row.variant for row in rows(good)} == {f"{b}_plus_0{twin}" for b in BASES for twin in ("", "_twin")}


def test_a_row_is_told_net_of_the_sentinel_beside_it(good: Trials) -> None:
    assert all(row.net for row in rows(good))


def test_a_good_harness_calls_hardly_anything_and_decides(good: Trials) -> None:
    found = certificate_runs.tally(rows(good))
    assert found.called <= 0.02 * found.count
    assert found.verdicts[Verdict.UNDECIDED] == 0
    assert found.covered > 0.9 * found.count


def test_a_harness_that_does_not_know_its_error_is_found_out(noisy: Trials) -> None:
    found = certificate_runs.tally(rows(noisy))
    assert found.called > 0.2 * found.count
    assert found.covered < 0.7 * found.count


def test_a_coarse_harness_is_left_undecided() -> None:
    found = certificate_runs.tally(rows(made_up(of_process=0.03)))
    assert found.verdicts[Verdict.UNDECIDED] > 0.5 * found.count


# What was put in.


@pytest.mark.parametrize(("percent", "least"), [(1.0, 0.95), (2.0, 1.0), (5.0, 1.0)])
def test_a_slowdown_is_found(good: Trials, percent: float, least: float) -> None:
    found = certificate_runs.detected(good, percent)
    assert found.total.count == 30 * len(BASES) * len(WORKLOADS)
    assert found.rate is not None
    assert found.rate >= least
    assert {base: round(ratio, 3) for base, ratio in found.truth.items()} == dict.fromkeys(BASES, 1 + percent / 100)


def test_a_slowdown_that_was_not_put_in_is_not_found_and_the_truth_says_so() -> None:
    found = certificate_runs.detected(made_up(works=0.0), 2.0)
    assert found.rate is not None
    assert found.rate < 0.05
    assert all(ratio == pytest.approx(1.0, abs=0.001) for ratio in found.truth.values())


def test_one_slowed_variant_stands_in_an_unchanged_table_with_its_own_sentinel(good: Trials) -> None:
    side = certificate_runs.as_measured(good, 1, {"torch_flash_plus_0": "torch_flash_plus_2"})
    plain = certificate_runs.as_measured(good, 1)
    assert (
        {r.variant for r in side.records} == {r.variant for r in plain.records} == set(certificate_runs.unslowed(good))
    )
    changed = {r.variant for r, was in zip(by_name(side.records), by_name(plain.records), strict=True) if r != was}
    assert changed == {"torch_flash_plus_0"}
    sentinel = good.runs[1].sentinel
    [beside] = side.sentinels.values()
    assert sentinel
    assert beside.samples_ms["torch_flash_plus_0"] == sentinel.samples_ms["torch_flash_plus_2"]
    assert set(beside.samples_ms) == set(certificate_runs.unslowed(good))


def by_name(found: tuple[Record, ...]) -> list[Record]:
    return sorted(found, key=lambda record: (record.variant, record.workload.name))


# Position.


def test_without_an_effect_of_position_there_is_noise_alone(good: Trials) -> None:
    found = position.effects(good)
    assert {(each.kind, each.base) for each in found} == {
        (kind, base) for kind in (position.IN_ROUND, position.IN_PROCESS) for base in BASES
    }
    assert all(each.largest < 4 * each.noise < 0.004 for each in found)


def test_what_a_place_in_the_round_adds_is_found() -> None:
    found = position.effects(made_up(by_place=lambda place: 0.01 if place < 2 else 0.0))
    first = [each.thirds[0] for each in found if each.kind == position.IN_ROUND]
    assert first == [pytest.approx(0.01, abs=0.004) for _ in BASES]
    assert all(each.largest < 0.002 for each in found if each.kind == position.IN_PROCESS)


def test_what_a_turn_in_the_process_adds_is_found() -> None:
    found = position.effects(made_up(by_turn=lambda turn: 0.01 if turn >= 8 else 0.0))
    assert [each.thirds[2] for each in found if each.kind == position.IN_PROCESS] == [
        pytest.approx(0.01, abs=0.002) for _ in BASES
    ]
    largest = position.largest(found)
    assert largest
    assert largest.kind == position.IN_PROCESS


# The summary.


def test_a_summary_has_the_keys_that_are_asked_for(good: Trials) -> None:
    found = summary(good, GOOD_AGAIN)
    assert set(found) - SUMMARY == {"rerun_ratio_max_difference_sustained", "beside"}
    assert set(found["a_a"]) == {"comparisons", "false_verdict_rate", "undecided_rate"}
    assert {key: set(its) for key, its in found["detection"].items()} == {
        key: {"trials", "found_rate"} for key in ("0.5", "1", "2", "5")
    }
    json.dumps(found, allow_nan=False)


def test_a_good_harness_meets_every_target(good: Trials) -> None:
    found = summary(good, GOOD_AGAIN)
    made = certificate_summary.lines(found)
    few = {line.question for line in made if line.met == "too few"}
    assert {line.met for line in made if line.target != "-"} <= {"yes", "too few"}
    assert few == set() or all("A/A" in question for question in few)
    assert found["event_overhead_us"] == 1.6
    assert found["clock_agreement_max_difference"] == pytest.approx(0.004)
    assert found["measured_at"] == "2026-01-31T12:05:00+00:00"
    said = certificate_summary.verdict(found, made)
    assert "none was called different" in said
    assert "one of 2% was found in all of" in said


def test_a_bad_harness_misses_targets_and_the_verdict_names_them(noisy: Trials) -> None:
    found = summary(noisy, {**GOOD_AGAIN, "burst_faster": {"max": 0.02, "count": 40}})
    made = certificate_summary.lines(found)
    missed = [line.question for line in made if line.met == "no"]
    assert "A/A: the same kernel called different" in missed
    assert "Flux again: a burst ratio differs by" in missed
    said = certificate_summary.verdict(found, made)
    assert said.startswith("In 180 comparisons of a kernel with itself ")
    assert re.search(r"Not met: A/A: the same kernel called different [\d.]+% \(target <= 1% of >= 200\); ", said)


def test_what_too_few_trials_show_is_not_called_met() -> None:
    made = certificate_summary.lines(summary(made_up(runs=2), GOOD_AGAIN))
    assert {line.met for line in made if line.target != "-"} <= {"too few", "yes", "no"}
    assert next(line for line in made if line.question.startswith("A/A: the same")).met == "too few"


@pytest.mark.parametrize("trials", [None, made_up(runs=1), made_up(runs=0)])
def test_what_was_not_measured_is_null_and_says_why(trials: Trials | None) -> None:
    found = certificate_summary.summary(trials, {"reason": "there is no run"}, {"reason": "no torch"}, "no GPU")
    assert found["a_a"] == {"comparisons": 0, "false_verdict_rate": None, "undecided_rate": None}
    assert found["detection"]["1"] == {"trials": 0, "found_rate": None}
    assert found["rerun_ratio_max_difference"] is found["event_overhead_us"] is None
    because = found["beside"]["null_because"]
    assert because["rerun_ratio_max_difference"] == "there is no run"
    assert because["event_overhead_us"] == "no torch"
    assert because["a_a"] == "no GPU"
    text = certificate.summary_text(found)
    assert text.startswith("The harness could not be tried: no GPU.")
    assert "No number for event_overhead_us: no torch." in text


def test_reruns_of_some_cells_alone_give_no_number(good: Trials) -> None:
    found = summary(good, {**GOOD_AGAIN, "runs": 1, "reason": "there is one run alone of flex"})
    assert found["rerun_ratio_max_difference"] is None
    assert found["beside"]["null_because"]["rerun_ratio_max_difference"] == "there is one run alone of flex"


def test_every_number_names_its_regime_count_and_device_state(good: Trials) -> None:
    text = certificate.summary_text(summary(good, GOOD_AGAIN))
    said = " ".join(text.split())
    assert "Regime: burst" in said
    assert "6 runs of 3 fresh processes each; SM clock 1,980 MHz; power 150 W" in said
    assert all(len(line) <= 125 for line in text.splitlines())


def test_the_cells_say_what_a_trial_is_and_what_was_put_in(good: Trials) -> None:
    assert "15 pairs of 6 runs (18 fresh processes)" in certificate.agreement_text(good)
    text = certificate.detection_text(good)
    assert "A trial: one run before" in text
    truth = certificate_runs.detected(good, 1.0).truth["torch_flash"]
    assert f"1%      torch_flash       {truth:.4f}" in text
    assert position.IN_PROCESS in certificate.order_text(good)
    assert "0.20%" in certificate.clocks_text(good)


def test_on_a_cpu_the_second_clock_is_asked_of_unslowed_forms_alone(good: Trials) -> None:
    on_cpu = dataclasses.replace(good, fingerprint={"device_kind": "cpu"})
    assert {r.variant for r, _ in certificate_runs.clock_differences(on_cpu)} == set(certificate_runs.unslowed(good))
    assert {r.variant for r, _ in certificate_runs.clock_differences(good)} == set(FORMS)


# The measuring cell.


HEADER = '# /// script\n# [tool.fluxbench]\n# notebook = "certificate"\n# packages = ["torch==2.13.0"]\n# ///\n'


def test_what_the_trials_write_is_what_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cell, "current", lambda: cell.parse(HEADER, "trials"))
    monkeypatch.setattr(hardware, "detect", lambda: GPU)
    planned = made_up()
    asked: list[list[str]] = []

    def measure_cell(this: Any, names: list[str], *arguments: Any, sustained: bool) -> list[Record]:
        assert not sustained
        run = planned.runs[len(asked)]
        asked.append(names)
        observed = next(each for each in arguments if isinstance(each, Observations))
        observed.sentinel = "made up"
        for process in range(PROCESSES):
            observed.turns += turns(run.places, process)
        return list(run.records)

    monkeypatch.setattr(bench, "measure_cell", measure_cell)
    certificate_trials.measure()
    read = certificate_runs.read((tmp_path / "trials.json").read_text(encoding="utf-8"))
    assert len(read.runs) == certificate_trials.RUNS
    assert [r.burst for r in read.records] == [r.burst for r in planned.records]
    assert set(read.bases) == {"torch_flash", "torch_cudnn", "triton_flash"}
    assert {len(set(names)) for names in asked} == {18}
    assert len({names[0] for names in asked}) == 6
    [first, *_] = [part for part in read.runs[0].places if part["process"] == 0 and part["turn"] == 0]
    [same] = [
        p for p in planned.runs[0].places if (p["process"], p["turn"], p["workload"]) == (0, 0, first["workload"])
    ]
    assert first["variant"] == same["variant"]
    assert first["samples_ms"] == [pytest.approx(sample, abs=1e-6) for sample in same["samples_ms"]]
    assert (first["places"], first["of"]) == (same["places"], 7)


def turns(places: tuple[Any, ...], process: int) -> list[Turn]:
    """Return the turns of a process as a worker tells them."""
    own: dict[int, list[Any]] = {}
    for part in places:
        if part["process"] == process:
            own.setdefault(part["turn"], []).append(part)
    found = []
    for turn, parts in own.items():
        samples = {part["workload"]: part["samples_ms"] for part in parts}
        burst = {
            "samples_ms": samples,
            "reference_ms": samples,
            "sentinel_ms": [0.4] * len(parts[0]["places"]),
            "places": {part["workload"]: part["places"] for part in parts},
            "launch_ms": dict.fromkeys(samples, 0.01),
            "times": [(turn + index / 100, turn + index / 100) for index in range(len(parts[0]["places"]))],
        }
        found.append(
            Turn(
                variant=parts[0]["variant"],
                reference="torch_flash",
                process=process,
                workloads=list(samples),
                burst=burst,
                block=None,
                clocks={},
                repeated_over_new={},
                worker=0,
                began=float(turn),
                ended=turn + 1.0,
                slept_s=0.0,
            )
        )
    return found


def test_trials_of_which_nothing_ran_say_so_after_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cell, "current", lambda: cell.parse(HEADER, "trials"))
    monkeypatch.setattr(hardware, "detect", lambda: GPU)
    failed = [
        dataclasses.replace(
            record, status=Status.UNAVAILABLE, reason="no wheel", timing=None, burst=None, energy_mj=None
        )
        for record in made_up(runs=1).runs[0].records
    ]
    runs: list[int] = []

    def measure_cell(*arguments: Any, sustained: bool) -> list[Record]:
        runs.append(1)
        return failed

    monkeypatch.setattr(bench, "measure_cell", measure_cell)
    certificate_trials.measure()
    assert len(runs) == 1
    assert json.loads((tmp_path / "trials.json").read_text(encoding="utf-8"))["reason"] == "no slowed variant ran"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": 1}'])
def test_a_damaged_file_of_trials_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match=r"trials\.json must hold the runs of trials"):
        certificate_runs.read(text)


def test_all_levels_are_judged() -> None:
    assert {*PERCENT, 0.0} == {form.percent for form in FORMS.values()}
