"""What both pages share: the shell with its policy, styles and theme, and how values go into it.

Nothing of a record is ever markup: templates escape, data is JSON in which no tag can end, and the policy names the
hashes of the scripts that may run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_ASSETS = Path(__file__).parent / "assets"
_SHARED = Path(__file__).parents[1] / "assets"  # with the notebooks' pages: colours, type, tables, and the theme
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_LINKS = (("index.html", "fluxbench"), ("compare.html", "Compare"))


def page(name: str, *, scripts: Iterable[str] = (), data: object = None, **values: object) -> str:
    """Return a whole page from the template of its name; values must have `title` and `about`.

    `scripts` are names in `assets/`; they run behind the body, and find `data` as JSON in the element `#data`. A text
    that is no Unicode costs its wrong characters alone.
    """
    theme, own = (_SHARED / "theme.js").read_text(encoding="utf-8"), [_asset(script) for script in scripts]
    drawn = _TEMPLATES.get_template(name).render(
        name=name,
        links=_LINKS,
        script_hashes=[_sha256(script) for script in (theme, *own)],
        style=Markup((_SHARED / "pages.css").read_text(encoding="utf-8") + _asset("site.css")),
        theme=Markup(theme),
        scripts=[Markup(script) for script in own],
        data=None if data is None else Markup(_json(data)),
        **values,
    )
    return drawn.encode(errors="replace").decode()


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _address(path: str) -> str:
    """Return the address of a file below `reports/`."""
    return urllib.parse.quote(path.encode(errors="surrogateescape"))


def _json(value: Any) -> str:
    """Return a value as JSON that can stand in a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign, escaped in _UNSAFE.items():
        text = text.replace(sign, escaped)
    return text


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["address"] = _address
