"""What a cell shows, as values: a table, a paragraph, facts, bullets. Each prints itself and draws itself as HTML.

Of their texts only `code` between backticks is markup, in prose. HTML is escaped here, and nowhere is a text parsed
back.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_WIDTH = 110  # characters of a line of prose in a terminal
_RULE = 44  # characters of the rule below the last column, at most
_NOTES = "How to read this table"
_WIDE = 44  # characters of a cell from which on its lines are broken in a page


class Block(Protocol):
    """Something that a cell shows."""

    def text(self) -> str:
        """Return it for a terminal."""

    def html(self) -> str:
        """Return it as markup."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of prose. `kind` is its class in a page: "lead" for an answer, "note" for a warning."""

    words: str
    kind: str = ""

    def text(self) -> str:
        """Return wrapped lines."""
        return textwrap.fill(self.words, _WIDTH, break_long_words=False, break_on_hyphens=False)

    def html(self) -> str:
        """Return a `<p>`."""
        kind = f' class="{html.escape(self.kind)}"' if self.kind else ""
        return f"<p{kind}>{_prose(self.words)}</p>"


@dataclass(frozen=True)
class Verbatim:
    """Lines as they are, such as another program's output."""

    words: str

    def text(self) -> str:
        """Return the lines."""
        return self.words

    def html(self) -> str:
        """Return a `<pre>`."""
        return f'<pre tabindex="0">{html.escape(self.words)}</pre>'


@dataclass(frozen=True)
class Chart:
    """A small chart within the text, with its caption; a terminal prints its numbers."""

    svg: str  # of `report.figures.svg.render`: markup
    words: str  # the numbers, a line each
    caption: str

    def text(self) -> str:
        """Return the caption and the numbers."""
        return f"{Paragraph(self.caption).text()}\n{textwrap.indent(self.words, '  ')}"

    def html(self) -> str:
        """Return a `<figure>`."""
        return f'<figure class="chart">{self.svg}<figcaption>{_prose(self.caption)}</figcaption></figure>'


@dataclass(frozen=True)
class Code:
    """Lines to copy, below what they are: "PyTorch: FlashAttention-3"."""

    lines: str
    label: str

    def text(self) -> str:
        """Return the label and indented lines."""
        return f"{self.label}:\n{textwrap.indent(self.lines, '    ')}"

    def html(self) -> str:
        """Return a `<pre>` below a button, which `assets/copy.js` shows and answers."""
        label = html.escape(self.label)
        return "\n".join([
            f'<div class="lines" role="group" aria-label="{label}">',
            f'<div class="head"><span>{label}</span>',
            '<span role="status"></span>',
            f'<button type="button" class="copy" hidden aria-label="Copy {label}">Copy</button></div>',
            f'<pre tabindex="0"><code>{html.escape(self.lines)}</code></pre>',
            "</div>",
        ])  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    rows: Sequence[tuple[str, str]]

    def text(self) -> str:
        """Return aligned rows."""
        width = max((len(name) for name, _ in self.rows), default=0) + 2
        return "\n".join(
            textwrap.fill(
                value, _WIDTH, initial_indent=f"{name:<{width}}", subsequent_indent=" " * width, break_long_words=False
            )
            for name, value in self.rows
        )

    def html(self) -> str:
        """Return a `<dl>`."""
        rows = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in self.rows)
        return "\n".join(["<dl>", *rows, "</dl>"])


@dataclass(frozen=True)
class Bullets:
    """A list, titled where the title is not empty; each item may name what it is said of."""

    title: str
    items: Sequence[tuple[str, str]]  # what, and of which variants; the second may be empty
    links: Sequence[tuple[str, str]] = ()  # none, or for each item the id of what a page shows of it, and its words

    def text(self) -> str:
        """Return indented lines, without links."""
        lines = [self.title] if self.title else []
        for what, of in self.items:
            lines += textwrap.wrap(what, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
            lines += textwrap.wrap(
                of, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_long_words=False
            )
        return "\n".join(lines)

    def html(self) -> str:
        """Return a `<p>` and a `<ul>`."""
        items = []
        links = [f' <a href="#{html.escape(to)}">{html.escape(words)}</a>' for to, words in self.links]
        for (what, of), link in zip(self.items, links or [""] * len(self.items), strict=True):
            whom = f' <span class="of">{html.escape(of)}</span>' if of else ""
            items.append(f"<li>{_prose(what)}{link}{whom}</li>")
        title = [f"<p>{_prose(self.title)}</p>"] if self.title else []
        return "\n".join([*title, "<ul>", *items, "</ul>"])


@dataclass(frozen=True)
class Column:
    """A column of a table. Its heading may have several lines."""

    head: str
    left: bool = False  # aligned; numbers stand to the right


@dataclass(frozen=True)
class Name:
    """A cell that names a variant: for people in a page, with the id beside it; the id alone in a terminal."""

    label: str
    id: str
    symbols: str = ""  # behind both

    def text(self) -> str:
        """Return the id."""
        return f"{self.id} {self.symbols}".rstrip()

    def html(self) -> str:
        """Return both; the id alone where it is the label."""
        code = f'<code class="id">{html.escape(self.id)}</code> {html.escape(self.symbols)}'.rstrip()
        return code if self.label == self.id else f'<span class="who">{html.escape(self.label)}</span> {code}'


@dataclass(frozen=True)
class Row:
    """One row; `failed` rows stand out in a page."""

    cells: tuple[str | Name, ...]
    failed: bool = False

    def texts(self) -> tuple[str, ...]:
        """Return the cells for a terminal."""
        return tuple(cell.text() if isinstance(cell, Name) else cell for cell in self.cells)


@dataclass(frozen=True)
class Heading:
    """A row that stands across all columns, above those that belong to it; `note` for words in the midst of a table."""

    words: str
    note: bool = False


@dataclass(frozen=True)
class Table:
    """Columns, rows, and what must be known to read them."""

    columns: Sequence[Column]
    rows: Sequence[Row | Heading]
    caption: str = ""
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Return aligned columns below a caption, with the notes below them."""
        heads = [column.head.split("\n") for column in self.columns]
        height = max(map(len, heads))
        head = [tuple(line) for line in zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True)]
        cells = [*head, *(row.texts() for row in self.rows if isinstance(row, Row))]
        widths = [max(len(row[index]) for row in cells) for index in range(len(self.columns))]

        def line(row: Sequence[str]) -> str:
            aligned = (
                text.ljust(width) if column.left else text.rjust(width)
                for column, text, width in zip(self.columns, row, widths, strict=True)
            )
            return "  ".join(aligned).rstrip()

        rule = "  ".join("─" * width for width in [*widths[:-1], min(widths[-1], _RULE)])
        body = [row.words if isinstance(row, Heading) else line(row.texts()) for row in self.rows]
        above = [Paragraph(self.caption).text()] if self.caption else []
        grid = "\n".join([*above, *map(line, head), rule, *body])
        return "\n\n".join([grid, *(Paragraph(note).text() for note in self.notes)])

    def html(self) -> str:
        """Return a `<table>` that scrolls inside itself, below it the first note, and a fold with the others."""
        right = " ".join(f"n{number}" for number, column in enumerate(self.columns, start=1) if not column.left)
        label = html.escape(self.caption or self.columns[0].head.replace("\n", " ") or "table")
        parts = [
            f'<div class="table" role="region" tabindex="0" aria-label="{label}">',
            f'<table class="{right}">' if right else "<table>",  # a word for the table and not for each of its cells
            f"<caption><span>{html.escape(self.caption)}</span></caption>" if self.caption else "",
            "<thead><tr>",
            *(f'<th scope="col">{html.escape(column.head)}</th>' for column in self.columns),
            "</tr></thead>",
            "<tbody>",
            *(_heading(row, len(self.columns)) if isinstance(row, Heading) else _row(row) for row in self.rows),
            "</tbody>",
            "</table>",
            "</div>",
            *(Paragraph(note).html() for note in self.notes[:1]),
            Fold(_NOTES, [Paragraph(note) for note in self.notes[1:]]).html() if len(self.notes) > 1 else "",
        ]
        return "\n".join(filter(None, parts))


@dataclass(frozen=True)
class Fold:
    """Blocks that a page shows once their title is opened; a terminal prints them below it."""

    title: str
    blocks: Sequence[Block]

    def text(self) -> str:
        """Return the title and the blocks' texts, an empty line between them."""
        return "\n\n".join([self.title, *(block.text() for block in self.blocks)])

    def html(self) -> str:
        """Return a `<details>`, closed."""
        parts = [f"<summary>{html.escape(self.title)}</summary>", *(block.html() for block in self.blocks)]
        return "\n".join(['<details class="fold">', *parts, "</details>"])


def _prose(words: str) -> str:
    """Return words as HTML, what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))


def _heading(row: Heading, columns: int) -> str:
    kind = "across word" if row.note else "across"
    return f'<tr><th scope="rowgroup" class="{kind}" colspan="{columns}">{html.escape(row.words.strip())}</th></tr>'


def _row(row: Row) -> str:
    cells = []
    for index, cell in enumerate(row.cells):
        wide = ' class="wide"' if isinstance(cell, str) and len(cell) > _WIDE else ""
        tag, scope = ("td", "") if index else ("th", ' scope="row"')
        content = cell.html() if isinstance(cell, Name) else html.escape(cell.strip())
        cells.append(f"<{tag}{scope}{wide}>{content}</{tag}>")
    opening = '<tr class="failed">' if row.failed else "<tr>"
    return f"{opening}{''.join(cells)}</tr>"
