"""Pictures of published pages for `docs/`: the top of each, at two widths and in both themes, in a real browser.

python tests/screenshots.py ../reports ../docs/screenshots
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from browser import missing, served, started
from PIL import Image

PAGES = {"h200": "h200/flux.html", "index": "index.html", "compare": "compare.html"}
WIDTHS, THEMES = (1400, 400), ("dark", "light")
HEIGHT = 1800  # pixels from the top
COLOURS = 256
LIMIT_BYTES = 200_000


def main(reports: Path, pictures: Path) -> int:
    """Write the pictures and say how large they are; 1 where a page or a browser is missing."""
    absent = (f"{reports / page} is missing" for page in PAGES.values() if not (reports / page).is_file())
    lacks = missing() or next(absent, None)
    if lacks:
        print(f"screenshots: {lacks}", file=sys.stderr)
        return 1
    pictures.mkdir(parents=True, exist_ok=True)
    with served(reports) as address, started() as browser:
        for name, page in PAGES.items():
            for width in WIDTHS:
                for theme in THEMES:
                    browser.open(f"{address}/{page}", width=width, height=HEIGHT)
                    browser.run("localStorage.setItem('uvnote-theme', arguments[0])", theme)
                    browser.open(f"{address}/{page}", width=width, height=HEIGHT)
                    path = pictures / f"{name}-{width}-{theme}.png"
                    path.write_bytes(_small(browser.driver.get_screenshot_as_png()))
                    print(f"{path.name:<24}{path.stat().st_size:>9,} bytes")
    return int(any(path.stat().st_size > LIMIT_BYTES for path in pictures.glob("*.png")))


def _small(png: bytes) -> bytes:
    """Return a PNG of few colours, the rare ones of small marks among them; text stays sharp."""
    with Image.open(io.BytesIO(png)) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
