"""A comparison as a table and as JSON."""

from __future__ import annotations

import json

from sides import CELLS, before_burst, edited, failing, only, side, timed
from tabled import heads, table_of, words
from tabled import rows_of as cells_of

from fluxbench.analysis.comparison.compare import compare
from fluxbench.records.schema import BURST
from fluxbench.report.blocks import Heading, Row
from fluxbench.report.comparison import blocks, table, to_json
from fluxbench.report.comparison_words import summary

BEFORE = side("before", 1)

# The table.


def test_the_table_begins_with_the_control_kernel_and_has_a_heading_for_each_variant() -> None:
    found = compare(BEFORE, side("after", 29))
    shown = table(found)
    variants = [variant for names in CELLS.values() for variant in names]
    assert [row.words for row in shown.rows if isinstance(row, Heading)] == ["control kernel: the device", *variants]
    assert found.device
    device, first, *_ = cells_of(shown)
    ends = f"{found.device.ratio:.4f} [{found.device.low:.4f}, {found.device.high:.4f}]"
    detectable = f"{found.device.minimum_detectable_change:.2%}"
    assert device == ("all workloads", "", "", "", ends, found.device.verdict, detectable, "", "")
    row = found.rows[0]
    assert row.change
    assert row.normalized
    assert row.sustained
    assert first[:4] == (row.workload, f"{row.before_ms:.4f}", f"{row.after_ms:.4f}", f"{row.change.ratio:.4f}")
    assert first[4] == f"{row.normalized.ratio:.4f} [{row.normalized.low:.4f}, {row.normalized.high:.4f}]"
    assert first[5:7] == (row.normalized.verdict, f"{row.normalized.minimum_detectable_change:.2%}")
    assert first[7] == f"{row.sustained.ratio:.3f} [{row.sustained.low:.3f}, {row.sustained.high:.3f}]"
    assert first[8] == row.sustained.verdict
    assert len([row for row in shown.rows if isinstance(row, Row)]) == 31


def test_a_table_without_control_kernel_or_sustained_times_is_narrower() -> None:
    shown = table(compare(before_burst(BEFORE), before_burst(side("after", 9, kernel=None))))
    expected = ["workload", "before", "after", "after / before, 95%", "verdict", "minimum detectable change"]
    assert heads(shown) == expected
    assert "control" not in shown.caption
    assert "sustained" not in shown.caption


def test_a_change_of_which_nothing_is_known_is_shown_without_ends() -> None:
    sides = [
        edited(one, lambda r: timed(r, r.timings[BURST].samples_ms[:1])) for one in (BEFORE, side("b", 30, kernel=None))
    ]
    found = compare(*sides)
    assert "[0.0000, >100]" in words(blocks(found))
    assert cells_of(table_of(blocks(found)))[0][5] == "-"
    assert "in some rows, no change could be detected" in " ".join(summary(found))
    assert json.loads(to_json(found))["rows"][0]["change"]["high"] is None


# JSON.


def test_the_json_holds_what_the_comparison_does() -> None:
    after = edited(side("after", 31, only("flex", 1.02)), lambda r: failing(r) if r.variant == "torch_math" else r)
    found = compare(BEFORE, after)
    data = json.loads(to_json(found))
    assert set(data) == {"before", "after", "rows", "device", "control_note", "differs", "happened", "summary"}
    assert [data[key] for key in ("before", "after", "happened", "control_note")] == [
        "before",
        "after",
        "library",
        None,
    ]
    assert found.device
    of_device = ("ratio", "low", "high", "verdict", "minimum_detectable_change")
    assert data["device"] == {field: getattr(found.device, field) for field in of_device}
    assert data["summary"] == summary(found)
    for row, one in zip(data["rows"], found.rows, strict=True):
        fields = ("notebook", "cell", "variant", "workload", "before", "before_ms", "after", "after_ms")
        assert [row[field] for field in fields] == [getattr(one, field) for field in fields]
        for key in ("change", "normalized", "sustained"):
            change = getattr(one, key)
            assert (row[key] or {}).get("ratio") == (change and change.ratio)
        assert (row["note"] is None) is (one.change is not None)
    notes = {row["note"] for row in data["rows"] if row["variant"] == "torch_math"}
    assert notes == {"PASSED before, now CRASHED: the worker ended on signal 11"}
