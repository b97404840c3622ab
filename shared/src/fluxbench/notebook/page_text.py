"""A cell's text -> markup: what a terminal shows in aligned columns becomes a table, a list or a paragraph.

Nothing of the text is markup itself. What has no shape that is known here stays as it is, in lines.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence

from fluxbench.records.schema import Status

_RULE = re.compile(r"─+(?:  ─+)*")
_PAIR = re.compile(r"(\S(?:.*?\S)?)(\s{2,})(?=\S)")
_WRAPPED = 96  # characters from which on a line that goes on below was broken for its length
_WIDE = 44  # characters of a cell from which on its lines are broken
_BAD = {*(status.value for status in Status if status is not Status.PASSED), "FAILS", "no record"}


def drawn(text: str) -> str:
    """Return a cell's text as markup."""
    parts: list[str] = []
    caption: str | None = None  # the paragraph before, where it may stand over a table
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        table = _table(lines, caption)
        if table:
            parts[-1:] = [table] if caption else [*parts[-1:], table]
        else:
            parts.append(_pairs(lines) or _list(lines) or _prose(lines) or _lines(paragraph))
        caption = " ".join(lines) if len(lines) <= 2 and parts[-1].startswith("<p>") else None
    return "\n".join(parts)


def _table(lines: Sequence[str], caption: str | None) -> str | None:
    """Return the table that lines with a rule among them are, None where they are none."""
    at = next((index for index, line in enumerate(lines) if _RULE.fullmatch(line)), None)
    if not at:
        return None
    starts = [found.start() for found in re.finditer("─+", lines[at])]
    spans = tuple(zip(starts, [*(start - 2 for start in starts[1:]), max(map(len, lines))], strict=True))
    head, body = lines[:at], lines[at + 1 :]
    if any(_crosses(line, spans) for line in head):
        return None
    plain = [line for line in (*head, *body) if not _crosses(line, spans)]
    right = [place for place, span in enumerate(spans, start=1) if _to_the_right(plain, *span)]
    heads = ["\n".join(filter(None, (line[low:high].strip() for line in head))) for low, high in spans]
    aligned = " ".join(f"n{place}" for place in right)  # a word for the table and not for each of its cells
    parts = [
        f'<div class="table" role="region" tabindex="0" aria-label="{html.escape(caption or heads[0] or "table")}">',
        f'<table class="{aligned}">' if aligned else "<table>",
        f"<caption><span>{html.escape(caption)}</span></caption>" if caption else "",
        "<thead><tr>",
        *(f'<th scope="col">{html.escape(each)}</th>' for each in heads),
        "</tr></thead>",
        "<tbody>",
        *(_across(row, len(spans)) if isinstance(row, str) else _row(row) for row in _rows(body, spans)),
        "</tbody>",
        "</table>",
        "</div>",
    ]
    return "\n".join(filter(None, parts))


def _crosses(line: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a line has letters between two columns."""
    return any(line[end : end + 2].strip() for _, end in spans[:-1])


def _to_the_right(lines: Sequence[str], low: int, high: int) -> bool:
    cells = [line[low:high].ljust(high - low) for line in lines if line[low:high].strip()]
    if any(not cell.startswith(" ") and cell.endswith(" ") for cell in cells):
        return False
    return any(cell.startswith(" ") for cell in cells) or bool(cells and cells[-1].strip()[0].isdigit() and low)


def _rows(body: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str | list[str]]:
    """Return rows of cells; what stands across all columns is a text, its lines joined."""
    found: list[str | list[str]] = []
    for line in body:
        cells = [line[low:high].rstrip() for low, high in spans]
        if not _crosses(line, spans) and any(cell.strip() for cell in cells[1:]):
            found.append(cells)
        elif found and isinstance(before := found[-1], str) and line.startswith("    "):
            found[-1] = f"{before} {line.strip()}"
        else:
            found.append(line)
    return found


def _across(text: str, columns: int) -> str:
    kind = "across word" if text.startswith(" ") else "across"
    return f'<tr><th scope="rowgroup" class="{kind}" colspan="{columns}">{html.escape(text.strip())}</th></tr>'


def _row(cells: Sequence[str]) -> str:
    bad = any(cell.strip().split(":")[0] in _BAD for cell in cells)
    parts = []
    for index, cell in enumerate(cells):
        told = ' class="wide"' if len(cell) > _WIDE else ""
        tag = "td" if index else "th"
        scope = "" if index else ' scope="row"'
        parts.append(f"<{tag}{scope}{told}>{html.escape(cell.strip())}</{tag}>")
    opening = '<tr class="failed">' if bad else "<tr>"
    return f"{opening}{''.join(parts)}</tr>"


def _pairs(lines: Sequence[str]) -> str | None:
    """Return the list of names and values that lines are whose values begin in one column."""
    first = _PAIR.match(lines[0])
    if not first or len(lines) == 1:
        return None
    column = first.end()
    pairs: list[tuple[str, str]] = []
    for line in lines:
        name, gap, value = line[: column - 2], line[column - 2 : column], line[column:]
        if gap.strip() or not value or value.startswith(" ") or (name.strip() and re.search(r"^ |\S {2,}\S", name)):
            return None
        if name.strip():
            pairs.append((name.strip(), value))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {value}")
    items = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in pairs)
    return "\n".join(["<dl>", *items, "</dl>"])


def _list(lines: Sequence[str]) -> str | None:
    """Return the list that indented lines are: by two each item, by four its further lines, by more whom it is of."""
    lead = [lines[0]] if not lines[0].startswith(" ") else []
    items: list[tuple[list[str], list[str]]] = []
    for line in lines[len(lead) :]:
        indent = len(line) - len(line.lstrip(" "))
        if indent == 2:
            items.append(([line.strip()], []))
        elif indent > 2 and items:
            items[-1][0 if indent == 4 else 1].append(line.strip())
        else:
            return None
    if not items:
        return None
    parts = [f"<p>{html.escape(line)}</p>" for line in lead] + ["<ul>"]
    for said, of in items:
        whom = f' <span class="of">{html.escape(" ".join(of))}</span>' if of else ""
        parts.append(f"<li>{html.escape(' '.join(said))}{whom}</li>")
    return "\n".join([*parts, "</ul>"])


def _prose(lines: Sequence[str]) -> str | None:
    """Return the paragraphs that lines without columns are; what follows a line that ends early is another."""
    if any(line.startswith((" ", "\t", "|", "+")) or re.search(r"\S {2,}\S|\t|[│║]", line) for line in lines):
        return None
    return "\n".join(f"<p>{html.escape(line)}</p>" for line in _joined(lines).split("\n"))


def _joined(lines: Sequence[str]) -> str:
    text = lines[0]
    for before, line in itertools.pairwise(lines):
        broken = len(before) + 1 + len(line.split(" ")[0]) >= _WRAPPED
        text += (" " if broken else "\n") + line
    return text


def _lines(paragraph: str) -> str:
    return f'<pre tabindex="0">{html.escape(paragraph)}</pre>'
