"""Flags and signs become sentences, each kind with its value and unit, and here alone."""

from __future__ import annotations

import pytest
from sample_records import LAUNCH_BOUND, PARTLY_REPLAYED, REASONS, REPLAYED, record, results

from fluxbench.analysis.failures import FlagRange
from fluxbench.analysis.ranking import Ranked
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report import legend, tables
from fluxbench.report.blocks import Fold
from fluxbench.report.flags import all_words, range_words, why_no_time, words

CAPPED = {SUSTAINED: False, BURST: None}


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (
            Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=2),
            "sustained: the speed did not settle in 2 of 3 processes",
        ),
        (Flag(kind=FlagKind.NOT_SETTLED, value=3), "the speed did not settle in all 3 processes"),
        (
            Flag(kind=FlagKind.DISCARDED, regime=BURST, value=0.125, detail="too\nhot"),
            "burst: 12.5% of the samples were out of the regime (too hot), and discarded",
        ),
        (
            Flag(kind=FlagKind.CUPTI_DIFFERS, regime=BURST, value=-0.0123),
            "burst: the CUPTI cross-check differs by -1.2%",
        ),
        (
            Flag(kind=FlagKind.LAUNCH_BOUND, regime=SUSTAINED, value=1),
            "sustained: launch-bound, the host was barely ahead of the device in 1 of 3 processes",
        ),
        (
            Flag(kind=FlagKind.OTHER_REFERENCE, value=1),
            "the ratio excludes 1 of 3 processes, in which another variant was the reference",
        ),
        (Flag(kind=FlagKind.SLEPT, value=3.25), "the machine slept for 3.2 s during the measurement"),
        (Flag(kind=FlagKind.FASTER_THAN_ROOFLINE, value=0.0123), "0.0123 ms is faster than the roofline"),
        (
            Flag(kind=FlagKind.SKIPS_WORK, value=0.5),
            "the kernel skips work: on repeated inputs it takes 50.0% of the time on new ones",
        ),
    ],
)
def test_a_flag_is_a_sentence(flag: Flag, said: str) -> None:
    assert words(flag, 3) == said


@pytest.mark.parametrize("kind", list(FlagKind))
def test_every_kind_has_words_without_a_value_too(kind: FlagKind) -> None:
    assert "None" not in words(Flag(kind=kind), 3)


def test_several_flags_of_a_kind_are_a_range() -> None:
    differs = FlagRange(FlagKind.CUPTI_DIFFERS, BURST, None, (-0.009, 0.012), {"a": 2})
    assert range_words(differs) == "burst: the CUPTI cross-check differs by -0.9% to +1.2%"
    for values, long in (((2.0, 2.0), "2.0 s"), (None, "an unknown time")):
        slept = FlagRange(FlagKind.SLEPT, None, None, values, {"a": 2})
        assert range_words(slept) == f"the machine slept for {long} during the measurement"


def test_all_flags_of_a_record_are_worded_with_its_processes() -> None:
    flagged = record(flags=[Flag(kind=FlagKind.NOT_SETTLED, value=5), Flag(kind=FlagKind.NO_CUPTI)])
    first, second = all_words(flagged)
    assert first == "the speed did not settle in all 5 processes"
    assert second.startswith("no CUPTI")


def test_signs_stand_behind_the_time_that_they_are_of() -> None:
    late = record("flex", flags=[LAUNCH_BOUND], converged={SUSTAINED: False, BURST: False})
    assert legend.of_time(late, SUSTAINED, ()) == " ch"
    assert legend.of_time(late, BURST, ()) == " c"
    assert legend.of_time(late, SUSTAINED, (SUSTAINED,)) == " h"
    assert legend.of_time(record(converged={SUSTAINED: True}), SUSTAINED, ()) == ""
    assert legend.of_place(Ranked(1, True, late), (BURST,)) == "=ch"
    assert legend.of_place(Ranked(1, False, record()), ()) == ""
    assert (legend.named(late), legend.named(record("flex"))) == ("flex h", "flex")
    assert legend.of_time(record(flags=[LAUNCH_BOUND], regimes=[BURST]), BURST, ()) == " h"


def test_a_sign_of_every_row_is_left_out() -> None:
    capped = [record(converged=CAPPED), record("flex", converged=CAPPED)]
    assert legend.everywhere(capped) == {SUSTAINED}
    assert legend.everywhere([*capped, record("a")]) == frozenset()
    assert legend.everywhere(capped[:1]) == frozenset()


def test_every_symbol_that_can_stand_somewhere_is_explained() -> None:
    late = record("flex", converged=CAPPED, flags=(LAUNCH_BOUND, REPLAYED))
    [legend_of_all] = legend.explained(legend.of_place(Ranked(1, True, late), ()))
    assert legend_of_all.title == "Legend: = tied, c not converged, h launch-bound, g timed as CUDA graphs"


@pytest.mark.parametrize("name", ["ranking", "timing"])
def test_a_legend_explains_the_symbols_of_its_tables_alone(name: str) -> None:
    def legends(*records: Record) -> list[str]:
        shown = tables.find(name).blocks(results(*records))
        return [block.title for block in shown if isinstance(block, Fold) and block.title.startswith("Legend")]

    apart = [record(), record("flex", sustained_ms=2.0)]
    assert legends(*apart) == []
    capped = record("triton_flash", sustained_ms=3.0, converged=CAPPED)
    assert legends(*apart, capped) == ["Legend: c not converged"]
    replayed = record("triton_flash", sustained_ms=3.0, flags=(REPLAYED,))
    assert legends(*apart, replayed) == ["Legend: g timed as CUDA graphs"]


def test_a_record_without_a_time_says_why() -> None:
    assert why_no_time(record(status=Status.CRASHED)) == f"CRASHED: {REASONS[Status.CRASHED]}"
    mixed = record(regimes=[BURST], flags=PARTLY_REPLAYED)
    assert why_no_time(mixed) == (
        "no time: a CUDA graph was replayed in 4 of 5 processes, in the others the host launched calls (a replay "
        "returns another logits than a call)"
    )
    assert list(all_words(mixed))[-1] == why_no_time(mixed)
