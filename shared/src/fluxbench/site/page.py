"""What both pages share: the shell with its policy, styles and theme, and how text and data go into it.

Nothing of a record is ever markup: text is escaped, data is JSON in which no tag can end, and the policy names the
hashes of the scripts that may run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"
_SHARED = Path(__file__).parents[1] / "assets"  # with the notebooks' pages: colours, type, tables, and the theme
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SHELL = """<!doctype html>
<html lang="en" data-theme="dark">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<meta name="description" content="{description}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
<script>{theme}</script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<nav aria-label="Site">{links}</nav>
<button type="button" id="theme" hidden>light theme</button>
</header>
<main id="main">
{body}
</main>
{scripts}</body>
</html>
"""
_LINKS = (("index.html", "fluxbench"), ("compare.html", "Compare"))


def asset(name: str) -> str:
    """Return a file of `assets/`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def text(value: object) -> str:
    """Return a value as text of a page, in attributes too."""
    return html.escape(str(value).encode(errors="replace").decode(), quote=True)


def link(path: str, words: str) -> str:
    """Return a link to a file below `reports/`."""
    return f'<a href="{text(urllib.parse.quote(path.encode(errors="surrogateescape")))}">{text(words)}</a>'


def data(value: Any) -> str:
    """Return a value as JSON that can stand in a script element."""
    found = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign, escaped in _UNSAFE.items():
        found = found.replace(sign, escaped)
    return found.encode(errors="replace").decode()


def page(name: str, title: str, description: str, body: str, *, scripts: Iterable[str] = (), embedded: str = "") -> str:
    """Return a whole page; `scripts` run behind the body, `embedded` is JSON from `data` that they find as `#data`."""
    theme, own = (_SHARED / "theme.js").read_text(encoding="utf-8"), tuple(scripts)
    allowed = " ".join(f"'sha256-{_sha256(script)}'" for script in (theme, *own))
    links = "".join(f'<a href="{to}"{" aria-current=page" if to == name else ""}>{words}</a>' for to, words in _LINKS)
    holder = f'<script type="application/json" id="data">{embedded}</script>\n' if embedded else ""
    return _SHELL.format(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {allowed}",
        description=text(description),
        title=text(title),
        style=(_SHARED / "pages.css").read_text(encoding="utf-8") + asset("site.css"),
        theme=theme,
        links=links,
        body=body,
        scripts=holder + "".join(f"<script>{script}</script>\n" for script in own),
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
