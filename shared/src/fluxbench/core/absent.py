"""Which of its declared outputs a cell has nothing for: names, a line each, in the file that `FLUXBENCH_ABSENT` names.

`fluxbench build` refuses the result of a cell that leaves out a declared output without saying so.
"""

from __future__ import annotations

import os
from pathlib import Path

from fluxbench.core import files

VARIABLE = "FLUXBENCH_ABSENT"
_MOST_BYTES = 1 << 20


def say(*names: str) -> None:
    """Append names, where somebody listens. Raises `OSError`."""
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in names)


def read(path: Path) -> set[str]:
    """Return the names that a cell said; none where the file is missing or is not what `say` writes."""
    try:
        return set(files.read_regular(path, _MOST_BYTES).decode("utf-8", "replace").splitlines())
    except OSError:
        return set()
