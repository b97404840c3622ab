"""uvnote's page in fluxbench's order: what is cut, what is moved, and what is said of each cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import REPOSITORY
from notebooks import Machine

from fluxbench.notebook.document import load
from fluxbench.notebook.style import STYLESHEET, styled

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.md"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_one_stylesheet(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    assert styled(text) == text
    assert load(notebook).config.custom_css.strip() == STYLESHEET.read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_open_with_their_code_hidden(notebook: Path) -> None:
    assert [code.id for code in load(notebook).cells if not code.collapse_code] == []


def test_a_stylesheet_goes_where_the_one_before_was() -> None:
    before = (
        "---\ntitle: a\ncustom_css: |\n  .old { color: red; }\n\n  p { }\ntheme: dark\n---\n\ncustom_css: |\n  prose\n"
    )
    after = styled(before)
    assert ".old" not in after
    assert after.endswith("theme: dark\n---\n\ncustom_css: |\n  prose\n")
    assert styled(after) == after


def test_a_page_has_no_script_but_its_own_and_asks_nobody(built: Machine) -> None:
    assert built.build().problems == ()
    scripts = re.findall("<script.*?</script>", built.page, re.DOTALL)
    assert len(scripts) == 1
    assert not re.search(r"EventSource|fetch\(|XMLHttpRequest|import\(", scripts[0])
    assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"|@import|url\((?!["\']?(?:data:|#))', built.page) == []
    assert "onclick" not in built.page


def test_a_page_brings_its_icon(built: Machine) -> None:
    built.build()
    assert built.page.count('<link rel="icon" href="data:,">') == 1


def test_what_a_cell_gave_stands_above_its_code(built: Machine) -> None:
    its = built.html("first")
    assert its.index("measured torch_math: 1.0 ms") < its.index("<summary>") < its.index("import</span>")
    assert '<details class="cell-source" open>' in its  # of a cell that does not ask to hide it


def test_a_cell_that_hides_its_code_or_output_opens_by_one_click(machine: Machine) -> None:
    machine.notebook.write_text("```python id=a collapsed=true\nprint('x')\n```\n", encoding="utf-8")
    assert machine.build().problems == ()
    its = machine.html("a")
    assert '<details class="cell-source">' in its
    assert "<details><summary>output of a</summary>" in its


def test_under_a_cell_stands_when_it_ran_and_on_what(built: Machine) -> None:
    [summary] = re.findall("<summary>(.*?)</summary>", built.html("first"))
    said = re.sub("<[^>]*>", "", summary)
    assert "measured 2026-01-31T12:00:00Z".replace("T", " ") in said
    assert said.endswith("NVIDIA Made Up, driver 580.65.06, torch 2.9.0")
    [summary] = re.findall("<summary>(.*?)</summary>", built.html("figure"))
    assert f"ran {built.good('figure').ran_at[:10]}" in summary


def test_a_stale_cell_looks_it(built: Machine) -> None:
    built.driver("580.159.04")
    built.build("second")
    assert '<div class="cell cell-stale" id="cell-first">' in built.page
    assert '<p class="note">[Not as this machine is now: driver 580.65.06 -&gt; 580.159.04.' in built.html("first")
    assert "cell-stale" not in built.html("second").split(">")[0]


def test_headings_make_the_contents_and_can_be_linked_to(machine: Machine) -> None:
    machine.notebook.write_text(
        "# Title\n\n## One & `two`\n\n```python id=a\nprint('## no heading')\n```\n\n### One & two\n\n## Last\n",
        encoding="utf-8",
    )
    assert machine.build().problems == ()
    links = re.findall(r'<li class="h(\d)"><a href="#([^"]*)">(.*?)</a>', machine.page)
    assert links == [("2", "one-two", "One &amp; two"), ("3", "one-two--2", "One &amp; two"), ("2", "last", "Last")]
    assert re.findall(r'<h[23] id="([^"]*)"', machine.page) == [place for _, place, _ in links]


@pytest.mark.parametrize("theme", ["dark", "light", "auto"])
def test_a_page_is_in_the_theme_of_its_notebook(machine: Machine, theme: str) -> None:
    machine.notebook.write_text(f"---\ntheme: {theme}\n---\n```python id=a\nprint(1)\n```\n", encoding="utf-8")
    assert machine.build().problems == ()
    assert f'<html lang="en" data-theme="{theme}" data-ui="default">' in machine.page


def test_the_page_is_well_formed_in_its_cells_and_ends_as_it_should(built: Machine) -> None:
    page = built.page
    for tag in ("main", "div", "details", "table", "footer"):
        assert len(re.findall(rf"<{tag}\b", page)) == page.count(f"</{tag}>"), tag
    assert re.search(r"</main>\s*<footer>.*</footer>\s*</body>\s*</html>\s*$", page, re.DOTALL)
