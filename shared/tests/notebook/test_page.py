"""A notebook's page: what is on it, in which order, and that no text becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from notebooks import NEWER, Machine

# Whatever uvnote knows: every attribute, cells commented out both ways, one without an id, both kinds of pictures.
GENERIC = """---
title: Any <notebook>
theme: light
syntax_theme: friendly
show_line_numbers: true
custom_css: |
  .cell > p { color: red; }
code_font_size: 13
---

# Any notebook

Prose with a [link](https://example.org), `code` and

| a | table |
|---|-------|
| 1 | 2     |

```python id=picture outputs=picture.svg,data.csv,missing.txt
from pathlib import Path
Path("picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><text>seen</text></svg>")
Path("data.csv").write_text("a,b")
Path("not-declared.txt").write_text("x")
print("a < b & c")
```

```python id=undeclared deps=numpy,<i>some-package==1.0 collapse-code=true
import sys, os
from pathlib import Path
Path("photo.png").write_bytes(b"\\x89PNG")
Path("no.svg").write_text("no picture")
os.mkdir("plots")
Path("plots/notes.txt").write_text("x")
Path(".hidden").write_text("x")
print("Resolved 3 packages", "Installed 3 packages in 5ms", "a <warning>", sep="\\n", file=sys.stderr)
```

```python
print("no id")
```

```python id=late depends=early collapsed=true
import os
from pathlib import Path
print(os.environ["UVNOTE_INPUTS"], Path(os.environ["UVNOTE_INPUT_EARLY"], "early.txt").read_text())
```

```python id=early needs=picture
from pathlib import Path
Path("early.txt").write_text("of early")
```

<!-- ```python id=gone -->
print("never")
<!-- ``` -->

# ```python id=away
print("never")
# ```

```python id=after needs=away
print("runs")
```

```text
A listing that is no cell.
```
"""


_VOID = {"meta", "link", "img", "br", "hr", "input"}  # elements without an end


class Balanced(HTMLParser):
    """Counts the elements that are open; one that is closed where another is open fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def is_balanced(page: str) -> bool:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    return parser.open == []


def test_any_notebook_is_on_its_page_with_all_that_its_cells_gave(machine: Machine) -> None:
    machine.notebook.write_text(GENERIC, encoding="utf-8")
    assert machine.build().problems == ()
    page, order = machine.page, re.findall(r'id="cell-([\w-]+)"', machine.page)
    assert order[:2] + order[3:] == ["picture", "undeclared", "late", "early", "after"]
    assert "<title>Any &lt;notebook&gt;</title>" in page
    assert "<p>Prose with a" in page
    assert "<td>2</td>" in page
    assert ".cell > p { color: red; }" in page
    assert ":root { --code-font-size: 13px; }" in page
    assert '<html lang="en" data-theme="light">' in page
    assert "A listing that is no cell." in page
    assert "never" not in page
    assert machine.shown("picture") == "a < b & c seen files: picture.svg data.csv"
    assert machine.shown(order[2]) == "no id"
    assert machine.shown("after") == "runs"
    assert machine.shown("late") == "output of late UVNOTE_INPUT_EARLY of early"
    undeclared = machine.html("undeclared")
    assert machine.shown("undeclared") == (
        "uv install logs Resolved 3 packages Installed 3 packages in 5ms a <warning> "
        "files: no.svg photo.png plots/notes.txt"
    )
    assert '<img src="artifacts/undeclared/photo.png" alt="photo.png">' in undeclared
    assert '<img src="artifacts/undeclared/no.svg"' in undeclared
    assert "deps: numpy, &lt;i&gt;some-package==1.0" in undeclared
    assert '<details class="source">' in undeclared
    assert '<details class="source" open>' in machine.html("picture")
    assert is_balanced(page)
    files = (path for path in machine.output.rglob("*") if path.is_file() and path.parent.name != "cells")
    assert {path.relative_to(machine.output).as_posix() for path in files} == {
        *("made_up.html", "artifacts/picture/picture.svg", "artifacts/picture/data.csv", "artifacts/early/early.txt"),
        *("artifacts/undeclared/photo.png", "artifacts/undeclared/no.svg", "artifacts/undeclared/plots/notes.txt"),
    }


def test_a_page_has_no_script_but_its_own_and_loads_nothing(built: Machine) -> None:
    built.build()
    scripts = re.findall("<script.*?</script>", built.page, re.DOTALL)
    assert len(scripts) == 1
    assert not re.search(r"EventSource|fetch\(|XMLHttpRequest|import\(", scripts[0])
    assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"|@import|url\((?!["\']?(?:data:|#))', built.page) == []
    assert " onclick" not in built.page
    assert built.page.count('<link rel="icon" href="data:,">') == 1
    assert is_balanced(built.page)


def test_under_a_cell_stands_when_it_ran_and_on_what(built: Machine) -> None:
    [summary] = re.findall("<summary>(.*?)</summary>", built.html("first"))
    text = re.sub("<[^>]*>", "", summary)
    assert re.fullmatch(
        r"Cell: first \| \d+\.\d\ds \| measured 2026-01-31 12:00:00 UTC, NVIDIA Made Up, driver 580\.65\.06, "
        r"torch 2\.9\.0",
        text,
    )
    [summary] = re.findall("<summary>(.*?)</summary>", built.html("figure"))
    assert re.search(rf"ran {built.good('figure').run.ran_at[:10]} .* UTC, NVIDIA Made Up, driver 580.65.06$", summary)
    assert 'href="cells/first.py"' in built.html("first")
    assert "bench.measure()" in (built.output / "cells" / "first.py").read_text(encoding="utf-8")


def test_a_stale_cell_says_so_above_what_it_shows(built: Machine) -> None:
    built.has(driver=NEWER)
    built.build("second")
    part = built.html("first")
    assert part.startswith('<div class="cell stale" id="cell-first">')
    note = "Not as this machine is now: driver 580.65.06 -&gt; 580.159.04."
    assert part.index(f'<p class="note">{note}') < part.index("measured torch_math")
    assert built.html("second").startswith('<div class="cell" id="cell-second">')


def test_headings_make_the_contents_and_can_be_linked_to(machine: Machine) -> None:
    machine.notebook.write_text(
        "# Title\n\n## One & `two`\n\n```python id=a\nprint('## no heading')\n```\n\n### One & two\n\n## Last\n\n"
        "#### Not one\n",
        encoding="utf-8",
    )
    machine.build()
    links = re.findall(r'<li class="h(\d)"><a href="#([^"]*)">(.*?)</a>', machine.page)
    assert [(level, words) for level, _, words in links] == [
        ("2", "One &amp; two"), ("3", "One &amp; two"), ("2", "Last"),
    ]  # fmt: skip
    assert re.findall(r'<h[23] id="([^"]*)"', machine.page) == [place for _, place, _ in links]
    assert len({place for _, place, _ in links}) == 3
    assert machine.page.index("</h1>") < machine.page.index('<details class="contents">') < machine.page.index("<h2")
