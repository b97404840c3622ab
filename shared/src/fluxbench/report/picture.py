"""A figure as a block: the drawing, a caption of one line, and below it a fold that says how to read it.

A page holds the drawing twice, for a wide screen and for a phone, and its stylesheet shows one.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from fluxbench.report.blocks import Block, Fold, Paragraph

TITLE = "How to read this figure"


def marker(file: str) -> str:
    """Return what the markup of a figure holds: the attribute that names its file."""
    return f'data-file="{html.escape(file)}"'


@dataclass(frozen=True)
class Svg:
    """A drawing in a fold. A terminal does not show it."""

    svg: str

    def text(self) -> str:
        """Return that the page has it."""
        return "(a drawing, in the page)"

    def html(self) -> str:
        """Return the SVG, as wide as a phone."""
        return f'<div class="figure"><div class="narrow alone">{self.svg}</div></div>'


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with its caption."""

    file: str  # of the drawing, beside the page
    wide: str  # SVG
    narrow: str  # SVG
    caption: str
    details: Sequence[Block]

    def text(self) -> str:
        """Return the file's name, the caption, and how to read the figure."""
        blocks: list[Block] = [Paragraph(f"{self.file}: {self.caption}"), *self._folds()]
        return "\n\n".join(block.text() for block in blocks)

    def html(self) -> str:
        """Return a `<figure>` and a `<details>`."""
        parts = [
            f'<figure class="figure" {marker(self.file)}>',
            f'<div class="wide">{self.wide}</div>',
            f'<div class="narrow">{self.narrow}</div>',
            f"<figcaption>{html.escape(self.caption)}</figcaption>",
            "</figure>",
            *(fold.html() for fold in self._folds()),
        ]
        return "\n".join(parts)

    def _folds(self) -> list[Fold]:
        return [Fold(TITLE, self.details)] if self.details else []
