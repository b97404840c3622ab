"""Writes a notebook's page with what lies beside it: artifacts and the cells' scripts."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup
from pygments.formatters.html import HtmlFormatter
from uvnote.executor import create_cell_script

from fluxbench.core.files import write_bytes, write_text
from fluxbench.notebook import execution
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness
from fluxbench.notebook.page import cells, prose, templates
from fluxbench.notebook.page.cells import Links
from fluxbench.notebook.schedule import Failure

_BESIDE = Links(
    artifact=lambda cell_id, name: f"artifacts/{cell_id}/{name}", script=lambda cell_id: f"cells/{cell_id}.py"
)


def draw(document: Document, freshness: Mapping[str, Freshness], failures: Mapping[str, Failure], output: Path) -> Path:
    """Draw `<output>/<notebook>.html` with its artifacts and cell scripts, and return its path.

    `failures` holds the run that failed, or why there was none, of each cell that was to run and did not succeed.
    Raises `OSError`; the page that was there before stays.
    """
    (output / "cells").mkdir(parents=True, exist_ok=True)
    for code in document.cells:
        with execution.in_utf8():  # written anew: another notebook of the folder may have a cell of the same name
            shutil.copy2(create_cell_script(code, document.path.parent), output / "cells")
        if result := freshness[code.id].result:
            for name in result.run.artifacts:
                copy = output / "artifacts" / code.id / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(copy, (result.folder / name).read_bytes())
    page = output / f"{document.path.stem}.html"
    write_text(page, render(document, freshness, failures, _BESIDE))
    return page


def render(
    document: Document,
    freshness: Mapping[str, Freshness],
    failures: Mapping[str, Failure],
    links: Links,
    site: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page. `site` are the addresses and names of other pages to link to above the title."""
    config = document.config
    drawn = {
        code.id: cells.draw(
            code,
            freshness[code.id],
            failures.get(code.id),
            links,
            is_measuring=document.is_measuring(code),
            linenos=bool(config.show_line_numbers),
        )
        for code in document.cells
    }
    return templates.filled(
        "page.html",
        title=config.title or document.path.stem,
        theme=config.theme,
        style=Markup(_style(document)),
        script=Markup(templates.script()),
        site=site,
        prose=prose.draw(document, drawn),
        system=f"{platform.system()} {platform.machine()}, {platform.platform()}",
    )


def _style(document: Document) -> str:
    """Return the package's stylesheet, the colours of code in both themes, and the notebook's own rules."""
    config = document.config
    size = config.code_font_size
    return "\n".join((
        templates.style(),
        HtmlFormatter(style="default").get_style_defs('[data-theme="light"] .highlight'),
        HtmlFormatter(style=config.syntax_theme).get_style_defs('[data-theme="dark"] .highlight'),
        str(config.custom_css or ""),
        "" if size is None else f":root {{ --code-font-size: {size}{'' if isinstance(size, str) else 'px'}; }}",
    ))  # fmt: skip
