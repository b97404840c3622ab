"""Unchanged runs and injected slowdowns, judged on made-up trials whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from certificates import BASES, FORMS, PROCESSES, UNSLOWED, WORKLOADS, made_up

from fluxbench.analysis.certificate import judging
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.records.schema import BURST, Record
from fluxbench.stats.significance import Verdict

pytestmark = pytest.mark.usefixtures("usual_spreads")


@pytest.fixture(scope="module")
def good() -> Trials:
    return made_up()


@pytest.fixture(scope="module")
def noisy() -> Trials:
    """A harness that errs by 1% between two runs of the same thing, which its processes do not show."""
    return made_up(of_run=0.01)


def compared(of: Trials) -> judging.Tally:
    return judging.tally(row for comparison in judging.a_a(of) for row in comparison.rows)


# A/A.


def test_each_run_is_compared_with_each_later_one(good: Trials) -> None:
    found = judging.a_a(good)
    assert [(one.before, one.after) for one in found][:6] == [
        *(("run 1", f"run {number}") for number in range(2, 7)),
        ("run 2", "run 3"),
    ]
    assert len(found) == 15
    for comparison in found:
        assert {row.variant for row in comparison.rows} == set(UNSLOWED)
        assert all(row.normalized for row in comparison.rows)


def test_a_good_harness_has_hardly_a_false_positive_and_decides(good: Trials) -> None:
    found = compared(good)
    assert found.count == 15 * len(UNSLOWED) * len(WORKLOADS)
    assert found.significant <= 0.02 * found.count
    assert found.verdicts[Verdict.UNDECIDED] == found.missing == 0
    assert found.coverage
    assert found.coverage > 0.9
    assert found.half_width == pytest.approx(0.0012, abs=0.0004)


def test_a_harness_that_does_not_know_its_error_is_found_out(noisy: Trials) -> None:
    found = compared(noisy)
    assert found.significant > 0.2 * found.count
    assert found.coverage
    assert found.coverage < 0.7
    assert judging.tally([]).coverage is None


def test_a_coarse_harness_is_left_undecided() -> None:
    found = compared(made_up(runs=3, of_process=0.03))
    rate = found.rate(Verdict.UNDECIDED)
    assert rate
    assert rate > 0.5


def test_rows_that_could_not_be_compared_are_counted_apart(good: Trials) -> None:
    first = good.runs[0]
    kept = tuple(record for record in first.records if record.variant != UNSLOWED[0])
    lacking = msgspec.structs.replace(good, runs=(msgspec.structs.replace(first, records=kept), *good.runs[1:3]))
    found = compared(lacking)
    assert (found.count, found.missing) == (3 * 4 * 3 - 6, 6)


# Injected slowdowns.


@pytest.mark.parametrize(("percent", "least"), [(1.0, 0.95), (2.0, 1.0)])
def test_an_injected_slowdown_is_detected(good: Trials, percent: float, least: float) -> None:
    found = judging.detected(good, percent)
    assert found.total.count == 30 * len(BASES) * len(WORKLOADS)
    assert found.rate
    assert found.rate >= least
    assert found.total.coverage
    assert found.total.coverage > 0.85
    assert found.truth == {base: pytest.approx(1 + percent / 100, abs=5e-4) for base in BASES}
    assert sum(tally.count for tally in found.by_base.values()) == found.total.count


def test_a_slowdown_that_was_not_injected_is_not_detected_and_the_truth_says_so() -> None:
    found = judging.detected(made_up(runs=4, works=0.0), 2.0)
    assert found.rate is not None
    assert found.rate < 0.05
    assert found.truth == {base: pytest.approx(1.0, abs=0.001) for base in BASES}


def test_the_truth_is_the_ratio_within_a_process(good: Trials) -> None:
    [slow, *_] = judging.injected(good, "torch_flash", 5.0, "flux1-1024px-t128")
    first = {record.variant: record for record in good.runs[0].records if record.workload.name == "flux1-1024px-t128"}
    samples = (first[f"torch_flash_plus_{form}"].timings[BURST].samples_ms[0] for form in ("5", "0"))
    slower, plain = (sorted(of)[5] + sorted(of)[6] for of in samples)
    assert slow == pytest.approx(slower / plain)
    assert len(judging.injected(good, "torch_flash", 5.0)) == 6 * 3 * PROCESSES
    twins = judging.injected(good, "torch_flash", 0.0, twin=True)
    assert sum(twins) / len(twins) == pytest.approx(1.0, abs=5e-4)


def test_one_slowed_variant_stands_in_an_unchanged_table_with_its_own_control(good: Trials) -> None:
    swapped = judging.as_measured(good, 1, {"torch_flash_plus_0": "torch_flash_plus_2"})
    plain = judging.as_measured(good, 1)
    assert {r.variant for r in swapped.records} == {r.variant for r in plain.records} == set(UNSLOWED)
    by_key = {(record.variant, record.workload.name): record for record in plain.records}
    differing = {r.variant for r in swapped.records if by_key[r.variant, r.workload.name] != r}
    assert differing == {"torch_flash_plus_0"}
    assert good.runs[1].control
    [control] = swapped.controls.values()
    assert control.samples_ms["torch_flash_plus_0"] == good.runs[1].control.samples_ms["torch_flash_plus_2"]
    assert set(control.samples_ms) == set(UNSLOWED)


# What else the trials say.


def test_ratios_of_the_trials_differ_by_the_largest_over_the_smallest(good: Trials) -> None:
    ratios = [record.timings[BURST].ratio for record in good.records if record.variant == "triton_flash_plus_0"]
    found = judging.ratio_differences(good)
    assert len(found) == len(UNSLOWED) * len(WORKLOADS)
    assert max(ratios[::3]) / min(ratios[::3]) - 1 in [pytest.approx(share) for share in found]
    assert judging.ratio_differences(made_up(runs=1)) == []


def test_on_a_cpu_the_cross_check_is_of_unslowed_variants_alone(good: Trials) -> None:
    on_cpu = msgspec.structs.replace(good, fingerprint={"device_kind": "cpu"})
    assert {record.variant for record, _ in judging.cupti_differences(on_cpu)} == set(UNSLOWED)
    assert {record.variant for record, _ in judging.cupti_differences(good)} == set(FORMS)
    assert [share for _, share in judging.cupti_differences(good)] == [pytest.approx(0.002)] * len(good.records)


def kept(of: Trials, run: int, keep: Callable[[Record], Record | None]) -> Trials:
    """Return trials with the records of one run that `keep` returns."""
    runs = list(of.runs)
    runs[run] = msgspec.structs.replace(runs[run], records=tuple(filter(None, map(keep, runs[run].records))))
    return msgspec.structs.replace(of, runs=tuple(runs))


def test_a_run_in_which_a_form_lost_a_process_has_no_true_ratios_of_it(good: Trials) -> None:
    def without_a_process(one: Record) -> Record:
        if one.variant != "torch_flash_plus_0":
            return one
        burst = msgspec.structs.replace(one.timings[BURST], samples_ms=one.timings[BURST].samples_ms[1:])
        return msgspec.structs.replace(one, timings={BURST: burst})

    whole, fewer = (judging.injected(of, "torch_flash", 1.0) for of in (good, kept(good, 0, without_a_process)))
    assert sorted(fewer) == sorted(judging.injected(kept(good, 0, lambda one: None), "torch_flash", 1.0))
    assert len(fewer) == len(whole) * 5 // 6


def test_an_unknown_truth_is_not_outside_of_an_interval() -> None:
    slowed_alone = kept(made_up(runs=2), 0, lambda one: None if one.variant in UNSLOWED else one)
    apart = kept(slowed_alone, 1, lambda one: one if one.variant in UNSLOWED else None)
    found = judging.detected(apart, 1.0)
    assert found.total.count > 0
    assert (found.truth, found.total.known, found.total.coverage) == ({}, 0, None)
