"""A notebook's page: what is on it, in which order, and that no text becomes markup."""

from __future__ import annotations

import re
import time

import pytest
from browser import Browser, served
from notebooks import Machine

from fluxbench.report.blocks import Code, Fold

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
# Whatever uvnote knows: every attribute, cells commented out both ways, one without an id, both kinds of pictures.
GENERIC = """---
title: Any <notebook>
theme: light
---

# Any notebook

Prose with a [link](https://example.org).

```python id=picture outputs=picture.svg,data.csv
from pathlib import Path
Path("picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><text>seen</text></svg>")
Path("data.csv").write_text("a,b")
print("a < b & c")
```

```python id=undeclared deps=numpy,<i>some-package==1.0 collapse-code=true
import sys, os
from pathlib import Path
Path("photo.png").write_bytes(b"\\x89PNG")
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


def test_any_notebook_is_on_its_page_with_all_that_its_cells_gave(machine: Machine) -> None:
    machine.notebook.write_text(GENERIC, encoding="utf-8")
    assert machine.build().problems == ()
    page, order = machine.page, re.findall(r'id="cell-([\w-]+)"', machine.page)
    assert order[:2] + order[3:] == ["picture", "undeclared", "late", "early", "after"]
    assert "<title>Any &lt;notebook&gt;</title>" in page
    assert "<p>Prose with a" in page
    assert "A listing that is no cell." in page
    assert "never" not in page
    assert machine.shown("picture") == "a < b & c seen"
    assert machine.shown(order[2]) == "no id"
    assert machine.shown("after") == "runs"
    assert machine.shown("late") == "output of late UVNOTE_INPUT_EARLY of early"
    undeclared = machine.html("undeclared")
    assert machine.shown("undeclared") == (
        "uv install logs Resolved 3 packages Installed 3 packages in 5ms a <warning>"
    )
    assert '<img src="made_up/artifacts/undeclared/photo.png" alt="photo.png">' in undeclared
    assert "deps: numpy, &lt;i&gt;some-package==1.0" in undeclared
    assert '<details class="source">' in undeclared
    assert '<details class="source" open>' in machine.html("picture")
    files = (path for path in machine.output.rglob("*") if path.is_file() and path.parent.name != "cells")
    assert {path.relative_to(machine.output).as_posix() for path in files} == {
        "made_up.html",
        *(f"made_up/artifacts/{name}" for name in ("picture/picture.svg", "picture/data.csv", "early/early.txt")),
        *(f"made_up/artifacts/undeclared/{name}" for name in ("photo.png", "plots/notes.txt")),
    }


def test_a_picture_that_the_display_holds_with_a_caption_is_not_shown_again(machine: Machine) -> None:
    machine.write(
        """id=drawn outputs=a.svg,b.svg: # /// script
# dependencies = ["fluxbench"]
# ///
import os
from pathlib import Path
for name in "ab":
    Path(f"{name}.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'><text>{name}</text></svg>")
held = '<figure data-file="a.svg"><svg></svg><figcaption>a, with a caption</figcaption></figure>'
Path(os.environ["FLUXBENCH_DISPLAY"]).write_text(held)
"""
    )
    machine.build()
    assert machine.shown("drawn") == "a, with a caption b"


def test_under_a_cell_stands_when_it_ran_and_on_what(built: Machine) -> None:
    [summary] = re.findall("<summary>(.*?)</summary>", built.html("first"))
    text = re.sub("<[^>]*>", "", summary)
    assert re.fullmatch(
        r"Code and data: first \| \d+\.\d\ds \| measured 2026-01-31 12:00:00 UTC, NVIDIA Made Up, driver 580\.65\.06, "
        r"torch 2\.9\.0",
        text,
    )
    assert 'href="made_up/cells/first.py"' in built.html("first")
    assert "bench.measure()" in (built.output / "made_up" / "cells" / "first.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("theme", "width"), [("dark", 1400), ("light", 400)])
def test_everybody_can_read_a_page_of_its_own(machine: Machine, browser: Browser, theme: str, width: int) -> None:
    machine.write(f"id=a: print('{MARKUP}')", f"id=b: raise ValueError('{MARKUP}')", "id=c needs=b")
    machine.build()
    with served(machine.output) as address:
        page = f"{address}/made_up.html"
        browser.open(page, width=width)
        browser.run("localStorage.setItem('uvnote-theme', arguments[0])", theme)
        browser.open(page, width=width)
        assert browser.complaints() == []
        assert set(browser.requests()) == {page}
        assert browser.run("return document.documentElement.scrollWidth") == width
        assert browser.run("return document.querySelectorAll('img, main script').length") == 0
        for cell in "ab":
            assert MARKUP in browser.run("return document.querySelector(arguments[0]).textContent", f"#cell-{cell}")
        browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
        assert browser.faults() == []


TAB, ENTER = "\ue004", "\ue007"
LINES = 'with sdpa_kernel("<&>"):\n    out = attend(q, k, v)'


@pytest.fixture
def with_lines(machine: Machine) -> str:
    """The address of a page, as a file, with lines to copy, of which the second ones are folded."""
    blocks = (Code(LINES, "PyTorch: cuDNN"), Fold("More", (Code("pip install torch", "Install: cuDNN"),)))
    html = "".join(block.html() for block in blocks)
    shows = f"import os\nopen(os.environ['FLUXBENCH_DISPLAY'], 'w').write({html!r})"
    machine.write(f'id=a: # /// script\n# dependencies = ["fluxbench"]\n# ///\n{shows}')
    assert machine.build().problems == ()
    return (machine.output / "made_up.html").as_uri()


@pytest.mark.parametrize("clipboard", [True, False])
def test_lines_are_copied_by_a_button_with_the_keyboard_alone(
    with_lines: str, browser: Browser, clipboard: bool
) -> None:
    browser.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    browser.open(with_lines)
    if not clipboard:
        browser.run("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    tabs = 0
    while browser.run("return document.activeElement.className") != "copy" and tabs < 20:
        browser.press(TAB)
        tabs += 1
    assert browser.run("return document.activeElement.ariaLabel") == "Copy PyTorch: cuDNN"
    browser.press(ENTER)
    said = "return document.querySelector('.lines [role=status]').textContent"
    deadline = time.monotonic() + 10
    while not browser.run(said) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert browser.run(said) == "Copied"
    if clipboard:
        read = "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(String(error)))"
        assert browser.driver.execute_async_script(read) == LINES
    else:
        assert browser.run("return getSelection().toString()") == LINES
    assert browser.complaints() == []
    assert browser.requests() == [with_lines]


@pytest.mark.parametrize(("theme", "width"), [("dark", 400), ("light", 400), ("dark", 1400)])
def test_lines_to_copy_are_for_everybody(with_lines: str, browser: Browser, theme: str, width: int) -> None:
    browser.open(with_lines, width=width)
    browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.run("return document.documentElement.scrollWidth") == width
    heights = browser.run("return [...document.querySelectorAll('.copy')].map(button => button.offsetHeight)")
    assert len(heights) == 2
    assert min(heights) >= 24  # CSS pixels, the least target of WCAG 2.2
    assert browser.faults() == []
