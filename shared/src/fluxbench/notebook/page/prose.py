"""A notebook's Markdown, with what is drawn of its cells in their places."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markdown import Markdown
from markdown.extensions.toc import slugify_unicode
from markupsafe import Markup
from uvnote.parser import parse_frontmatter

from fluxbench.notebook.document import Document
from fluxbench.notebook.page import templates

_SUBSECTION = re.compile(r"(<h3\b[^>]*>.*?</h3>)(.*?)(?=<h[1-3]\b|\Z)", re.DOTALL)
_NOTED = re.compile(r'<div class="cell (failed|stale|pending)')


@dataclass(frozen=True)
class Heading:
    """An entry of the contents."""

    level: int
    id: str
    words: str


def draw(document: Document, cells: Mapping[str, Markup]) -> Markup:
    """Return the prose with `cells` in the places of their code and the contents below the title.

    A notebook's own markup is kept. Cells that are commented out are left out. What stands below a heading of the third
    level folds open.
    """
    _, content = parse_frontmatter(document.text)
    lines = content.splitlines()
    for code in sorted((*document.cells, *document.commented), key=lambda code: code.line_start, reverse=True):
        # From the line of the opening fence to that of the closing one.
        lines[code.line_start - 1 : code.line_end + 1] = ["", "" if code.commented else _place(code.id), ""]
    converter: Any = Markdown(
        extensions=["extra", "codehilite", "toc"],
        extension_configs={"toc": {"toc_depth": "2-3", "slugify": slugify_unicode, "marker": ""}},
    )
    prose: str = converter.convert("\n".join(lines)).replace("<pre>", '<pre tabindex="0">')
    above, title, below = prose.partition("</h1>")
    contents = _contents(list(_headings(converter.toc_tokens)))
    prose = f"{above}{title}{contents}{below}" if title else f"{contents}{prose}"
    prose = _SUBSECTION.sub(lambda match: _folded(match, cells), prose)
    for cell_id, cell in cells.items():
        prose = prose.replace(_place(cell_id), cell, 1)
    return Markup(prose)


def _folded(match: re.Match[str], cells: Mapping[str, Markup]) -> str:
    """Return a part below a heading of the third level as a fold: closed unless one of its cells has a note."""
    heading, below = match.groups()
    noted = any(_place(cell_id) in below and _NOTED.match(str(cell).strip()) for cell_id, cell in cells.items())
    return f'<details class="part"{" open" if noted else ""}><summary>{heading}</summary>{below}</details>\n'


def _place(cell_id: str) -> str:
    return f'<div class="cell" id="place-of-{cell_id}"></div>'


def _headings(tokens: Iterable[Mapping[str, Any]]) -> Iterator[Heading]:
    """Yield the headings of a tree that Markdown's `toc` extension made."""
    for token in tokens:
        yield Heading(level=token["level"], id=token["id"], words=html.unescape(token["name"]))
        yield from _headings(token["children"])


def _contents(headings: list[Heading]) -> str:
    return f"\n{templates.filled('contents.html', headings=headings)}" if len(headings) > 1 else ""
