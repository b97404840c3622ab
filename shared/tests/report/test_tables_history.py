"""The history table: a column for each revision, and what must be known to read it."""

from __future__ import annotations

from typing import Any

from sample_records import H200, LAUNCH_BOUND, record, results
from tabled import heads, rows_of, table_of, words

from fluxbench.records import fingerprint
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.tables.history import blocks

OLD = {"driver": "580.10", "torch": "2.9.0"}
NEW = {"driver": "590.20", "torch": "2.10.0"}


def of(variant: str, ms: float, day: int = 1, versions: dict[str, str] = OLD, card: str = "", **fields: Any) -> Record:
    marks = {**fingerprint.of_device(H200), "card": card}
    at = f"2026-05-0{day}T12:00:00+00:00"
    return record(variant, sustained_ms=ms, measured_at=at, versions=versions, fingerprint=marks, **fields)


NOW = [of("torch_flash", 0.4, 2, NEW), of("flex", 0.3, 2, NEW, status=Status.CRASHED)]
BEFORE = (of("torch_flash", 0.8, method_version=5), of("flex", 0.72), of("flex", 9.9, day=1, versions=NEW))


def test_a_first_measurement_is_said_with_how_to_add_to_it() -> None:
    shown = blocks(results(of("torch_flash", 0.4)))
    assert shown[0].text().startswith("One measurement so far: driver 580.10, torch 2.9.0, 2026-05-01. ")
    assert rows_of(table_of(shown)) == [("torch_flash", "0.400 ±0.002")]


def test_each_revision_is_a_column_with_what_may_not_be_compared_above() -> None:
    shown = blocks(results(*NOW, earlier=BEFORE))
    [warning, _] = shown
    assert heads(table_of(shown))[1:] == ["1 2026-05-01 580.10 2.9.0", "2 2026-05-02 590.20 2.10.0"]
    first, second = rows_of(table_of(shown))
    assert (first, second[1:]) == (("torch_flash", "0.800 ±0.004", "0.400 ±0.002"), ("0.720 ±0.004", "CRASHED"))
    assert warning.text().startswith("Times must not be compared between revisions 1 and 2, since they")


def test_times_of_one_card_have_their_change_and_others_have_none() -> None:
    now = [of(name, 0.4, 2, NEW, card="a") for name in ("torch_flash", "flex", "triton_flash", "torch_cudnn")]
    before = (
        *(of(name, 0.5, card="a") for name in ("torch_flash", "torch_math")),
        of("flex", 0.5, card="b"),
        of("triton_flash", 0.5, card="a", method_version=5),
    )
    shown = table_of(blocks(results(*now, of("torch_math", 0.5, 2, NEW, card="a"), earlier=before)))
    assert heads(shown)[3] == "change 1 to 2"
    assert [row[3] for row in rows_of(shown)] == ["-20.0%", "", "", "", "+0.0%"]


def test_a_variant_that_was_not_measured_then_has_a_dash() -> None:
    shown = blocks(results(*NOW, earlier=BEFORE[:1]))
    assert rows_of(table_of(shown)) == [("torch_flash", "0.800 ±0.004", "0.400 ±0.002")]
    assert "Without a time in any: flex." in words(shown)
    partly = blocks(results(NOW[0], of("flex", 0.3, 2, NEW), earlier=BEFORE[:1]))
    assert rows_of(table_of(partly))[1] == ("flex", "-", "0.300 ±0.001")


def test_a_launch_bound_time_has_a_sign() -> None:
    shown = blocks(results(of("torch_flash", 0.4, flags=[LAUNCH_BOUND]), of("flex", 0.3)))
    assert rows_of(table_of(shown)) == [("torch_flash", "0.400 ±0.002 h"), ("flex", "0.300 ±0.001")]
    assert "Legend: h launch-bound" in words(shown)


def test_what_never_passed_and_what_is_excluded_is_said() -> None:
    nothing = blocks(results(of("torch_flash", 1.0, status=Status.CRASHED)))
    assert words(nothing) == "flux1-1024px at 512 text tokens: nothing passed so far."
    other = record(versions=NEW, fingerprint={**of("torch_flash", 1.0).fingerprint, "device": "Other"})
    shown = blocks(results(of("torch_flash", 0.4), earlier=(other,)))
    assert shown[-1].text() == "Excluded: 1 record measured on another device (Other -> NVIDIA H200)."
    assert words(blocks(results())) == "There are no records."
