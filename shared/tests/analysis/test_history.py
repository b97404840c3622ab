"""Records over time: what a revision is, what may be compared, and which earlier records are read."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pytest
from sample_records import CPU, H200, changed, record

from fluxbench.analysis import history
from fluxbench.analysis.history import History, Timeline
from fluxbench.analysis.revision import VERSIONS, moment
from fluxbench.device.model import Device
from fluxbench.records import files, fingerprint
from fluxbench.records.fingerprint import Incomparable
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status

LONGEST, SHORTER = "flux1-1024px-t512", "flux1-1024px-t448"
OLD = {"driver": "580.10", "torch": "2.9.0", "triton": "3.5.0", "cudnn": "91000"}
NEW_DRIVER = {**OLD, "driver": "590.20"}
NEW_TORCH = {**NEW_DRIVER, "torch": "2.10.0"}
BOTH = ("torch_flash", "flex")


def of(
    variant: str = "torch_flash",
    ms: float = 1.0,
    day: int = 1,
    versions: dict[str, str] = OLD,
    workload: str = LONGEST,
    device: Device = H200,
    **fields: Any,
) -> Record:
    marks = fingerprint.of_device(device)
    at = f"2026-05-{day:02d}T12:00:00+00:00"
    return record(variant, workload, ms, measured_at=at, versions=versions, fingerprint=marks, **fields)


def times(found: History) -> list[float]:
    """Return the times of torch_flash at the longest workload, by revision."""
    records = (r for each in found.revisions for r in each.records if r.variant == "torch_flash")
    return [each.timing.median_ms for each in records if each.timing and each.workload.name == LONGEST]


def timeline(*found: Record, device: Device = H200) -> Timeline:
    """Return the one timeline of records, all of them present."""
    [only] = history.of(found, device).timelines
    return only


# Revisions.


def test_a_revision_is_a_driver_and_its_libraries_in_order_of_time() -> None:
    earlier = [of(ms=2.0, day=2, versions=NEW_DRIVER), of(ms=1.0, day=1), of(ms=3.0, day=3, versions=NEW_TORCH)]
    found = history.of([of(ms=3.0, day=3, versions=NEW_TORCH)], H200, earlier)
    assert times(found) == [1.0, 2.0, 3.0]
    assert [dict(each.versions) for each in found.revisions] == [OLD, NEW_DRIVER, NEW_TORCH]
    assert [f"{each.measured_at:%d %H}" for each in found.revisions] == ["01 12", "02 12", "03 12"]
    assert found.notes == ()


@pytest.mark.parametrize(("library", "revisions"), [*((name, 2) for name in VERSIONS), ("python", 1)])
def test_each_of_the_versions_tells_revisions_apart_and_no_other(library: str, revisions: int) -> None:
    other = of("flex", day=2, versions={**OLD, library: "other"})
    assert len(history.of([of(), other], H200).revisions) == revisions


def test_a_new_version_of_a_variants_own_library_is_a_revision_too() -> None:
    upgraded, before = {**OLD, "flash-attn": "2.9.0"}, {**OLD, "flash-attn": "2.8.3", "einops": "0.8.2"}
    present = [of(ms=1.0, day=2), of("flash_attn_2", 0.9, 2, upgraded)]
    found = history.of(present, H200, [of("flash_attn_2", 0.8, 1, before), of(ms=1.1, day=1)])
    [line] = found.timelines
    old, new = line.records["flash_attn_2"]
    assert [one and one.timing and one.timing.median_ms for one in (old, new)] == [0.8, 0.9]
    assert (line.records["torch_flash"], line.head["flash-attn"]) == ((None, present[0]), ["2.8.3", "2.9.0"])
    assert line.label(0) == "driver 580.10, torch 2.9.0, flash-attn 2.8.3, 2026-05-01"
    unnamed = history.of(present, H200, [of("flash_attn_2", 0.8, 1)])  # a record of long ago does not say which
    assert len(unnamed.revisions) == 1


def test_what_an_upgrade_was_compared_with_on_its_card_stays_beside_it() -> None:
    def on(card: str, ms: float, day: int, versions: dict[str, str], method_version: int = METHOD_VERSION) -> Record:
        made = of(ms=ms, day=day, versions=versions, method_version=method_version)
        return changed(made, fingerprint={**made.fingerprint, "card": card})

    upgrade, present = on("a", 2.0, 2, NEW_TORCH), [on("b", 1.5, 9, OLD)]
    before = on("a", 1.0, 1, OLD)
    assert times(history.of(present, H200, [before, upgrade])) == [1.0, 2.0, 1.5]
    assert times(history.of(present, H200, [on("c", 1.0, 1, OLD), upgrade])) == [2.0, 1.5]
    assert times(history.of(present, H200, [on("a", 1.0, 1, OLD, METHOD_VERSION - 1), upgrade])) == [2.0, 1.5]
    assert times(history.of([on("a", 1.5, 9, OLD)], H200, [before, upgrade])) == [2.0, 1.5]  # they compare as they are
    rerun, rest = on("a", 1.5, 9, OLD), changed(on("b", 1.0, 8, OLD), variant="flex")
    others = [changed(rest, variant=name) for name in ("flash_attn_3", "flash_attn_4")]
    found = history.of([rerun, rest, *others], H200, [upgrade])  # of the page one cell alone was measured there
    assert times(found) == [2.0, 1.5]


def test_of_one_revision_the_newest_record_counts_and_a_present_one_before_all() -> None:
    earlier = [of(ms=day, day=day) for day in (2, 3, 1)]
    assert times(history.of([of(ms=9.0, day=9, versions=NEW_DRIVER)], H200, earlier)) == [3.0, 9.0]
    assert times(history.of([of(ms=1.5, day=1)], H200, earlier)) == [1.5]  # a clock that was set back


def test_a_revision_is_dated_by_its_newest_record_and_each_length_has_its_own_newest() -> None:
    found = history.of([of(day=1), of("flex", day=3)], H200, [of(day=2, versions=NEW_DRIVER)])
    assert [each.measured_at.day for each in found.revisions if each.measured_at] == [2, 3]
    found = history.of([of(day=2)], H200, [of(day=1), of(workload=SHORTER, day=1)])
    [revision] = found.revisions
    assert {(r.workload.name, r.measured_at[8:10]) for r in revision.records} == {(LONGEST, "02"), (SHORTER, "01")}


def test_a_record_without_a_time_comes_first() -> None:
    line = timeline(of("flex"), changed(of(versions=NEW_DRIVER), measured_at="yesterday"))
    assert line.head["date"] == ["no date", "2026-05-01"]


def test_another_model_of_device_is_excluded_with_a_note() -> None:
    other = dataclasses.replace(H200, name="Other", driver="570.1")
    elsewhere = [of(device=other), of("flex", device=other), of(day=3, device=CPU)]
    found = history.of([of(day=2), of("flex", day=2)], H200, elsewhere)
    assert times(found) == [1.0]
    counted = [note.removeprefix("Excluded: ").partition(" measured ")[0] for note in found.notes]
    assert counted == ["1 record", "2 records"]
    host = dataclasses.replace(H200, driver="570.1", cpu="another CPU", cores=64, power_limit_w=500.0)
    found = history.of([of(day=2, versions=NEW_DRIVER)], H200, [of(device=host)])
    assert (len(found.revisions), found.notes) == (2, ())


def test_what_the_page_does_not_name_and_what_never_ran_is_left_out() -> None:
    refused = of("flex", status=Status.UNSUPPORTED, versions={})
    [line] = history.of([of(), refused], H200, [of("of_long_ago", versions=NEW_DRIVER)]).timelines
    assert (len(line.revisions), dict(line.records)) == (1, {"torch_flash": (of(),), "flex": (None,)})


# Timelines.


def test_the_longest_workload_of_each_group_is_shown() -> None:
    lines = history.of([of(), of(workload=SHORTER), of(workload="flux2-512px-t512")], H200).timelines
    assert [line.group.longest.name for line in lines] == [LONGEST, "flux2-512px-t512"]
    line = timeline(of(workload=SHORTER), of(day=2, versions=NEW_DRIVER))
    assert [dict(each.versions) for each in line.revisions] == [NEW_DRIVER]


@pytest.mark.parametrize(
    "fields",
    [{"status": Status.INCORRECT}, {"status": Status.ERROR, "flags": (Flag(kind=FlagKind.SKIPS_WORK, value=0.1),)}],
)
def test_a_variant_that_is_distrusted_at_any_length_has_no_time(fields: dict[str, Any]) -> None:
    line = timeline(of("flex"), of(), of(workload=SHORTER, **fields))
    assert line.points.keys() == {"flex"}
    [shown] = line.records["torch_flash"]
    assert shown
    assert shown.status is fields["status"]


def test_points_are_the_records_that_passed_with_their_revisions() -> None:
    crashed = of(day=3, versions=NEW_TORCH, status=Status.CRASHED)
    line = timeline(of(ms=0.8), of(ms=0.6, day=2, versions=NEW_DRIVER), crashed)
    assert [(at, r.timing.median_ms) for at, r in line.points["torch_flash"] if r.timing] == [(0, 0.8), (1, 0.6)]


def test_times_of_another_method_are_broken_with_the_reason() -> None:
    line = timeline(
        *(of(name, method_version=5) for name in BOTH),
        *(of(name, day=2, versions=NEW_DRIVER) for name in BOTH),
        *(of(name, day=3, versions=NEW_TORCH) for name in BOTH),
    )
    [gap] = line.breaks
    assert (gap.before, gap.after, gap.reason.why, gap.variants) == (0, 1, "method", BOTH)
    assert line.break_sentences() == [f"Times must not be compared between revisions 1 and 2, since {gap.reason}."]
    assert "method version 5 (" in str(gap.reason)
    assert timeline(of(), of(day=2, versions=NEW_DRIVER)).breaks == []


def test_breaks_are_in_the_order_of_the_revisions() -> None:
    both_then = [of(name, day=2, versions=NEW_DRIVER) for name in BOTH]
    last = of(day=3, versions=NEW_TORCH, method_version=5)
    line = timeline(of(), of("flex", method_version=5), *both_then, last)
    breaks = [(each.before, each.after, each.variants) for each in line.breaks]
    assert breaks == [(0, 1, ("flex",)), (1, 2, ("torch_flash",))]
    assert "between revisions 1 and 2 (flex), since" in line.break_sentences()[0]


def test_a_variant_that_was_left_out_once_is_compared_across() -> None:
    line = timeline(of("flex"), of(day=2, versions=NEW_DRIVER), of("flex", day=3, versions=NEW_TORCH, method_version=5))
    assert [(each.before, each.after) for each in line.breaks] == [(0, 2)]


def test_another_regime_is_not_compared() -> None:
    burst = of(day=2, versions=NEW_DRIVER, regimes=(BURST,))
    assert history.not_comparable(of(), burst) == Incomparable("regime", SUSTAINED, BURST)
    assert history.not_comparable(of(), of(day=2, regimes=(SUSTAINED,))) is None
    assert timeline(of(), burst).breaks[0].reason.why == "regime"


def test_calls_of_cuda_graphs_are_not_compared_with_launched_ones() -> None:
    replayed = Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=1.2)
    line = timeline(of(), of(day=2, versions=NEW_DRIVER, flags=(replayed,)))
    [sentence] = line.break_sentences()
    assert sentence.endswith("since calls were timed as the host launches them, and now as CUDA graphs.")
    in_burst = Flag(kind=FlagKind.REPLAYED, regime=BURST, value=1.2)
    assert timeline(of(), of(day=2, versions=NEW_DRIVER, flags=(in_burst,))).breaks == []


def test_another_card_and_power_limit_are_said() -> None:
    limited = dataclasses.replace(H200, power_limit_w=500.0, card="00000002")
    card = dataclasses.replace(H200, card="00000001")
    line = timeline(of(device=card), of("flex"), of(day=2, versions=NEW_DRIVER, device=limited), device=limited)
    [sentence] = line.machine_sentences()
    assert sentence.startswith("Between revisions 1 and 2 more than versions changed: ")
    assert "power limit in W 700.0 -> 500.0" in sentence
    assert "card of this model 00000001 -> 00000002" in sentence
    other_way = timeline(of(device=card, method_version=5), of(day=2, versions=NEW_DRIVER, device=limited))
    assert other_way.machine_sentences() == timeline(of(), of(day=2, versions=NEW_DRIVER)).machine_sentences() == []


def test_libraries_are_named_where_they_differ() -> None:
    line = timeline(of(), of("flex", day=2, versions={**OLD, "cudnn": "9\n" + "2" * 40}))
    assert list(line.head) == ["revision", "date", "driver", "torch", "cudnn"]
    assert (line.head["date"], line.head["cudnn"]) == (["2026-05-01", "2026-05-02"], ["91000", "9 " + "2" * 21 + "…"])
    assert line.label(0) == "driver 580.10, torch 2.9.0, cudnn 91000, 2026-05-01"


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-05-01T12:00:00+02:00", "2026-05-01T10:00:00+00:00"),
        ("2026-05-01T12:00:00Z", "2026-05-01T12:00:00+00:00"),
        ("2026-05-01T12:00:00", "2026-05-01T12:00:00+00:00"),
        ("yesterday", None),
        ("0001-01-01T00:00:00+23:00", None),
        (None, None),
    ],
)
def test_a_moment_is_a_time_in_utc(text: object, utc: str | None) -> None:
    found = moment(text)
    assert (found and found.isoformat()) == utc


# Earlier records.


def kept(folder: Path, *found: Record, name: str = "sdpa.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / name, found)
    return folder


def test_published_and_local_records_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = tmp_path / "reports" / "h200" / "flux"
    kept(published / "records", of(ms=3.0))
    kept(published / "history" / "b", of(ms=2.0))
    packed = kept(published / "history" / "a", of(ms=1.0)) / "sdpa.jsonl"
    (packed.parent / "flex.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    kept(tmp_path / "reports" / "h200" / "wan" / "records", of(ms=9.0))
    kept(tmp_path / "reports" / "cpu" / "flux" / "records", of(ms=9.0))
    local = [kept(tmp_path / name, of(ms=ms)) for name, ms in (("one run", 4.0), ("another", 5.0))]
    monkeypatch.setenv(history.VARIABLE, ":".join(map(str, [*local, tmp_path / "none"])))
    records, notes = history.earlier(tmp_path, H200, "flux")
    assert [r.timing.median_ms for r in records if r.timing] == [3.0, 1.0, 1.0, 2.0, 4.0, 5.0]
    assert notes == []
    monkeypatch.delenv(history.VARIABLE)
    assert history.earlier(tmp_path, CPU, "wan") == ([], [])


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff", b'{"schema": 9}\n', b'{"schema": 1}\n'])
def test_a_damaged_file_is_left_out_with_a_note(tmp_path: Path, content: bytes) -> None:
    published = tmp_path / "reports" / "h200" / "flux"
    kept(published / "records", of())
    (kept(published / "history" / "a") / "sdpa.jsonl").write_bytes(content)
    records, notes = history.earlier(tmp_path, H200, "flux")
    assert records == [of()]
    assert [note.split(",")[0] for note in notes] == ["a/sdpa.jsonl cannot be read"] * bool(content)
    assert all(len(note) < 320 and note.isprintable() for note in notes)
