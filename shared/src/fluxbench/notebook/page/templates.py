"""The templates and files of `assets/`."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

_OWN = Path(__file__).parent / "assets"
_SHARED = Path(__file__).parents[2] / "assets"  # with the site: colours, type, tables, and the theme
# Every value is escaped unless it is `Markup`.
_ENVIRONMENT = Environment(loader=FileSystemLoader(_OWN), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def filled(template: str, **values: object) -> Markup:
    """Return a template of `assets/` with these values."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))


def style() -> str:
    """Return the stylesheet of a notebook's page."""
    return _read(_SHARED / "pages.css", _OWN / "page.css")


def script() -> str:
    """Return the script of a notebook's page, the only one there."""
    return _read(_SHARED / "theme.js", _SHARED / "copy.js", _OWN / "page.js")


def _read(*paths: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in paths)
