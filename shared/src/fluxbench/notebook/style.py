"""The pages' one stylesheet, `assets/pages.css`, into the frontmatter of the notebooks that are named: `make style`."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

STYLESHEET = Path(__file__).parent.parent / "assets" / "pages.css"
_CUSTOM = re.compile(r"^custom_css: \|\n(?:(?:  .*)?\n)*?(?=^\S)", re.MULTILINE)


def styled(notebook: str) -> str:
    """Return a notebook's text with the stylesheet in the place of its `custom_css`."""
    css = textwrap.indent(STYLESHEET.read_text(encoding="utf-8"), "  ")
    return _CUSTOM.sub(lambda _: f"custom_css: |\n{css}", notebook, count=1)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(styled(path.read_text(encoding="utf-8")), encoding="utf-8")
