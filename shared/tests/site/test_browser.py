"""The index and the comparison in a real browser: what is clicked, typed and sent does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from browser import served
from sample_records import LAUNCH_BOUND, changed
from sites import CPU, H200, HOSTILE, LENGTHS, believe, hostile, of_two_targets, record, write

from fluxbench.records.fingerprint import not_comparable
from fluxbench.records.method import METHOD_VERSION, UNKNOWN, of_burst
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.site.draw import draw

if TYPE_CHECKING:
    from browser import Browser

PAGES = ("index.html", "compare.html")
_ROWS = """
return [...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of two targets."""
    folder = of_two_targets(tmp_path_factory.mktemp("site"))
    draw(folder, believe)
    with served(folder) as address:
        yield address


@pytest.fixture
def themed(browser: Browser, site: str) -> Iterator[Browser]:
    """The browser, of which the theme is forgotten afterwards."""
    yield browser
    browser.open(f"{site}/index.html")
    browser.run("localStorage.clear()")


def click(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def choose(browser: Browser, selector: str, value: str) -> None:
    """Set a field as a person does, with the event that comes of it."""
    script = """
    const field = document.querySelector(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event(field.type === 'search' ? 'input' : 'change'));
    """
    browser.run(script, selector, value)


def shown(browser: Browser, column: int = 0) -> list[str]:
    """Return one column of the table's rows, of the first the variant alone."""
    return [row[column].split()[0] for row in browser.run(_ROWS)]


def status(browser: Browser) -> str:
    return str(browser.run("return document.getElementById('count').textContent"))


@pytest.mark.parametrize(
    ("page", "theme", "width"),
    [("index.html", "dark", 1400), ("index.html", "light", 400), ("compare.html", "dark", 400)],
)
def test_everybody_can_read_a_page_alone(themed: Browser, site: str, page: str, theme: str, width: int) -> None:
    themed.open(f"{site}/{page}", width=width)
    themed.run("localStorage.setItem('uvnote-theme', arguments[0])", theme)
    themed.open(f"{site}/{page}#base=h200/flux/torch_flash/{LENGTHS[1]}", width=width)
    assert [url.partition("#")[0] for url in themed.requests()] == [f"{site}/{page}"]
    assert themed.complaints() == []
    assert themed.run("return document.documentElement.dataset.theme") == theme
    assert themed.run("return document.documentElement.scrollWidth") == width
    assert themed.faults() == []


def test_a_head_sorts_and_says_so(browser: Browser, site: str) -> None:
    browser.open(f"{site}/compare.html#target=h200")
    assert shown(browser) == ["sage_int8_fp16_triton", "torch_cudnn", "torch_flash", "flex"]
    assert browser.run("return document.querySelector('[data-key=ms]').ariaSort") == "ascending"
    click(browser, "[data-key=ms] button")
    assert shown(browser) == ["torch_flash", "torch_cudnn", "sage_int8_fp16_triton", "flex"]  # no time: last both ways
    assert browser.run("return document.querySelector('[data-key=ms]').ariaSort") == "descending"
    click(browser, "[data-key=variant] button")
    assert shown(browser) == ["flex", "sage_int8_fp16_triton", "torch_cudnn", "torch_flash"]
    assert browser.run("return document.querySelector('[data-key=ms]').ariaSort") == "none"


def test_rows_are_chosen_and_counted(browser: Browser, site: str) -> None:
    browser.open(f"{site}/compare.html")
    assert status(browser) == "6 of 10 rows, 5 PASSED, sustained"
    choose(browser, "#workload", "")
    assert status(browser) == "10 of 10 rows, 8 PASSED, sustained"
    choose(browser, "#status", "failed")
    assert shown(browser) == ["flex", "flex"]
    assert "the worker ended on signal 11" in browser.run(_ROWS)[0]
    choose(browser, "#status", "")
    choose(browser, "#search", "CUDNN t128")
    assert shown(browser) == ["torch_cudnn"]
    choose(browser, "#search", "nothing like it")
    assert status(browser) == "0 of 10 rows, 0 PASSED, sustained"
    assert "No row that is chosen has such a number" in browser.run("return document.getElementById('chart').innerText")
    click(browser, "#reset")
    click(browser, "#targets input[value=cpu]")
    assert set(shown(browser, 1)) == {"h200"}
    click(browser, "#none")
    assert shown(browser) == []
    click(browser, "#variants input[value=torch_cudnn]")
    assert shown(browser) == ["torch_cudnn"]
    click(browser, "[name=regime][value=burst]")
    assert browser.run(_ROWS)[0][4] == "0.9000"
    assert status(browser) == "1 of 10 rows, 1 PASSED, burst"
    choose(browser, "#metric", "gb_s")
    gb_s = record("torch_cudnn").workload.cost.min_bytes / 0.9e6
    chart = browser.run("return document.getElementById('chart').textContent")
    assert f"torch_cudnn{gb_s:.1f} ±0.1" in chart
    assert "GB/s, each input read once, each output written once, burst" in chart


def test_the_choice_is_in_the_address(browser: Browser, site: str) -> None:
    browser.open(f"{site}/compare.html")
    click(browser, "#targets input[value=cpu]")
    choose(browser, "#workload", LENGTHS[0])
    click(browser, "[name=regime][value=burst]")
    for _ in range(2):
        click(browser, "[data-key=tflops] button")
    click(browser, "#variants input[value=flex]")
    choose(browser, "#metric", "tflops")
    choose(browser, "#search", "torch")
    click(browser, "tbody tr:last-child .base")
    state = """
    return [location.hash, [...document.querySelectorAll('input, select')].map(each => [each.value, each.checked]),
      document.querySelector('table').innerText, document.getElementById('chart').innerText,
      document.getElementById('count').textContent];
    """
    before = browser.run(state)
    url = browser.driver.current_url
    browser.open("about:blank")
    browser.driver.get(url)
    assert browser.run(state) == before
    assert "baseline: torch_flash" in before[-1]
    assert shown(browser) == ["torch_cudnn", "torch_flash"]


def test_an_address_that_is_none_of_ours_is_harmless(browser: Browser, site: str) -> None:
    browser.open(f"{site}/compare.html#sort=__proto__&chart=constructor&regime=toString&base=x&workload=%3Cb%3E&at=1")
    assert status(browser) == "6 of 10 rows, 5 PASSED, sustained"
    assert browser.complaints() == []


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
        rows = browser.run(_ROWS)[1:]
        notes = browser.run("return document.getElementById('notes').innerText")
        browser.driver.get(f"{address}/compare.html#workload={LENGTHS[0]}&base=here/flux/base/{LENGTHS[0]}")
        browser.driver.refresh()
        unknown = {row[0].split()[0]: row[7] for row in browser.run(_ROWS)}
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
            shown[regime] = next(row[7] for row in browser.run(_ROWS) if row[0].startswith("v"))
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
        other, unsaid = (row[7] for row in browser.run(_ROWS)[1:])
        browser.driver.get(f"{address}/compare.html#sort=target&workload={LENGTHS[0]}&base=here/flux/g/{LENGTHS[0]}")
        browser.driver.refresh()
        launched, graphs = browser.run(_ROWS)
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
        rows = {(row[0].split()[0], row[1], row[2]): row for row in browser.run(_ROWS)}
        notes = browser.run("return document.getElementById('notes').innerText")
        assert len(rows) == 200  # a long table comes in parts
        click(browser, "#more")
        assert browser.run("return document.querySelectorAll('tbody tr').length") == 204
        assert browser.run("return document.getElementById('more').checkVisibility()") is False
        click(browser, ".base[aria-pressed=true]")
        assert status(browser) == "204 of 204 rows, 4 PASSED, sustained"
    assert rows["a", "old", LENGTHS[1]][7] == "1, the baseline"
    assert rows["b", "old", LENGTHS[1]][7] == "0.500 [0.495, 0.505]"
    assert rows["b", "old", LENGTHS[0]][7] == f"another workload than the baseline's {LENGTHS[1]}"
    assert rows["a", "new", LENGTHS[1]][7] == "0.500 [0.495, 0.505]; driver 580.10 -> 590"
    assert "rows differ in driver" in notes
    assert "Rows of different workloads are different work" in notes


def test_signs_and_power_limits_and_an_unknown_target_are_told(browser: Browser, tmp_path: Path) -> None:
    def capped(variant: str, *, limit: float, **fields: Any) -> Record:
        fingerprint = {**H200, "power_limit_w": limit}
        return record(variant, fingerprint=fingerprint, converged={SUSTAINED: False}, **fields)

    write(tmp_path, "here", capped("a", limit=700.0, flags=[LAUNCH_BOUND]))
    write(tmp_path, "there", capped("b", limit=500.0, ms=2.0), record("free", ms=3.0))
    draw(tmp_path, believe)
    notes = "return document.getElementById('notes').innerText"
    with served(tmp_path) as address:
        browser.open(f"{address}/compare.html")
        assert [row[5].rpartition("] ")[2] for row in browser.run(_ROWS)] == ["c", "[2.99, 3.02]", "ch"]
        assert "power limits differ (500 W, 700 W)" in browser.run(notes)
        assert "a (h: launch-bound)" in browser.run("return document.getElementById('chart').textContent")
        browser.open(f"{address}/compare.html#variant=a&variant=b")
        browser.driver.refresh()
        assert [row[5].rpartition(" ")[2] for row in browser.run(_ROWS)] == ["2.010]", "h"]
        assert "No row converged: in each the limits" in browser.run(notes)
        browser.open(f"{address}/compare.html#target=nope")
        browser.driver.refresh()
        assert "there is no target “nope” here" in status(browser)


def test_a_wide_interval_has_both_ends(browser: Browser, site: str) -> None:
    browser.open(f"{site}/compare.html")
    script = "return [plusMinus(0.375, 0.183, 0.767), plusMinus(0.4, 0.398, 0.402)]"
    assert browser.run(script) == ["0.375 [0.183, 0.767]", "0.400 ±0.002"]


@pytest.mark.parametrize("page", PAGES)
def test_a_hostile_record_runs_no_script(browser: Browser, tmp_path: Path, page: str) -> None:
    draw(hostile(tmp_path), believe)
    with served(tmp_path) as address:
        browser.open(f"{address}/{page}")
        assert browser.requests() == [f"{address}/{page}"]
        assert browser.run("return document.querySelectorAll('img, b, [onerror], [onmouseover]').length") == 0
        assert "<img src=x onerror=alert(1)>" in browser.run("return document.body.innerText")
        if page == "compare.html":
            click(browser, ".base")
            browser.driver.get(browser.driver.current_url + "&chart=ratio")
            assert "baseline: </script>" in status(browser)
            assert HOSTILE in browser.run("return document.getElementById('variants').textContent")
        assert browser.complaints() == []
