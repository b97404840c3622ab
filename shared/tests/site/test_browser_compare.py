"""The comparison in a real browser: what cannot be compared, the signs of rows, and the chart say what is so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from browser import served
from compared import ROWS, click, shown, status
from sample_records import LAUNCH_BOUND, changed
from sites import CPU, H200, LENGTHS, believe, record, write

from fluxbench.records.fingerprint import not_comparable
from fluxbench.records.method import METHOD_VERSION, UNKNOWN, of_burst
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.site.draw import draw

if TYPE_CHECKING:
    from browser import Browser

CHANGED: list[tuple[dict[str, Any], int]] = [
    ({"device": "NVIDIA L4"}, METHOD_VERSION),
    ({"mig": True}, METHOD_VERSION),
    ({"compute_capability": "9.9", "mig": True}, 5),
    ({"device": "AMD EPYC", "device_kind": "cpu", "compute_capability": None, "cpu_cores": 2}, METHOD_VERSION),
    ({"device_kind": "cpu", "cpu_cores": 2}, METHOD_VERSION),
    ({}, 5),
    ({}, METHOD_VERSION + 1),
    ({}, UNKNOWN),
    ({"driver": "590.01", "code.bench": "ddd", "cpu_cores": 8, "power_limit_w": 500.0}, METHOD_VERSION),
]


def test_what_cannot_be_compared_is_said_as_fluxbench_says_it(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path, "here", record("base"), record("base", LENGTHS[0], method_version=UNKNOWN))
    for number, (fields, version) in enumerate(CHANGED):
        fingerprint = {**H200, **fields}
        write(tmp_path, f"t{number}", record(f"v{number}", fingerprint=fingerprint, method_version=version))
    write(tmp_path, "other", record("v", LENGTHS[0], method_version=UNKNOWN))
    draw(tmp_path, believe)
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html#sort=variant&workload={LENGTHS[1]}&base=here/flux/base/{LENGTHS[1]}")
        rows = browser.run(ROWS)[1:]
        notes = browser.run("return document.getElementById('notes').innerText")
        browser.driver.get(f"{address}/compare.html#workload={LENGTHS[0]}&base=here/flux/base/{LENGTHS[0]}")
        browser.driver.refresh()
        unknown = {row[0].split()[0]: row[7] for row in browser.run(ROWS)}
    for (fields, version), row in zip(CHANGED, rows, strict=True):
        reason = not_comparable((H200, METHOD_VERSION), ({**H200, **fields}, version))
        assert row[7] == (f"not comparable: {reason}" if reason else "1.00 [0.99, 1.01]")
    assert [row[7].startswith("not comparable") for row in rows] == [True] * 8 + [False]
    assert "here and t0: times cannot be compared, since they were measured on different devices" in notes
    assert "here and t0: times cannot be compared, since they were not" not in notes
    reason = not_comparable((H200, UNKNOWN), (H200, UNKNOWN))
    assert unknown["v"] == f"not comparable: {reason}"


def test_a_pair_that_cannot_be_compared_is_named_once_and_within_a_target_by_its_notebooks(
    browser: Browser, tmp_path: Path
) -> None:
    other = {**H200, "device": "NVIDIA L4"}
    for notebook, version in (("flux", METHOD_VERSION), ("decode", 5)):
        write(tmp_path, "b", record("v", method_version=version, notebook=notebook), notebook=notebook)
        of_other = record("v", method_version=version, notebook=notebook, fingerprint=other)
        write(tmp_path, "a", of_other, notebook=notebook)
    draw(tmp_path, believe)
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html")
        notes = browser.run("return [...document.querySelectorAll('#notes li')].map(item => item.textContent)")
    pairs = [note.partition(": times cannot be compared, since they were ") for note in notes if "since" in note]
    assert sorted((who, why.partition(":")[0]) for who, _, why in pairs) == [
        ("a (decode) and a (flux)", "not measured in the same way"),
        ("a and b", "measured on different devices"),
        ("b (decode) and b (flux)", "not measured in the same way"),
    ]


def test_a_row_whose_interval_spans_more_than_a_factor_of_two_is_not_drawn_beside_others(
    browser: Browser, tmp_path: Path
) -> None:
    timing = record("wide").timings[SUSTAINED]
    wide = msgspec.structs.replace(timing, ci95_ms=(0.3, 63.0))
    write(tmp_path, "here", record("narrow"), changed(record("wide"), timings={SUSTAINED: wide}))
    draw(tmp_path, believe)
    drawn = "return document.getElementById('chart').textContent"
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html")
        chart = browser.run(drawn)
        assert "; 1 left out, whose 95% intervals span more than a factor of 2" in chart
        assert "wide1.00" not in chart
        assert sorted(shown(browser)) == ["narrow", "wide"]
        browser.open(f"{address}/compare.html#variant=wide")
        browser.driver.refresh()
        assert "wide1.00" in browser.run(drawn)


def test_burst_times_of_two_methods_that_take_them_alike_are_compared(browser: Browser, tmp_path: Path) -> None:
    assert of_burst(9) == of_burst(8)
    write(tmp_path, "here", record("base", method_version=9))
    write(tmp_path, "earlier", record("v", method_version=8))
    draw(tmp_path, believe)
    with served(tmp_path) as address:
        shown = {}
        for regime in (BURST, SUSTAINED):
            browser.driver.get("about:blank")
            base = f"base=here/flux/base/{LENGTHS[1]}"
            browser.open(f"{address}/compare.html#regime={regime}&sort=variant&workload={LENGTHS[1]}&{base}")
            shown[regime] = next(row[7] for row in browser.run(ROWS) if row[0].startswith("v"))
    assert not shown[BURST].startswith("not comparable")
    assert shown[SUSTAINED].startswith("not comparable: they were not measured in the same way: method version 9")


def test_instruction_sets_and_cuda_graphs_are_told_apart(browser: Browser, tmp_path: Path) -> None:
    replayed = Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=0.7)
    write(tmp_path, "here", record("a", fingerprint={**CPU, "instruction_sets": "avx2"}), record("g", LENGTHS[0]))
    write(tmp_path, "there", record("b", fingerprint={**CPU, "instruction_sets": "avx2 amx_tile"}))
    write(tmp_path, "unsaid", record("c", fingerprint=CPU), record("g", LENGTHS[0], flags=[replayed]))
    draw(tmp_path, believe)
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html#sort=variant&workload={LENGTHS[1]}&base=here/flux/a/{LENGTHS[1]}")
        other, unsaid = (row[7] for row in browser.run(ROWS)[1:])
        browser.driver.get(f"{address}/compare.html#sort=target&workload={LENGTHS[0]}&base=here/flux/g/{LENGTHS[0]}")
        browser.driver.refresh()
        launched, graphs = browser.run(ROWS)
    assert other.endswith("devices: instruction_sets avx2 -> instruction_sets avx2 amx_tile")
    assert unsaid == "1.00 [0.99, 1.01]"
    assert graphs[7] == "not comparable: calls were timed as the host launches them, and now as CUDA graphs"
    assert (launched[5][-1], graphs[5].rpartition("] ")[2]) == ("]", "g")


def test_a_baseline_holds_the_others_against_it(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path, "old", record("a", ms=2.0), record("b", ms=1.0), record("b", LENGTHS[0]))
    newer = record("a", ms=1.0, versions={"torch": "2.9.0", "driver": "590", "cuda": "13.0", "cudnn": "9.12"})
    write(tmp_path, "new", newer, *(record(f"v{number}", status=Status.ERROR, reason="no") for number in range(200)))
    draw(tmp_path, believe)
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html#workload=&base=old/flux/a/{LENGTHS[1]}")
        rows = {(row[0].split()[0], row[1], row[2]): row for row in browser.run(ROWS)}
        notes = browser.run("return document.getElementById('notes').innerText")
        assert len(rows) == 200  # a long table comes in parts
        click(browser, "#more")
        assert browser.run("return document.querySelectorAll('tbody tr').length") == 204
        assert browser.run("return document.getElementById('more').checkVisibility()") is False
        click(browser, ".base[aria-pressed=true]")
        assert status(browser) == "204 of 204 rows, 4 PASSED, 4 with a sustained time"
    assert rows["a", "old", LENGTHS[1]][7] == "1, the baseline"
    assert rows["b", "old", LENGTHS[1]][7] == "0.500 [0.495, 0.505]"
    assert rows["b", "old", LENGTHS[0]][7] == f"another workload than the baseline's {LENGTHS[1]}"
    assert rows["a", "new", LENGTHS[1]][7] == "0.500 [0.495, 0.505]; driver 580.10 -> 590"
    assert "rows differ in driver" in notes
    assert "Rows of different workloads are different work" in notes


def test_signs_power_limits_cards_and_an_unknown_target_are_told(browser: Browser, tmp_path: Path) -> None:
    def capped(variant: str, *, limit: float, **fields: Any) -> Record:
        fingerprint = {**H200, "power_limit_w": limit, "card": f"card{limit:g}"}
        return record(variant, fingerprint=fingerprint, converged={SUSTAINED: False}, **fields)

    write(tmp_path, "here", capped("a", limit=700.0, flags=[LAUNCH_BOUND]))
    write(tmp_path, "there", capped("b", limit=500.0, ms=2.0), record("free", ms=3.0))
    draw(tmp_path, believe)
    notes = "return document.getElementById('notes').innerText"
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html")
        assert [row[5].rpartition("] ")[2] for row in browser.run(ROWS)] == ["c", "[2.99, 3.02]", "ch"]
        assert "power limits differ (500 W, 700 W)" in browser.run(notes)
        assert "rows are of 2 cards. Times on two cards of one model may differ by 3%." in browser.run(notes)
        assert "a (h: launch-bound)" in browser.run("return document.getElementById('chart').textContent")
        browser.open(f"{address}/compare.html#variant=a&variant=b")
        browser.driver.refresh()
        assert [row[5].rpartition(" ")[2] for row in browser.run(ROWS)] == ["2.010]", "h"]
        assert "No row converged: in each the limits" in browser.run(notes)
        browser.open(f"{address}/compare.html#target=nope")
        browser.driver.refresh()
        assert "there is no target “nope” here" in status(browser)
