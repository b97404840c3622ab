"""Published runs, compared: every number is the one that `fluxbench diff` gave when the verdicts last changed.

That was when a page became one family of variants whose error holds what differs between runs: both pairs are of two
cards, so changes of less than about 1% that were significant no longer are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published import BY_METHOD
from sample_records import changed

from fluxbench.analysis.comparison.compare import compare
from fluxbench.analysis.comparison.model import Comparison, Measured, NoteKind
from fluxbench.records import files
from fluxbench.records.method import METHOD_VERSION
from fluxbench.stats.significance import Change

pytestmark = pytest.mark.usefixtures("usual_spreads")

CELLS = ("sdpa", "triton", "flex")
KNOWN = json.loads((Path(__file__).parent / "published_changes.json").read_text(encoding="utf-8"))
PAIRS = {"4 to 5": (4, 5), "1 to 2": (1, 2)}  # method versions: with burst times and without


def side(name: str, folder: Path) -> Measured:
    """Return a folder's cells as if they had been measured by the present method."""
    records = {cell: files.read(next(p for p in files.paths(folder) if files.cell_of(p) == cell)) for cell in CELLS}
    controls = {("flux", cell): one for cell in CELLS if (one := files.read_control(folder, cell))}
    equal = (changed(record, method_version=METHOD_VERSION) for of_cell in records.values() for record in of_cell)
    return Measured(name=name, records=tuple(equal), controls=controls)


def as_schema_2(folder: Path, to: Path) -> Path:
    """Write a folder's cells anew, as schema 2 has them."""
    to.mkdir(parents=True)
    whole = side("", folder)
    for cell in CELLS:
        files.write(to / f"{cell}.jsonl", [record for record in whole.records if record.cell == cell])
        if control := whole.controls.get(("flux", cell)):
            (to / f"{cell}.control.json").write_text(control.to_json(), encoding="utf-8")
    return to


def numbers(change: Change | None) -> list[Any] | None:
    if change is None:
        return None
    return [change.ratio, change.low, change.high, change.minimum_detectable_change, change.verdict.value]


def assert_known(comparison: Comparison, known: dict[str, Any]) -> None:
    assert comparison.happened == known["happened"]
    assert numbers(comparison.device) == close(known["device"])
    expected = {(row[0], row[1]): row[2:] for row in known["rows"]}
    assert {(row.variant, row.workload) for row in comparison.rows} == expected.keys()
    for row in comparison.rows:
        before_ms, after_ms, change, normalized, sustained = expected[row.variant, row.workload]
        assert (row.before_ms, row.after_ms) == pytest.approx((before_ms, after_ms), rel=1e-12)
        assert numbers(row.change) == close(change)
        assert numbers(row.normalized) == close(normalized)
        assert numbers(row.sustained) == close(sustained)


def close(known: list[Any] | None) -> Any:
    """Return numbers to compare with up to the last digits, in which processors may differ."""
    return known and [*(pytest.approx(number, rel=1e-10) for number in known[:4]), known[4]]


@pytest.mark.parametrize("pair", PAIRS)
def test_published_runs_compare_to_the_same_numbers(pair: str, tmp_path: Path) -> None:
    before, after = (BY_METHOD[version] for version in PAIRS[pair])
    assert_known(compare(side("before", before), side("after", after)), KNOWN[pair])
    new = as_schema_2(after, tmp_path / "after")
    assert_known(compare(side("before", before), side("after", new)), KNOWN[pair])  # schema 1 against schema 2
    found = compare(side("before", after), side("after", new))
    assert {row.note.kind for row in found.rows if row.note} == {NoteKind.NOT_MEASURED_AGAIN}
    assert set(found.differs.values()) == {()}
