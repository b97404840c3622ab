"""What did not pass stands in one table, a row per reason, below its number."""

from __future__ import annotations

from sample_records import REASONS, record, results
from tabled import rows_of, table_of, words

from fluxbench import variants
from fluxbench.analysis.groups import groups
from fluxbench.operations import sets
from fluxbench.records.status import Status
from fluxbench.report import verdict
from fluxbench.report.blocks import Fold, Heading, Paragraph
from fluxbench.report.tables.not_passed import blocks

LENGTHS = sets.sets()["flux1-1024px"]


def test_variants_that_share_a_reason_are_one_row() -> None:
    failed = [record(name, one, status=Status.UNAVAILABLE) for name in ("flex", "xformers") for one in LENGTHS]
    late = record("torch_math", LENGTHS[5], status=Status.TIMEOUT)
    [fold] = blocks(results(*(record(workload=one) for one in LENGTHS), *failed, late))
    assert isinstance(fold, Fold)
    assert fold.title == f"13 of {3 * len(LENGTHS) + 1} rows did not pass. Which, and why"
    assert rows_of(table_of([fold])) == [
        ("flex, xformers", f"everywhere: {REASONS[Status.UNAVAILABLE]}"),
        ("torch_math", f"at 512 text tokens: {REASONS[Status.TIMEOUT]}"),
    ]
    headings = [row.words for row in table_of([fold]).rows if isinstance(row, Heading)]
    assert headings == ["UNAVAILABLE: 12 rows", "TIMEOUT: 1 row"]


def test_rows_that_cannot_run_here_are_counted_apart() -> None:
    cannot = [record(name, status=Status.UNSUPPORTED) for name in ("xformers", "te_fused")]
    [mixed] = blocks(results(record(), record("flex", status=Status.CRASHED), *cannot))
    [alone] = blocks(results(record(), *cannot))
    assert isinstance(mixed, Fold)
    assert isinstance(alone, Fold)
    assert mixed.title == "1 of 4 rows did not pass, 2 more are UNSUPPORTED here. Which, and why"
    assert alone.title == "2 of 3 rows are UNSUPPORTED here. Which, and why"


def test_rows_of_several_groups_say_of_which() -> None:
    found = blocks(results(record(workload="wan-720p"), record("flex", LENGTHS[0], status=Status.CRASHED)))
    assert [row[1] for row in rows_of(table_of(found))] == [f"flux1-1024px, everywhere: {REASONS[Status.CRASHED]}"]


def test_that_all_passed_is_said() -> None:
    assert words(blocks(results(record(), record("flex")))) == "All 2 rows passed."


def test_what_there_was_no_time_for_is_said_after_the_verdict() -> None:
    default = record("torch_native")
    up = "the build's time was up before it was measured"
    hung = record("triton_flash", status=Status.TIMEOUT, reason="silent for 150 s; the process was killed")
    late = [record(name, status=Status.TIMEOUT, reason=up) for name in ("torch_math", "flex")]
    [group] = groups([default, *late])
    told = [block.text() for block in verdict.blocks([default, *late, hung], "X") if isinstance(block, Paragraph)]
    flex, unfused = (variants.label(name) for name in ("flex", "torch_math"))
    where = f"at {group.name}"
    assert told[1] in (
        f"There was no time to measure 2 of 4 rows: {one} {where}; {other} {where}."
        for one, other in ((flex, unfused), (unfused, flex))
    )
    assert not any("no time" in block.text() for block in verdict.blocks([default, hung], "X"))
