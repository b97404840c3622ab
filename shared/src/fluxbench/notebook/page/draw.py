"""Writes a notebook's page with what lies beside it: artifacts and the cells' scripts."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from pygments.formatters.html import HtmlFormatter

from fluxbench.core import files
from fluxbench.notebook import exclusive
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness
from fluxbench.notebook.page import cells, folder, prose, templates
from fluxbench.notebook.page.cells import Links
from fluxbench.notebook.snapshot import Failure, Pending


@dataclass(frozen=True)
class Banner:
    """What an unfinished page says at its top, and after how many seconds a browser loads it again."""

    text: str
    reload_s: int | None


def draw(
    document: Document,
    freshness: Mapping[str, Freshness],
    failures: Mapping[str, Failure | Pending],
    output: Path,
    *,
    site: Sequence[tuple[str, str]] = (),
    finish: Callable[[Path, Path], None] | None = None,
    banner: Banner | None = None,
) -> Path:
    """Draw `<output>/<notebook>.html` with the folder `<notebook>/` beside it, and return the page's path.

    Both are written aside, where `finish(final, new)` may take over what the new folder keeps of the old one, and then
    put in place. `failures`, `site` and `banner` are as of `render`. Raises `SetupError` as `exclusive.check_page`
    does, and `OSError`; what was there before stays.
    """
    name = document.path.stem
    final, new, old = output / name, output / f".{name}.new", output / f".{name}.old"
    page, new_page = output / f"{name}.html", output / f".{name}.html.new"
    files.restore_folder(final, old)
    exclusive.check_page(output, name, keeps_history=finish is not None)
    found = folder.places(document, freshness)
    try:
        for left in (new, new_page):  # by a killed build
            files.remove(left)
        folder.fill(new, document, freshness, found)
        if finish:
            finish(final, new)
        files.write_text(new_page, render(document, freshness, failures, folder.links(name, found), site, banner))
        files.replace_folder(new, final, old)
        new_page.replace(page)
        files.remove(old)
    finally:
        with contextlib.suppress(OSError):
            files.remove(new)
            files.remove(new_page)
    return page


def render(
    document: Document,
    freshness: Mapping[str, Freshness],
    failures: Mapping[str, Failure | Pending],
    links: Links,
    site: Sequence[tuple[str, str]] = (),
    banner: Banner | None = None,
) -> str:
    """Return the page.

    `failures` holds the run that failed, or why there was none, of each cell that was to run and did not succeed, and
    which cells are still to run; `site` the addresses and names of other pages to link to above the title; `banner`
    what an unfinished page says.
    """
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
        banner=banner,
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
