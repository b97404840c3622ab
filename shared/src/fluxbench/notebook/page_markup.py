"""uvnote's page -> fluxbench's: its cells, styles and words in an order to read.

uvnote's script asks its own server for changes, which a published page has none of, and its controls take no keys; a
small script stands in its place. A cell shows what it gave first and its code below, text becomes tables, and headings
make a table of contents.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.notebook.page_text import drawn

_ASSETS = Path(__file__).parent.parent / "assets"
_SCRIPTS = re.compile(r"<script>.*?</script>\s*", re.DOTALL)
_THEME = re.compile(r"const configTheme = '(\w+)'")
_UI = re.compile(r"configUi = hasConfigUi \? '(\w+)'")
_CONTROLS = re.compile(r'<div class="controls">.*?(?=<div class="system-info">)', re.DOTALL)
_CELL = re.compile(r'<div class="(?P<kind>cell[^"]*)" id="cell-(?P<id>[\w-]+)">')
_BAR = (
    '<header class="bar"><a class="skip" href="#main">To the text</a>'
    '<button type="button" id="theme" hidden>light theme</button></header>\n'
)
_HEADING = re.compile(r"<h(?P<level>[23])>(?P<text>.*?)</h\1>", re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """What a page says of a cell beside what uvnote says: whether its result is stale, and where it comes from."""

    stale: bool = False
    origin: str = ""  # when, on what and with which driver


def refined(page: str, cells: Mapping[str, Shown]) -> str:
    """Return uvnote's page in fluxbench's order, in the theme that its script names."""
    theme, ui = _THEME.search(page), _UI.search(page)
    head, closing, body = page.partition("</head>")
    page = _SCRIPTS.sub("", head) + closing + _CONTROLS.sub("", body, count=1)
    parts, prose_from = [], 0
    headings: list[tuple[int, str, str]] = []
    for found in _CELL.finditer(page):
        if found.start() < prose_from:
            continue
        end = _end(page, found.start())
        parts.append(_headed(page[prose_from : found.start()], headings))
        parts.append(_cell(page[found.end() : end], found["id"], found["kind"], cells.get(found["id"], Shown())))
        prose_from = end
    parts.append(_headed(page[prose_from:], headings))
    page = "".join(parts)
    info = re.search(r'<div class="system-info">.*?</div>\s*</div>\s*', page, re.DOTALL)
    page = page.replace(info[0], "") if info else page  # where it was drawn; on what it was measured comes first
    footer = f"<footer>{info[0]}</footer>\n" if info else ""
    page = page.replace("<head>", '<head>\n<link rel="icon" href="data:,">', 1)  # a server is not asked for one
    page = page.replace('<div class="main-content">', f'{_BAR}<main class="main-content" id="main">', 1)
    page = re.sub(r"</div>\s*</body>", lambda _: f"</main>\n{footer}</body>", page)
    page = re.sub(r"<h1>.*?</h1>", lambda found: found[0] + _contents(headings), page, count=1, flags=re.DOTALL)
    style = (_ASSETS / "pages.css").read_text(encoding="utf-8")
    if style.split("\n")[0] not in page:  # a notebook that does not bring it; its own rules come later and win
        page = page.replace("<head>", f"<head>\n<style>\n{style}</style>", 1)
    scripts = "".join((_ASSETS / name).read_text(encoding="utf-8") for name in ("theme.js", "pages.js"))
    script = f"<script>\n{scripts}</script>\n"
    its_theme, its_ui = theme[1] if theme else "dark", ui[1] if ui and ui[1] != "None" else "default"
    opening = f'<html lang="en" data-theme="{its_theme}" data-ui="{its_ui}">'
    return page.replace('<html lang="en">', opening, 1).replace("</head>", f"{script}</head>", 1)


def _end(page: str, start: int) -> int:
    """Return where the element that begins with this `<div` ends."""
    depth = 0
    for found in re.compile(r"<div\b|</div>").finditer(page, start):
        depth += 1 if found[0] == "<div" else -1
        if not depth:
            return found.end()
    return len(page)


def _cell(inside: str, cell_id: str, kind: str, shown: Shown) -> str:
    """Return a cell: its output, and below it one line that opens its code."""
    head, _, rest = inside.partition(f'<div id="code-{cell_id}"')
    code_end = _end(f"<div{rest}", 0) - len("<div")
    code, output = rest[:code_end], rest[code_end:]
    said = re.search(r"</span> \| (.*?) \| <button", head, re.DOTALL)
    raw = re.search(r'<a href="([^"]*)"[^>]*class="raw-btn">', head)
    words = said[1].strip() if said else f"Cell: {cell_id}"
    words = words.replace(f"Cell: {cell_id}", f'Cell: <span class="id">{cell_id}</span>')
    parts = [words, *([html.escape(shown.origin)] if shown.origin else [])]
    is_open = "" if "collapsed" in code.split(">")[0] else " open"
    link = f'<a href="{raw[1]}" class="raw-btn">{cell_id}.py</a>' if raw else ""
    code = code.replace("cell-code collapsed", "cell-code", 1).replace("<pre>", '<pre tabindex="0">')
    return (
        f'<div class="{kind}{" cell-stale" if shown.stale else ""}" id="cell-{cell_id}">'
        f"{_output(output.rstrip().removesuffix('</div>'), cell_id)}"
        f'<details class="cell-source"{is_open}>\n<summary>{" | ".join(parts)}</summary>\n{link}\n'
        f'<div id="code-{cell_id}"{code}\n</details>\n</div>'
    )


def _output(output: str, cell_id: str) -> str:
    """Return what a cell gave, its text drawn, logs and collapsed output in a line that opens them."""
    output = re.sub(r'(<div class="cell-stdout)">(.*?)</div>', _text, output, count=1, flags=re.DOTALL)
    output = output.replace('<div class="cell-stderr">', '<div class="cell-stderr" tabindex="0">')
    output = re.sub(
        r'<div class="uv-install-logs"[^>]*>\n<div class="uv-logs-header"[^>]*>.*?</div>\n'
        r'<div class="uv-logs-content"[^>]*>(.*?)</div>\n</div>',
        r'<details class="uv-install-logs"><summary>uv install logs</summary>'
        r'<div class="uv-logs-content" tabindex="0">\1</div></details>',
        output,
        flags=re.DOTALL,
    )
    output = re.sub(
        r"<h4>Artifacts:</h4>\n((?:<a [^\n]*</a>\n)+)(.*)(?=</div>\s*</div>\s*$)",
        lambda found: f'{found[2]}<p class="files">files: {found[1]}</p>\n',
        output,
        flags=re.DOTALL,
    )
    output = re.sub(r'(class="artifact") target="_blank"', r"\1", output)
    output = output.replace('<div class="artifact-preview">', '<div class="artifact-preview" tabindex="0">')
    if 'class="cell-output collapsed"' in output:
        output = output.replace('class="cell-output collapsed"', 'class="cell-output"', 1)
        return f"<details><summary>output of {cell_id}</summary>\n{output}\n</details>\n"
    return output


def _text(found: re.Match[str]) -> str:
    text = html.unescape(found[2])
    note = re.match(r"\[(.*?)\]\n\n", text, re.DOTALL)
    above = ""
    if note:
        above = f'<p class="note">[{html.escape(" ".join(note[1].split()))}]</p>\n'
        text = text[note.end() :]
    return f'{found[1]} drawn">{above}{drawn(text)}</div>'


def _headed(prose: str, headings: list[tuple[int, str, str]]) -> str:
    """Return prose whose headings can be linked to, and note these."""

    def name(found: re.Match[str]) -> str:
        plain = re.sub(r"<[^>]*>", "", found["text"])
        slug = re.sub(r"\W+", "-", html.unescape(plain).lower()).strip("-") or "section"
        taken = sum(place.split("--")[0] == slug for _, place, _ in headings)
        place = f"{slug}--{taken + 1}" if taken else slug
        headings.append((int(found["level"]), place, plain))
        return f'<h{found["level"]} id="{place}">{found["text"]}</h{found["level"]}>'

    return _HEADING.sub(name, prose.replace("<pre>", '<pre tabindex="0">'))


def _contents(headings: list[tuple[int, str, str]]) -> str:
    if len(headings) < 2:
        return ""
    items = "\n".join(f'<li class="h{level}"><a href="#{place}">{text}</a></li>' for level, place, text in headings)
    return (
        '\n<details class="contents"><summary>Contents</summary>\n'
        f'<nav aria-label="Contents"><ul>\n{items}\n</ul></nav></details>'
    )
