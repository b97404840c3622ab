"""The index and the comparison in a real browser: what is clicked, typed and sent does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import served
from compared import ROWS, choose, click, shown, status
from published import REPORTS
from sites import HOSTILE, LENGTHS, believe, hostile, of_two_targets, record

from fluxbench.site.draw import draw

if TYPE_CHECKING:
    from browser import Browser

PAGES = ("index.html", "compare.html")


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


def test_all_links_above_a_published_page_can_be_reached_on_a_phone(browser: Browser) -> None:
    with served(REPORTS / "h200") as address:
        browser.open(f"{address}/flux.html", width=390)
        ends = browser.run(
            "return [...document.querySelectorAll('.where a')].map(link => link.getBoundingClientRect())"
            ".map(box => [box.left, box.right])"
        )
    assert len(ends) == 3
    assert all(0 <= left < right <= 390 for left, right in ends)


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
    assert status(browser) == "6 of 10 rows, 5 PASSED, 5 with a sustained time"
    choose(browser, "#workload", "")
    assert status(browser) == "10 of 10 rows, 8 PASSED, 8 with a sustained time"
    choose(browser, "#status", "failed")
    assert shown(browser) == ["flex", "flex"]
    assert "the worker ended on signal 11" in browser.run(ROWS)[0]
    choose(browser, "#status", "")
    choose(browser, "#search", "CUDNN t128")
    assert shown(browser) == ["torch_cudnn"]
    choose(browser, "#search", "nothing like it")
    assert status(browser) == "0 of 10 rows, 0 PASSED, 0 with a sustained time"
    assert "No row that is chosen has such a number" in browser.run("return document.getElementById('chart').innerText")
    click(browser, "#reset")
    click(browser, "#targets input[value=cpu]")
    assert set(shown(browser, 1)) == {"h200"}
    click(browser, "#none")
    assert shown(browser) == []
    click(browser, "#variants input[value=torch_cudnn]")
    assert shown(browser) == ["torch_cudnn"]
    click(browser, "[name=regime][value=burst]")
    assert browser.run(ROWS)[0][4] == "0.9000"
    assert status(browser) == "1 of 10 rows, 1 PASSED, 1 with a burst time"
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
    assert status(browser) == "6 of 10 rows, 5 PASSED, 5 with a sustained time"
    assert browser.complaints() == []


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
