"""How far fresh runs of a notebook differ: which results are taken, and what is said where there are too few."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from fakes import GPU
from sample_records import launched_late, make_record, rested

from fluxbench.analysis.certificate import reruns as certificate_reruns
from fluxbench.device import detection as hardware
from fluxbench.records import fingerprint
from fluxbench.records import schema as records
from fluxbench.records.schema import Record
from fluxbench.report import certificate

CELLS = ("sdpa", "flex")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose notebook has two measuring cells, of which nothing was run."""
    (tmp_path / "notebooks").mkdir()
    text = "".join(f"```python id={cell} outputs={cell}.jsonl\n```\n" for cell in CELLS)
    (tmp_path / "notebooks" / "flux.md").write_text(text, encoding="utf-8")
    return tmp_path


def measured(cell: str, minute: int, burst_ms: float, median_ms: float = 0.5, driver: str = "580.10") -> list[Record]:
    other = rested(make_record("torch_cudnn", median_ms=median_ms), burst_ms)
    marks = {**fingerprint.of_device(GPU), "driver": driver}
    return [
        dataclasses.replace(record, cell=cell, fingerprint=marks, measured_at=f"2026-01-31T12:{minute:02}:00+00:00")
        for record in (make_record("torch_flash"), other)
    ]


def keep(
    root: Path, cell: str, number: int, found: list[Record], failure: str | None = None, began: str | None = None
) -> None:
    folder = root / "notebooks" / ".uvnote" / "cache" / f"flux.{cell}.{number:05d}"
    folder.mkdir(parents=True)
    records.write(folder / f"{cell}.jsonl", found)
    (folder / "result.json").write_text(json.dumps({"failure": failure, "ran_at": began, "duration": 90.0}))


def three_runs(root: Path) -> None:
    for number, burst_ms in enumerate((0.400, 0.401, 0.402), start=1):
        for cell in CELLS:
            keep(root, cell, number, measured(cell, number, burst_ms))


def test_the_last_three_runs_of_each_cell_are_taken(root: Path) -> None:
    three_runs(root)
    keep(root, "sdpa", 4, measured("sdpa", 4, 0.403))
    found = certificate_reruns.at_hand(root, GPU)
    assert [run.measured_at[14:16] for run in found["sdpa"]] == ["04", "03", "02"]
    assert [run.measured_at[14:16] for run in found["flex"]] == ["03", "02", "01"]


def test_sustained_times_of_launching_do_not_count_as_ones_that_differ(root: Path) -> None:
    for number, median_ms in enumerate((0.5, 0.6), start=1):
        reference, other = measured("sdpa", number, 0.4, median_ms)
        keep(root, "sdpa", number, [reference, launched_late(other)])
    found = certificate_reruns.differences(certificate_reruns.at_hand(root, GPU))
    assert [each.regime for each in found] == ["burst"]


def test_the_ratio_differs_by_the_largest_over_the_smallest(root: Path) -> None:
    three_runs(root)
    found = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert found["runs"] == 3
    assert found["burst_faster"]["max"] == pytest.approx(0.402 / 0.400 - 1)
    assert found["sustained_faster"]["max"] == 0
    assert found["burst_slower"] is None
    assert found["reason"] is None
    assert found["compared"]["pairs"] == 3
    assert found["compared"]["rows"] == 3 * 2 * len(CELLS)
    assert len(found["clocks"]) == 3 * 2 * len(CELLS)
    assert "0.50%" in certificate.reruns_text(found)


def test_a_run_that_failed_of_another_driver_or_device_or_of_a_cell_that_is_gone_is_left_out(root: Path) -> None:
    three_runs(root)
    keep(root, "sdpa", 4, measured("sdpa", 4, 0.7), failure="it ended with exit code 1")
    keep(root, "sdpa", 5, [dataclasses.replace(r, fingerprint={"device": "other"}) for r in measured("sdpa", 5, 0.7)])
    keep(root, "gone", 1, measured("gone", 6, 0.7))
    keep(root, "flex", 4, measured("flex", 7, 0.7, driver="590.1"))
    found = certificate_reruns.at_hand(root, GPU)
    assert [run.measured_at[14:16] for run in found["sdpa"]] == ["03", "02", "01"]
    assert [run.measured_at[14:16] for run in found["flex"]] == ["07"]
    assert set(found) == set(CELLS)


def test_the_published_run_counts_where_it_is_another_one(root: Path) -> None:
    published = root / "reports" / hardware.target_name(GPU) / "flux" / "records"
    published.mkdir(parents=True)
    for cell in CELLS:
        keep(root, cell, 1, measured(cell, 2, 0.4))
        records.write(published / f"{cell}.jsonl", measured(cell, 1 if cell == "sdpa" else 2, 0.4))
    found = certificate_reruns.at_hand(root, GPU)
    assert {cell: len(runs) for cell, runs in found.items()} == {"sdpa": 2, "flex": 1}


def test_without_a_run_or_with_one_it_is_said_how_to_get_more(root: Path) -> None:
    none = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert none["burst_faster"] is None
    assert none["reason"].startswith(
        "there is no result of notebooks/flux.md here; run `make publish`, then `make rerun"
    )
    for cell in CELLS:
        keep(root, cell, 1, measured(cell, 1, 0.4))
    one = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert one["burst_faster"] is None
    assert one["reason"].startswith("there is one run alone of flex, sdpa with the fingerprint of the newest; run")
    assert "there is one run alone" in " ".join(certificate.reruns_text(one).split())


def test_a_cell_with_one_run_is_left_out_and_named_where_others_have_several(root: Path) -> None:
    three_runs(root)
    (root / "notebooks" / "flux.md").write_text("".join(f"```python id={cell} x\n```\n" for cell in (*CELLS, "te")))
    keep(root, "te", 1, measured("te", 1, 0.4))
    found = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert (found["runs"], found["once"], set(found["cells"])) == (3, ["te"], set(CELLS))
    assert "Left out, with one run alone: te." in " ".join(certificate.reruns_text(found).split())


def test_runs_on_another_card_are_left_out(root: Path) -> None:
    three_runs(root)
    other = [
        dataclasses.replace(record, fingerprint={**record.fingerprint, "card": "b2"})
        for record in measured("sdpa", 4, 0.403)
    ]
    keep(root, "sdpa", 4, other)
    assert [run.measured_at[14:16] for run in certificate_reruns.at_hand(root, GPU)["sdpa"]] == ["04"]


def test_slow_variants_stand_apart(root: Path) -> None:
    for number in (1, 2):
        for cell in CELLS:
            keep(root, cell, number, measured(cell, number, 2.5 + number / 100, median_ms=3.0))
    found = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert found["burst_faster"] is None
    assert found["burst_slower"]["count"] == len(CELLS)
    assert found["reason"] == "no variant takes less than 2 ms on this device"


def test_a_damaged_result_is_left_out(root: Path) -> None:
    three_runs(root)
    cache = root / "notebooks" / ".uvnote" / "cache"
    (cache / "flux.sdpa.00003" / "sdpa.jsonl").write_text("no record\n", encoding="utf-8")
    (cache / "flux.flex.00003" / "result.json").write_text("[]", encoding="utf-8")
    found = certificate_reruns.at_hand(root, GPU)
    assert {cell: len(runs) for cell, runs in found.items()} == {"sdpa": 2, "flex": 2}


def test_what_lies_in_the_store_is_told_without_reading_records(root: Path) -> None:
    assert certificate_reruns.latest(root) == ""
    three_runs(root)
    assert certificate_reruns.latest(root) == "flux.flex.00003, flux.sdpa.00003"


@pytest.mark.parametrize(("second", "at_once"), [("12:01:00", True), ("12:02:00", False)])
def test_runs_that_overlap_in_time_are_said_to_be_of_several_cards(root: Path, second: str, at_once: bool) -> None:
    for number, begin in enumerate(("12:00:00", second), start=1):
        for cell in CELLS:
            keep(root, cell, number, measured(cell, 9, 0.4 + number / 1000), began=f"2026-01-31T{begin}+00:00")
    found = certificate_reruns.summary(certificate_reruns.at_hand(root, GPU))
    assert (found["runs"], found["at_once"]) == (2, at_once)  # both ended in the same second
    assert ("card of its own" in certificate.reruns_text(found)) == at_once
