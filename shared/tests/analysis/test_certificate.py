"""The certificate on made-up trials whose truth is known: a good harness passes, and a bad one does not."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from certificates import BASES, FORMS, PROCESSES, UNSLOWED, as_json, made_up, with_forms
from published import REPORTS
from sample_records import changed

from fluxbench.analysis.certificate import judging, position, reruns, tables, trials
from fluxbench.analysis.certificate.certificate import Certificate, certify
from fluxbench.analysis.certificate.judging import PERCENT
from fluxbench.analysis.certificate.summary_json import to_json
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.records import files
from fluxbench.records.schema import BURST, SUSTAINED, RecordError
from fluxbench.records.status import Status
from fluxbench.variants import slowed

PUBLISHED = {target: REPORTS / target / "certificate" for target in ("h200", "cpu")}
AGAIN = reruns.Reruns(
    notebook="flux",
    runs=3,
    cells={"sdpa": ("2026-01-31T12:00:00+00:00",) * 3},
    compared=reruns.Pairs(pairs=3, rows=9, called=0, undecided=0, called_sustained=0, device_moved=0),
    burst_faster=reruns.Spread(max=0.0021, median=0.001, variant="flex", workload="w", ratios=(1.0, 1.0021), count=40),
    sustained_faster=reruns.Spread(max=0.011, median=0.01, variant="flex", workload="w", ratios=(1.0, 1.011), count=40),
    clocks=(reruns.CuptiDifference(variant="flex", workload="w", difference=-0.004),),
)


@pytest.fixture(scope="module")
def good() -> Trials:
    return made_up()


def compared(of: Trials) -> judging.Tally:
    return judging.tally(row for comparison in judging.a_a(of) for row in comparison.rows)


# Reading.


def test_trials_are_read_as_they_are_written(good: Trials) -> None:
    assert trials.read(as_json(good)) == good
    none = made_up(runs=1, reason="no slowed variant ran")
    assert trials.read(as_json(none)).reason == "no slowed variant ran"
    assert (good.bases, good.processes, good.unslowed) == (BASES, 6 * PROCESSES, UNSLOWED)
    assert good.variant("torch_flash", 0.0, twin=True) == "torch_flash_plus_0_twin"
    assert {*PERCENT, 0.0} == {form.percent for form in FORMS.values()} == set(slowed.FORMS.values())


def test_trials_of_schema_1_are_read() -> None:
    content = json.loads(files.read_bytes(PUBLISHED["cpu"] / "history" / "2026-11-22T003455Z" / "trials.json.gz"))
    assert content["schema"] == 1
    found = trials.read(content)
    for old, new in zip(content["runs"], found.runs, strict=True):
        assert [record["variant"] for record in old["records"]] == [record.variant for record in new.records]
        assert new.control
        assert new.control.kernel == old["sentinel"]["kernel"]
        assert [(p["turn"], p["turns"], p["places"]) for p in old["places"]] == [
            (place.trial, place.trials, list(place.places)) for place in new.places
        ]
        for before, after in zip(old["records"], new.records, strict=True):
            assert after.timings.keys() == {BURST}
            assert [x for part in after.timings[BURST].samples_ms for x in part] == before["burst"]["samples_ms"]
            assert after.fingerprint == content["fingerprint"]
            assert after.method_version == 6
    assert (found.asked, found.device, found.processes) == (content["asked"], content["device"], 18)


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("path", [("runs",), ("runs", 0, "records"), ("runs", 0, "places"), ("variants",), ("asked",)])
def test_damaged_trials_are_refused(path: tuple[Any, ...], schema: int) -> None:
    content = as_json(made_up(runs=1)) | {"schema": schema}
    for damaged in (None, 1.5, "text", [1], {"a": 1}):
        broken = copy.deepcopy(content)
        inner = broken
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = damaged
        with pytest.raises(RecordError, match=r"trials\.json must hold the runs of trials"):
            trials.read(broken)


@pytest.mark.parametrize("content", [{}, {"schema": 3}, {"schema": "2"}])
def test_trials_of_another_schema_are_refused(content: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match=r"schema of trials\.json must be 1 or 2, got"):
        trials.read(content)


# Sustained times, and forms that were not measured.


def test_sustained_times_are_judged_where_the_trials_have_them() -> None:
    assert certify(made_up(runs=2), None, {}).sustained is None
    loaded = made_up(sustained=True, of_process=0.002)
    found = certify(loaded, None, {})
    assert found.sustained
    assert (found.sustained.same.count, found.sustained.independent.within.of) == (found.same.count, 3)
    assert found.sustained.same.significant <= 0.02 * found.same.count
    by_percent = {one.percent: one for one in found.sustained.detection}
    assert [by_percent[2.0].rate, by_percent[5.0].rate] == [1.0, 1.0]
    assert (by_percent[0.5].rate or 0.0) < 0.6  # the smallest change of a sustained time that may be significant
    assert by_percent[2.0].truth["torch_flash"] == pytest.approx(1.02, abs=0.002)
    summary = to_json(found)["sustained"]
    assert summary["tables"]["within_sessions"]["of"] == 3
    assert summary["detection"]["2"]["found_rate"] == 1.0
    erring = certify(made_up(runs=3, sustained=True, of_run=0.02), None, {}).sustained
    assert erring
    assert erring.same.significant > 0.2 * erring.same.count


def test_forms_that_were_not_measured_have_no_row() -> None:
    few = {name: form for name, form in FORMS.items() if form.percent in (0.0, 1.0) and not form.twin}
    found = certify(with_forms(made_up(runs=3), few), None, {})
    counts = {one.percent: one.total.count for one in found.detection if one}
    assert (counts[0.5], counts[5.0]) == (0, 0)
    assert counts[1.0] > 0


def of(trials_: Trials | None, again: reruns.Reruns | None = AGAIN) -> Certificate:
    return certify(trials_, again, {"event_us": 1.6})


def test_the_numbers_of_a_certificate_are_those_of_its_parts() -> None:
    small = made_up(runs=2)
    found = of(small)
    assert (found.same, found.pairs_of_runs) == (compared(small), 1)
    assert [one and one.percent for one in found.detection] == list(PERCENT)
    assert found.position == tuple(position.effects(small))
    assert found.position_effect == max(one.largest for one in found.position)
    assert (found.rerun_difference(BURST), found.rerun_difference(SUSTAINED)) == (0.0021, 0.011)
    assert found.cupti_difference == pytest.approx(0.004)
    assert found.cupti[-1] == ("flex at w", -0.004)
    assert (found.event_us, found.measured_at, found.missing) == (1.6, "2026-01-31T12:01:00+00:00", {})
    assert found.conditions
    assert (found.conditions.sm_clock_mhz, found.conditions.power_w) == ((1980.0, 1980.0), (150.0, 151.0))
    assert (found.conditions.runs, found.conditions.processes) == (2, 6)


def test_reruns_of_some_cells_alone_give_no_number() -> None:
    once = msgspec.structs.replace(AGAIN, runs=1, burst_faster=None, cells={"flex": ("2026-01-31T12:00:00+00:00",)})
    found = of(None, once)
    assert found.rerun_difference(BURST) is None
    assert "only one of flex was at hand when this page was measured" in found.missing["rerun_ratio_max_difference"]


@pytest.mark.parametrize("given", [None, made_up(runs=1), made_up(runs=0, reason="no GPU")])
def test_what_was_not_measured_is_null_and_says_why(given: Trials | None) -> None:
    found = to_json(certify(given, None, {"reason": "no torch"}))
    assert found["a_a"] == {"comparisons": 0, "false_verdict_rate": None, "undecided_rate": None}
    assert found["detection"]["1"] == {"trials": 0, "found_rate": None}
    assert found["rerun_ratio_max_difference"] is found["event_overhead_us"] is None
    because = found["beside"]["null_because"]
    no_trials = "no GPU" if given and given.reason else "two runs that passed are needed for a comparison"
    assert because["a_a"] == because["detection"] == no_trials
    assert because["event_overhead_us"] == "no torch"
    assert because["rerun_ratio_max_difference"] == "there are no results of the Flux notebook"
    assert ("clock_agreement_max_difference" in because) is (not given or not given.runs)
    json.dumps(found, allow_nan=False)


def test_trials_of_which_nothing_passed_have_no_number() -> None:
    failed = made_up(runs=1)
    records = tuple(
        changed(record, status=Status.UNAVAILABLE, reason="no wheel", timings={}) for record in failed.runs[0].records
    )
    run = msgspec.structs.replace(failed.runs[0], records=records)
    found = of(msgspec.structs.replace(failed, runs=(run, run), reason="no slowed variant ran"))
    assert (found.same.count, found.position, found.measured_at) == (0, (), None)
    assert found.missing["position_effect_max"] == "no slowed variant ran"


def _published(target: str, name: str) -> bytes:
    folder = PUBLISHED[target] / "records"
    [path] = [path for path in folder.iterdir() if path.name in (f"{name}.json", f"{name}.json.gz")]
    return files.read_bytes(path)


@pytest.mark.parametrize("target", PUBLISHED)
def test_a_published_summary_follows_from_what_lies_beside_it(target: str) -> None:
    """Of schema 1 or 2: every number in the published summary is what its published trials give, earlier ones too."""
    names = {path.name for path in (PUBLISHED[target] / "records").iterdir()}
    rates = json.loads(_published(target, "rates" if "rates.json" in names else "ceilings"))
    measured = trials.read(json.loads(_published(target, "trials")))
    earlier = tables.earlier(PUBLISHED[target], measured)
    found = certify(measured, reruns.read(json.loads(_published(target, "reruns"))), rates, earlier)
    expected = json.loads((PUBLISHED[target] / "summary.json").read_text(encoding="utf-8"))
    within = found.independent.within
    assert f"{within.called} of {within.of} independent A/A tables had a false pos" in expected.pop("verdict")
    answer = json.loads(json.dumps(to_json(found)))
    key = "rerun_ratio_max_difference_sustained"  # earlier summaries gave no reason for it
    if key not in expected["beside"]["null_because"]:
        answer["beside"]["null_because"].pop(key, None)
    assert_alike(answer, expected)


def assert_alike(found: Any, expected: Any) -> None:
    """Compare JSON: numbers up to the last digits, and of the words only that there are some."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    elif not isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, str)
