"""What did not pass and what was flagged is grouped, each thing once for all that share it."""

from __future__ import annotations

import pytest
from sample_records import REASONS, record

from fluxbench.analysis import failures as of
from fluxbench.analysis.groups import Group, groups
from fluxbench.operations import sets
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status

LENGTHS = sets.sets()["flux1-1024px"]
UNSETTLED = Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=1)


def group(*records: Record) -> Group:
    [found] = groups(records)
    return found


def test_variants_that_share_status_reason_and_workloads_are_one_entry() -> None:
    crashed = [record(name, w, status=Status.CRASHED) for name in ("a", "b") for w in LENGTHS[::-1]]
    late = [record(name, LENGTHS[0], status=Status.TIMEOUT, reason="late") for name in ("c", "d")]
    other = record("e", LENGTHS[0], status=Status.TIMEOUT, reason="later")
    elsewhere = record("f", LENGTHS[1], status=Status.TIMEOUT, reason="late")
    found = of.failures(group(record(), *crashed, *late, other, elsewhere))
    assert found == [
        of.Failure(Status.CRASHED, REASONS[Status.CRASHED], ("a", "b"), LENGTHS),
        of.Failure(Status.TIMEOUT, "late", ("c", "d"), LENGTHS[:1]),
        of.Failure(Status.TIMEOUT, "later", ("e",), LENGTHS[:1]),
        of.Failure(Status.TIMEOUT, "late", ("f",), LENGTHS[1:2]),
    ]


def test_an_exception_without_a_message_is_said_so_on_one_line() -> None:
    [found] = of.failures(group(record("a", status=Status.ERROR, reason="DynamoError:\n  NotImplementedError:")))
    assert found.reason == "DynamoError: NotImplementedError (no message)"


def test_flags_are_one_entry_for_all_that_share_them() -> None:
    records = [record(name, w, flags=[UNSETTLED]) for name in ("flex", "a") for w in LENGTHS[-2:]]
    twice = record("b", flags=[Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=2)])
    found = of.flags(group(*records, twice, record()))
    assert [(entry.flag.value, entry.processes, entry.variants, entry.workloads) for entry in found] == [
        (1, 5, ("flex", "a"), LENGTHS[-2:]),
        (2, 5, ("b",), LENGTHS[-1:]),
    ]


def test_flags_of_what_did_not_pass_are_left_out() -> None:
    impossible = Flag(kind=FlagKind.FASTER_THAN_ROOFLINE, value=0.1)
    differs = Flag(kind=FlagKind.CUPTI_DIFFERS, value=0.1)
    failed = group(record(), record("a", status=Status.ERROR, flags=[impossible, differs]))
    assert (of.flags(failed), of.flag_ranges(failed)) == ([], [])
    assert [each.variant for each in of.passed(failed)] == ["torch_flash"]


@pytest.mark.parametrize(
    "kind", [FlagKind.CUPTI_DIFFERS, FlagKind.DISCARDED, FlagKind.KEPT_OUT_OF_REGIME, FlagKind.SLEPT]
)
def test_values_that_differ_from_record_to_record_are_a_range(kind: FlagKind) -> None:
    records = [
        record("a", workload, flags=[Flag(kind=kind, regime=BURST, value=value)])
        for workload, value in zip(LENGTHS, (0.012, -0.009), strict=False)
    ]
    other = record("b", LENGTHS[0], flags=[Flag(kind=kind, regime=BURST, value=0.01)])
    found = group(*records, other)
    assert of.flags(found) == []
    assert of.flag_ranges(found) == [of.FlagRange(kind, BURST, None, (-0.009, 0.012), {"a": 2, "b": 1})]


def test_ranges_are_apart_by_regime_and_detail_and_know_unknown_values() -> None:
    made = ((BURST, "hot", None), (SUSTAINED, "hot", 0.5), (BURST, "slow", 0.25))
    flags = [Flag(kind=FlagKind.DISCARDED, regime=regime, detail=why, value=value) for regime, why, value in made]
    found = of.flag_ranges(group(record(flags=flags)))
    assert [(each.regime, each.detail, each.values) for each in found] == [
        (BURST, "hot", None),
        (SUSTAINED, "hot", (0.5, 0.5)),
        (BURST, "slow", (0.25, 0.25)),
    ]


def test_what_did_not_converge_is_one_entry_by_regime_and_workloads() -> None:
    records = [record(name, w, converged={SUSTAINED: False}) for name in ("a", "b") for w in LENGTHS]
    one, both = {BURST: False, SUSTAINED: True}, {BURST: False, SUSTAINED: False}
    found = of.not_converged(group(*records, record("c", converged=one), record("d", converged=both)))
    assert found == [
        of.NotConverged(SUSTAINED, ("a", "b"), LENGTHS),
        of.NotConverged(BURST, ("c", "d"), LENGTHS[-1:]),
        of.NotConverged(SUSTAINED, ("d",), LENGTHS[-1:]),
    ]
