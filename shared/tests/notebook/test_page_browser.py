"""A notebook's page in a real browser: nothing is loaded from others, nothing overflows, and everybody can read it.

The page is drawn from made-up records by the code of the notebook's showing cells, without uv and without a GPU.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, served
from fakes import GPU, REPOSITORY, clean
from sample_records import changed, record

from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.page.draw import draw
from fluxbench.notebook.schedule import NotRun
from fluxbench.notebook.store import Result, Run, Store
from fluxbench.operations import sets
from fluxbench.records import files
from fluxbench.records.schema import KernelShare, Record
from fluxbench.records.status import Status
from fluxbench.report import results

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def made_up() -> Iterator[Record]:
    """Yield records of all that a page tells apart: forms, precisions, failures, and names and reasons with markup."""
    workloads = sets.named(["flux1-1024px"])[1::2]
    kernel = KernelShare(name=MARKUP, share=0.97, part="attention")
    for at, variant in enumerate(("torch_flash", "torch_cudnn", "torch_cudnn_compile_ma", "flex", "flash_attn_3_fp8")):
        kind = "quantized" if variant.endswith("fp8") else "exact"
        for workload in workloads:
            made = record(variant, workload, 1 - 0.15 * at, precision_class=kind, kernels=(kernel,), detail=MARKUP)
            assert made.cupti
            parts = {"attention": 0.6 - 0.1 * at, "copies": 0.05 * at, "quantization": 0.01 * at}
            yield changed(made, cupti=changed(made.cupti, parts_ms=parts))  # type: ignore[arg-type]
    for status, name in ((Status.INCORRECT, "hf_sage"), (Status.UNSUPPORTED, MARKUP)):
        yield from (record(name, workload, status=status, reason=MARKUP) for workload in workloads)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the Flux page, with one measured, one stale and one failed measuring cell."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "notebooks").mkdir()
    text = (REPOSITORY / "notebooks" / "flux.md").read_text(encoding="utf-8")
    (folder / "notebooks" / "flux.md").write_text(text, encoding="utf-8")
    document = load(folder / "notebooks" / "flux.md")
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        kept = dict(_results(document, folder, monkeypatch))
    cells = {
        code.id: Freshness(state=State.FRESH, reasons=(), result=kept[code.id])
        if code.id in kept
        else Freshness(state=State.MISSING, reasons=(f"it was never run here: {MARKUP}",), result=None)
        for code in document.cells
    }
    cells["triton"] = Freshness(state=State.STALE, reasons=("timing changed",), result=kept["triton"])
    draw(document, cells, {"flex": NotRun(f"it broke: {MARKUP}")}, folder / "site")
    with served(folder / "site") as address:
        yield f"{address}/flux.html"


def _results(document: Document, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Result]]:
    """Yield the results of the showing cells, by running their code, and of two measuring cells."""
    store = Store(document)
    (folder / "in").mkdir()
    gathered = results.Results(notebook="flux", device=GPU, records=tuple(made_up()), rates={"matmul_tflops": 650.0})
    results.write(gathered, folder / "in")
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_RESULTS")
    monkeypatch.setenv("UVNOTE_INPUT_RESULTS", str(folder / "in"))
    for code in document.cells:
        if code.needs != ["results"] and code.id not in ("sdpa", "triton"):
            continue
        here = folder / "out" / code.id
        here.mkdir(parents=True)
        monkeypatch.chdir(here)
        monkeypatch.setenv("FLUXBENCH_DISPLAY", str(folder / "display.html"))
        (folder / "display.html").write_text("", encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            if code.needs:
                exec(code.code, {})
            else:
                files.write(here / f"{code.id}.jsonl", made_up())
                print(MARKUP)
        run = Run(
            success=True, stdout=stdout.getvalue(), stderr="", duration=1.0, artifacts={}, failure=None,
            ran_at="2026-01-31T12:00:00+00:00", depends={"device": MARKUP, "driver": "580.65.06"}, inputs={},
        )  # fmt: skip
        display = (folder / "display.html").read_text(encoding="utf-8") or None
        yield code.id, store.add(code.id, run, {path.name: path for path in sorted(here.iterdir())}, display)


@pytest.mark.parametrize(("theme", "width"), [("dark", 1400), ("light", 400)])
def test_everybody_can_read_a_page_and_it_loads_nothing_else(
    browser: Browser, page: str, theme: str, width: int
) -> None:
    browser.open(page, width=width)
    browser.run("localStorage.setItem('uvnote-theme', arguments[0])", theme)
    browser.open(page, width=width)
    assert browser.complaints() == []
    assert set(browser.requests()) == {page}
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.run("return document.querySelectorAll('.table').length") > 5
    titles = browser.run("return [...document.querySelectorAll('#cell-latency .mark title')].map(e => e.textContent)")
    assert any(title.startswith("torch_cudnn at 512 text tokens: 0.850 ms") for title in titles)
    over = """
    const box = document.querySelector("h1").getBoundingClientRect();
    return [...document.querySelectorAll("button, .contents, .bar")].filter(control => {
      const area = control.getBoundingClientRect();
      return area.width && area.left < box.right && box.left < area.right
        && area.top < box.bottom && box.top < area.bottom;
    }).map(control => control.outerHTML.slice(0, 80));
    """
    assert browser.run(over) == []
    contrasts = browser.contrasts()
    assert "torch_cudnn" in contrasts
    assert {text: contrast for text, contrast in contrasts.items() if contrast < 4.5} == {}
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.faults() == []


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
    for _ in range(60):
        press(Keys.TAB)
        if browser.run("return document.activeElement.closest('.source') !== null"):
            break
    closed = browser.run("return document.activeElement.parentElement.open")
    press(Keys.ENTER)
    assert (closed, browser.run("return document.activeElement.parentElement.open")) == (False, True)
    browser.open(page)
    assert browser.run("return document.documentElement.dataset.theme") == "light"  # it is remembered


def test_whatever_scrolls_is_reached_by_the_keyboard_and_the_head_of_a_table_stays(browser: Browser, page: str) -> None:
    browser.open(page, width=400, height=500)
    out_of_reach = """
    return [...document.querySelectorAll("main *")].filter(element => {
      const style = getComputedStyle(element);
      const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY)
        && (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1);
      return element.checkVisibility() && scrolls && element.tabIndex < 0;
    }).map(element => element.outerHTML.slice(0, 80));
    """
    assert browser.run(out_of_reach) == []
    moved = """
    const table = document.querySelector("#cell-correctness .table");
    table.scrollIntoView(); table.scrollTo(60, 200);
    const [head, name] = [table.querySelector("thead th"), table.querySelector("tbody tr:nth-child(12) th")];
    const [outer, first, row] = [table, head, name].map(element => element.getBoundingClientRect());
    return [first.top - outer.top, first.left - outer.left, row.left - outer.left];
    """
    assert all(abs(distance) <= 2 for distance in browser.run(moved))


def test_markup_in_names_reasons_and_devices_is_text_and_what_is_not_fresh_looks_it(
    browser: Browser, page: str
) -> None:
    browser.open(page)
    assert browser.run("return document.querySelectorAll('img, main script').length") == 0
    for cell in ("ranking", "kernels", "flex", "sdpa"):
        assert MARKUP in browser.run("return document.querySelector(arguments[0]).textContent", f"#cell-{cell}")
    colour = "return getComputedStyle(document.querySelector(arguments[0])).color"
    fresh, stale, failed = (browser.run(colour, f"#cell-{name} .source summary") for name in ("sdpa", "triton", "flex"))
    assert len({fresh, stale, failed}) == 3
    assert browser.run(colour, "#cell-flex .note") == failed
    assert browser.run(colour, "#cell-correctness tr.failed td") == failed
