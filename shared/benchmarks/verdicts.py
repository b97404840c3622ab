"""How often the verdicts on a whole page are right: `make simulate`. It needs no device and no torch.

For each target with a published Flux page: pages are drawn with the spreads of the published samples and judged by the
present code. A number as argument sets the pages of a scenario.
"""

from __future__ import annotations

import sys

from fluxbench.analysis.simulation.of_target import of_target
from fluxbench.core.settings import Settings
from fluxbench.report.blocks import Paragraph
from fluxbench.report.tables.simulation import of_simulation

_PAGES = 1000


def main() -> int:
    """Print the tables."""
    root = Settings.load().root
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else _PAGES
    for folder in sorted((root / "reports").glob("*/flux")):
        simulation = of_target(root, folder.parent.name, "flux", pages)
        for block in [Paragraph(folder.parent.name), *(of_simulation(simulation) if simulation else ())]:
            print(block.text(), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
