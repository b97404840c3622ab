"""Shows blocks: as text on stdout, and as HTML in the file that `FLUXBENCH_DISPLAY` names.

`fluxbench build` sets that variable and puts the file's content into the page in place of the text. Under plain uvnote
it is not set, and the page shows the text.
"""

from __future__ import annotations

import os
from pathlib import Path

from fluxbench.report.blocks import Block

VARIABLE = "FLUXBENCH_DISPLAY"


def show(*blocks: Block) -> None:
    """Print blocks, an empty line between them, and append their markup to the display file. Raises `OSError`."""
    for block in blocks:
        print(block.text(), end="\n\n")
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("".join(f"{block.html()}\n" for block in blocks))
