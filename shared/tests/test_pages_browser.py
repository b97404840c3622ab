"""A notebook's page in a real browser: nothing is asked of others, nothing overflows, and everybody can read it.

The page is drawn from made-up records by the cells' own functions, without an environment of uv and without a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, served
from fakes import GPU, REPOSITORY, clean
from sample_records import make_record

from fluxbench import show
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.page import draw
from fluxbench.notebook.store import Result, Store
from fluxbench.operations.workloads import named
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Status
from fluxbench.report.tables import tables

SHOWN = ("answer", "ranking", "latency", "throughput", "frontier", "energy", "parts", "state", "correctness", "kernels")
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
THEMES = ("dark", "light")
WIDTHS = (1400, 400)


def made_up() -> list[Record]:
    """Return records of all that a page tells apart: forms, precisions, ends, marks, names and reasons with markup."""
    found = []
    for at, variant in enumerate(("torch_flash", "torch_cudnn", "torch_cudnn_compile_ma", "flex", "flash_attn_3_fp8")):
        for workload in named("flux1-1024px"):
            kind = "quantized" if variant.endswith("fp8") else "exact"
            record = make_record(variant, workload, 1 - 0.15 * at, precision_class=kind, kernel=MARKUP)
            assert record.second_clock
            parts = {"attention": 0.6 - 0.1 * at, "copies": 0.05 * at, "quantization": 0.01 * at}
            clock = dataclasses.replace(record.second_clock, parts_ms=parts)
            found.append(dataclasses.replace(record, second_clock=clock, marks=(MARKUP,)))
    for status, name in ((Status.INCORRECT, "hf_sage"), (Status.UNSUPPORTED, MARKUP)):
        found += [make_record(name, workload, status=status, reason=MARKUP) for workload in named("flux1-1024px")]
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page of the Flux notebook's showing cells, one stale and one failed measuring cell."""
    folder = tmp_path_factory.mktemp("page")
    text = (REPOSITORY / "notebooks" / "flux.md").read_text(encoding="utf-8")
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "flux.md").write_text(text, encoding="utf-8")
    document = load(folder / "notebooks" / "flux.md")
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        results = dict(_results(document, folder, monkeypatch))
    cells = {
        code.id: Freshness(state=State.FRESH, reasons=(), result=results[code.id])
        if code.id in results
        else Freshness(state=State.MISSING, reasons=(f"it was never run here: {MARKUP}",), result=None)
        for code in document.cells
    }
    cells["triton"] = Freshness(state=State.STALE, reasons=("timing.py changed",), result=results["triton"])
    draw(document, cells, {"flex": f"it broke: {MARKUP}"}, folder / "site")
    with served(folder / "site") as address:
        yield f"{address}/flux.html"


def _results(document: Document, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Result]]:
    """Yield the results of the cells that show, and of the measuring ones that the page is to have."""
    store = Store(document)
    facts = {"device": dataclasses.asdict(GPU), "peak": {"bf16_tflops": 989.5}}
    (folder / "in").mkdir()
    (folder / "in" / "device.json").write_text(json.dumps(facts), encoding="utf-8")
    records.write(folder / "in" / "sdpa.jsonl", made_up())
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_ALL")
    monkeypatch.setenv("UVNOTE_INPUT_ALL", str(folder / "in"))
    for name in (*SHOWN, "sdpa", "triton"):
        here = folder / "out" / name
        here.mkdir(parents=True)
        monkeypatch.chdir(here)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            if name in SHOWN:
                getattr(show, name)()
            else:
                records.write(here / f"{name}.jsonl", made_up())
                print(tables.timing_table(made_up()))
        yield (
            name,
            store.add(
                name,
                artifacts={path.name: path for path in sorted(here.iterdir())},
                stdout=said.getvalue(),
                stderr="",
                duration_s=1.0,
                failure=None,
                ran_at="2026-01-31T12:00:00+00:00",
                depends={"device": MARKUP, "driver": "580.65.06"},
                inputs={},
            ),
        )


@pytest.fixture(
    params=[(theme, width) for theme in THEMES for width in WIDTHS], ids=lambda each: f"{each[0]}-{each[1]}"
)
def shown(request: pytest.FixtureRequest, browser: Browser, page: str) -> Browser:
    """A browser at the page, in a theme and at a width."""
    theme, width = request.param
    browser.open(page, width=width)
    browser.run("localStorage.setItem('uvnote-theme', arguments[0])", theme)
    browser.open(page, width=width)
    return browser


def test_a_page_opens_without_a_complaint_and_asks_nobody_else(shown: Browser, page: str) -> None:
    assert shown.complaints() == []
    assert set(shown.requests()) == {page}


def test_nothing_is_wider_than_the_page(shown: Browser) -> None:
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert shown.run(wide) == 0
    assert shown.run("return document.querySelectorAll('.table').length") > 10


def test_no_control_covers_the_title(shown: Browser) -> None:
    over = """
    const box = document.querySelector("h1").getBoundingClientRect();
    return [...document.querySelectorAll("button, .contents, .bar")].filter(each => {
      const its = each.getBoundingClientRect();
      return its.width && its.left < box.right && box.left < its.right && its.top < box.bottom && box.top < its.bottom;
    }).map(each => each.outerHTML.slice(0, 80));
    """
    assert shown.run(over) == []


def test_axe_finds_no_serious_fault(shown: Browser) -> None:
    shown.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert shown.faults() == []


def test_texts_of_figures_stand_out_from_the_page(shown: Browser) -> None:
    found = shown.contrasts()
    assert "torch_cudnn" in found
    assert {text: contrast for text, contrast in found.items() if contrast < 4.5} == {}


def test_figures_take_the_colours_of_the_theme(browser: Browser, page: str) -> None:
    colours = set()
    for theme in THEMES:
        browser.open(page)
        browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
        colours.add(browser.run("return getComputedStyle(document.querySelector('#cell-latency .mark use')).fill"))
    assert len(colours) == 2
    assert not any(colour in ("none", "rgb(0, 0, 0)") for colour in colours)


def test_the_keyboard_alone_changes_the_theme_and_opens_code(browser: Browser, page: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    browser.open(page)
    browser.run("localStorage.clear()")
    browser.open(page)
    press(Keys.TAB, Keys.TAB)
    assert browser.run("return document.activeElement.id") == "theme"
    press(Keys.ENTER)
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    for _ in range(40):
        press(Keys.TAB)
        if browser.run("return document.activeElement.closest('.cell-source') !== null"):
            break
    closed = browser.run("return document.activeElement.parentElement.open")
    press(Keys.ENTER)
    assert (closed, browser.run("return document.activeElement.parentElement.open")) == (False, True)
    browser.open(page)
    assert browser.run("return document.documentElement.dataset.theme") == "light"  # it is remembered


def test_whatever_scrolls_or_opens_is_reached_by_the_keyboard(browser: Browser, page: str) -> None:
    script = """
    return [...document.querySelectorAll("main *")].filter(each => {
      const style = getComputedStyle(each);
      const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY)
        && (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1);
      return each.checkVisibility() && scrolls && each.tabIndex < 0;
    }).map(each => each.outerHTML.slice(0, 80));
    """
    browser.open(page, width=400)
    assert browser.run(script) == []


def test_markup_in_names_reasons_and_devices_is_text(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.run("return document.querySelectorAll('img, main script').length") == 0
    assert MARKUP in browser.run("return document.querySelector('#cell-ranking').textContent")
    assert MARKUP in browser.run("return document.querySelector('#cell-flex').textContent")


def test_what_is_stale_or_failed_looks_it(browser: Browser, page: str) -> None:
    browser.open(page)
    colour = "return getComputedStyle(document.querySelector(arguments[0])).color"
    plain, stale, failed = (
        browser.run(colour, f"#cell-{name} summary:last-of-type") for name in ("sdpa", "triton", "flex")
    )
    assert len({plain, stale, failed}) == 3
    assert browser.run(colour, "#cell-correctness tr.failed td") == failed


def test_the_head_of_a_table_stays_while_it_scrolls(browser: Browser, page: str) -> None:
    browser.open(page, width=400, height=500)
    moved = """
    const table = document.querySelector("#cell-correctness .table");
    table.scrollIntoView(); table.scrollTo(60, 200);
    const [head, name] = [table.querySelector("thead th"), table.querySelector("tbody tr:nth-child(12) th")];
    const [outer, its, row] = [table, head, name].map(each => each.getBoundingClientRect());
    return [its.top - outer.top, its.left - outer.left, row.left - outer.left];
    """
    assert all(abs(distance) <= 2 for distance in browser.run(moved))


def test_a_mark_tells_its_numbers(browser: Browser, page: str) -> None:
    browser.open(page)
    told = browser.run("return [...document.querySelectorAll('#cell-latency .mark title')].map(e => e.textContent)")
    assert "torch_cudnn at 512 text tokens: 0.850 ms [0.846, 0.854], sustained" in told
