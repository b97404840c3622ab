"""Figures in a real browser: legible on a phone, in both themes, with folds that the keyboard reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser, served
from markupsafe import Markup
from sample_records import record, results
from sample_results import everything

from fluxbench.notebook.page import templates
from fluxbench.report import figures, tables
from fluxbench.report.picture import Picture
from fluxbench.report.results import Results

TEXTS = """
return [...document.querySelectorAll("svg text")].flatMap(text => {
  const svg = text.ownerSVGElement, box = svg.getBoundingClientRect(), own = text.getBoundingClientRect();
  if (!box.width) return [];
  const size = parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width;
  return [[text.textContent, size, own.left >= box.left - 1 && own.right <= box.right + 1]];
});
"""
FOLDS = """
return [...document.querySelectorAll("details.fold")].map(fold => {
  const summary = fold.querySelector("summary");
  summary.focus();
  return document.activeElement === summary && summary.textContent.length > 0;
});
"""


def page(shown: Results) -> str:
    """Return a page with every figure, and the tables beside which they stand."""
    blocks = [block for name in ("ranking", "correctness", "state") for block in tables.find(name).blocks(shown)]
    for name in figures.names():
        drawn = figures.find(name)(shown)
        assert drawn is not None
        words = {"caption": drawn.caption, "details": drawn.details}
        blocks.append(Picture(file=f"{name}.svg", wide=drawn.svg, narrow=drawn.narrow, **words))  # type: ignore[arg-type]
    display = Markup('<h1>Figures</h1><div class="display">{}</div>').format(
        Markup("").join(Markup(block.html()) for block in blocks)
    )
    style, script = Markup(templates.style()), Markup(templates.script())
    return templates.filled("page.html", title="Figures", theme="dark", style=style, script=script, prose=display)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("figures")
    (found / "figures.html").write_text(page(everything()), encoding="utf-8")
    return found


@pytest.mark.parametrize(("theme", "width"), [("dark", 400), ("light", 400), ("light", 840), ("dark", 1400)])
def test_figures_can_be_read_on_every_screen(folder: Path, browser: Browser, theme: str, width: int) -> None:
    with served(folder) as address:
        browser.open(f"{address}/figures.html", width=width)
        browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
        assert browser.run("return document.documentElement.scrollWidth") == width
        drawn = browser.run("return [...document.querySelectorAll('figure > div')].map(one => one.offsetWidth > 0)")
        assert drawn == [width >= 840, width < 840] * len(figures.names())
        browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
        folds = browser.run(FOLDS)
        assert folds
        assert all(folds)
        found = browser.run(TEXTS)
        assert len(found) > 200
        assert [text for text, size, _ in found if size < 10] == []
        assert [text for text, _, inside in found if not inside] == []
        assert browser.run("return document.documentElement.scrollWidth") == width
        assert browser.faults() == []
        assert browser.complaints() == []


def test_a_caption_stands_below_its_figure(folder: Path, browser: Browser) -> None:
    with served(folder) as address:
        browser.open(f"{address}/figures.html", width=400)
        order = browser.run("return [...document.querySelectorAll('figure')].map(one => one.lastElementChild.tagName)")
        assert order == ["FIGCAPTION"] * len(figures.names())


def test_a_figure_of_one_row_has_no_fold_of_forms() -> None:
    drawn = figures.find("ranking")(results(record()))
    assert drawn is not None
    assert "All forms" not in " ".join(block.text() for block in drawn.details)
