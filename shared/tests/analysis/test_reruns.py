"""How far fresh runs of a notebook differ: which runs are taken, the numbers, and why there are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from published import REPORTS
from sample_records import H200, LAUNCH_BOUND, changed, record

from fluxbench.analysis.certificate import reruns
from fluxbench.analysis.certificate.rerun_summary import of_notebook
from fluxbench.analysis.certificate.reruns import Reruns
from fluxbench.analysis.certificate.stored_runs import stored_runs
from fluxbench.records import files, fingerprint
from fluxbench.records.files import ControlTimes
from fluxbench.records.schema import Record, RecordError

pytestmark = pytest.mark.usefixtures("usual_spreads")

CELLS = ("sdpa", "flex")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose notebook has two measuring cells, of which nothing was run."""
    (tmp_path / "notebooks").mkdir()
    text = "".join(f"```python id={cell} outputs={cell}.jsonl\n```\n" for cell in (*CELLS, "results"))
    (tmp_path / "notebooks" / "flux.md").write_text(text, encoding="utf-8")
    return tmp_path


def measured(cell: str, minute: int, burst_ms: float, sustained_ms: float = 0.5, **fields: Any) -> list[Record]:
    """Return the reference's record and another's, with the burst time `burst_ms` over the reference's 0.9."""
    own = {"cell": cell, "measured_at": f"2026-01-31T12:{minute:02}:00+00:00", **fields}
    own.setdefault("fingerprint", fingerprint.of_device(H200))
    return [record(**own), record("torch_cudnn", sustained_ms=sustained_ms, burst_ms=burst_ms, **own)]


def keep(root: Path, cell: str, number: int, found: list[Record], **result: Any) -> Path:
    """Put a run into the store."""
    folder = root / "notebooks" / ".uvnote" / "cache" / f"flux.{cell}.{number:05d}"
    folder.mkdir(parents=True)
    files.write(folder / f"{cell}.jsonl", found)
    (folder / "result.json").write_text(json.dumps({"failure": None, "ran_at": None, "duration": 90.0, **result}))
    return folder


def three_runs(root: Path, **fields: Any) -> None:
    for number, burst_ms in enumerate((0.400, 0.401, 0.402), start=1):
        for cell in CELLS:
            keep(root, cell, number, measured(cell, number, burst_ms, **fields))


def minutes(root: Path) -> dict[str, list[str]]:
    """Return when the runs that are taken were measured, by cell."""
    return {cell: [r.measured_at[14:16] for r in of_cell] for cell, of_cell in stored_runs(root, H200, "flux").items()}


def of(root: Path) -> Reruns:
    return of_notebook(root, H200, "flux")


# Which runs.


def test_the_last_three_runs_of_each_cell_are_taken(root: Path) -> None:
    three_runs(root)
    keep(root, "sdpa", 10, measured("sdpa", 4, 0.403))
    assert minutes(root) == {"sdpa": ["04", "03", "02"], "flex": ["03", "02", "01"]}


def test_a_run_that_failed_of_another_driver_device_or_card_or_of_a_gone_cell_is_left_out(root: Path) -> None:
    three_runs(root)
    here = fingerprint.of_device(H200)
    keep(root, "sdpa", 4, measured("sdpa", 4, 0.7), failure="it ended with exit code 1")
    keep(root, "sdpa", 5, measured("sdpa", 5, 0.7, fingerprint={"device": "other"}))
    keep(root, "gone", 1, measured("gone", 6, 0.7))
    keep(root, "results", 1, measured("sdpa", 9, 0.7))
    assert minutes(root) == {cell: ["03", "02", "01"] for cell in CELLS}
    keep(root, "flex", 4, measured("flex", 7, 0.7, fingerprint={**here, "driver": "590.1"}))
    keep(root, "sdpa", 6, measured("sdpa", 8, 0.7, fingerprint={**here, "card": "b2"}))
    assert minutes(root) == {"sdpa": ["08"], "flex": ["07"]}


def test_damaged_runs_are_left_out(root: Path) -> None:
    three_runs(root)
    cache = root / "notebooks" / ".uvnote" / "cache"
    (cache / "flux.sdpa.00003" / "sdpa.jsonl").write_text("no record\n", encoding="utf-8")
    (cache / "flux.flex.00003" / "result.json").write_text("[]", encoding="utf-8")
    (cache / "flux.flex.00002" / "flex.control.json").write_text("{", encoding="utf-8")
    (cache / "flux.flex.part").mkdir()
    assert minutes(root) == {"sdpa": ["02", "01"], "flex": ["01"]}


def test_the_published_run_counts_where_it_is_another_one(root: Path) -> None:
    published = root / "reports" / "h200" / "flux" / "records"
    published.mkdir(parents=True)
    for cell in CELLS:
        keep(root, cell, 1, measured(cell, 2, 0.4))
        files.write(published / f"{cell}.jsonl", measured(cell, 1 if cell == "sdpa" else 2, 0.4))
    assert minutes(root) == {"sdpa": ["02", "01"], "flex": ["02"]}
    packed = gzip.compress((published / "sdpa.jsonl").read_bytes())
    (published / "sdpa.jsonl").unlink()
    (published / "sdpa.jsonl.gz").write_bytes(packed)
    assert minutes(root)["sdpa"] == ["02", "01"]


# The numbers.


def test_a_ratio_differs_by_the_largest_over_the_smallest(root: Path) -> None:
    three_runs(root)
    found = of(root)
    assert (found.notebook, found.runs, found.once, found.reason, found.late) == ("flux", 3, (), None, 0)
    assert found.cells == {cell: tuple(f"2026-01-31T12:0{n}:00+00:00" for n in (3, 2, 1)) for cell in sorted(CELLS)}
    spread = found.burst_faster
    assert spread
    assert spread.max == spread.median == pytest.approx(0.402 / 0.400 - 1)
    assert (spread.variant, spread.workload, spread.count) == ("torch_cudnn", "flux1-1024px-t512", 2)
    assert spread.ratios == pytest.approx((0.402 / 0.9, 0.401 / 0.9, 0.400 / 0.9))
    assert found.sustained_faster
    assert (found.sustained_faster.max, found.burst_slower, found.sustained_slower) == (0, None, None)
    assert len(found.clocks) == 3 * 2 * len(CELLS)
    assert found.clocks[0].difference == 0.0
    by_diff = found.compared
    assert (by_diff.pairs, by_diff.rows) == (3, 3 * 2 * len(CELLS))
    # Without any spread of processes, what differs between cards alone makes 0.5% insignificant.
    assert (by_diff.called, by_diff.undecided, by_diff.called_sustained, by_diff.device_moved) == (0, 6, 0, 0)


def test_changes_between_runs_are_counted(root: Path) -> None:
    for number, (ms, control_ms) in enumerate(((0.4, 0.3), (0.8, 0.4)), start=1):
        folder = keep(root, "sdpa", number, measured("sdpa", number, ms, ms))
        control = ControlTimes(kernel="a", samples_ms={"torch_cudnn": ((control_ms,) * 2,) * 5})
        (folder / "sdpa.control.json").write_text(control.to_json(), encoding="utf-8")
    found = of(root).compared
    assert (found.pairs, found.rows, found.called, found.called_sustained, found.device_moved) == (1, 2, 1, 1, 1)


def test_launch_bound_times_have_no_sustained_ratio(root: Path) -> None:
    for number, sustained_ms in enumerate((0.5, 0.6), start=1):
        reference, other = measured("sdpa", number, 0.4, sustained_ms)
        keep(root, "sdpa", number, [reference, changed(other, flags=(LAUNCH_BOUND,) * (number == 1))])
    found = of(root)
    assert found.burst_faster
    assert (found.sustained_faster, found.late, found.compared.called_sustained) == (None, 1, 0)


def test_slow_variants_stand_apart(root: Path) -> None:
    three_runs(root, sustained_ms=3.0)
    for cell in CELLS:
        for number in (4, 5, 6):
            keep(root, cell, number, measured(cell, number, 2.0 + number / 100, sustained_ms=1.999))
    found = of(root)
    assert (found.burst_faster, found.sustained_slower) == (None, None)
    assert found.burst_slower
    assert found.burst_slower.count == len(CELLS)
    assert found.reason == "no variant takes less than 2 ms on this device"
    assert found.spread("burst", fast=False) == found.burst_slower
    assert found.spread("sustained", fast=True) == found.sustained_faster


def test_without_a_run_or_with_one_a_reader_learns_what_is_lacking(root: Path) -> None:
    none = of(root)
    assert (none.runs, none.burst_faster, none.compared.pairs) == (0, None, 0)
    needs, rest = "it takes two runs of the notebook flux under the same conditions, and", "when this page was measured"
    assert none.reason == none.why_none == f"{needs} none was at hand {rest}; a published page is one run"
    for cell in CELLS:
        keep(root, cell, 1, measured(cell, 1, 0.4))
    one = of(root)
    assert (one.runs, one.once, one.compared.pairs) == (1, (), 0)
    assert one.reason == f"{needs} only one of flex, sdpa was at hand {rest}; a published page is one run"


def test_a_cell_with_one_run_is_left_out_and_named_where_others_have_several(root: Path) -> None:
    three_runs(root)
    notebook = root / "notebooks" / "flux.md"
    notebook.write_text(notebook.read_text(encoding="utf-8") + "```python id=te\n```\n", encoding="utf-8")
    keep(root, "te", 1, measured("te", 1, 0.4))
    found = of(root)
    assert (found.runs, found.once, set(found.cells)) == (3, ("te",), set(CELLS))


@pytest.mark.parametrize(("second", "at_once"), [("12:01:29", True), ("12:01:31", False)])
def test_runs_that_overlap_in_time_are_noted(root: Path, second: str, at_once: bool) -> None:
    for number, begin in enumerate(("12:00:00", second), start=1):
        for cell in CELLS:
            keep(root, cell, number, measured(cell, 9, 0.4 + number / 1000), ran_at=f"2026-01-31T{begin}+00:00")
    found = of(root)
    assert (found.runs, found.at_once) == (2, at_once)  # both ended in the same minute


# The file.


def test_what_is_published_is_read_again(root: Path) -> None:
    three_runs(root)
    found = of(root)
    assert reruns.read(json.loads(msgspec.json.encode(found))) == found
    for target in ("h200", "cpu"):
        content = json.loads((REPORTS / target / "certificate" / "records" / "reruns.json").read_text(encoding="utf-8"))
        published = reruns.read(content)
        assert (published.runs, published.late) == (content["runs"], content["late"])
        assert len(published.clocks) == len(content["clocks"])


@pytest.mark.parametrize("content", [{}, {"runs": "3"}, {"notebook": "flux", "runs": 1, "cells": [], "compared": {}}])
def test_a_damaged_file_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match=r"reruns\.json must hold"):
        reruns.read(content)
