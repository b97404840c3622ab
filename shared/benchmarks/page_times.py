"""Where the time of the last build went, by cell and for the whole page: `make bench`, after `make report`.

Where several things happen at once, a moment counts once: as measuring before checking, compiling, importing, drawing
and waiting. Making the environment counts as importing; making inputs and references, and trying what a library can do,
as checking.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.notebook import times
from fluxbench.notebook.document import load


def main(notebook: str) -> int:
    """Print the times; return 1 where there are none."""
    try:
        print(times.text(*times.read(load(Path(notebook)))))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
