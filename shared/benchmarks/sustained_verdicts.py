"""How often `fluxbench diff` is right about sustained times of a whole page.

    python shared/benchmarks/sustained_verdicts.py [pages]

Pages of the variants of reports/h200/flux/records are drawn with the spreads between their processes (moderated by each
other, but for those far beyond the others) and judged by the present code. A page has a false positive where any
unchanged row is significant. Runs are drawn that differ beyond their processes as `environment/targets.toml` has it, or
not. A change is one of a single variant that is not far beyond the others, at all lengths.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean

import numpy as np

from fluxbench.analysis.comparison.compare import SUSTAINED_LEAST
from fluxbench.analysis.comparison.page import changes
from fluxbench.analysis.simulation.sustained import USUAL
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.records import files
from fluxbench.stats.pooling import moderated, spread

KNOWN = targets.named("h200", Settings.load().root).runs_sustained


def components(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return standard deviations of a process by variant, shares: common to its workloads, and of one workload."""
    logs: dict[tuple[str, str], list[list[float]]] = {}
    for path in files.paths(folder):
        for record in files.read(path):
            if record.sustained:
                means = [math.log(fmean(part)) for part in record.sustained.samples_ms]
                logs.setdefault((record.cell, record.variant), []).append(means)
    count = max(map(len, logs.values()))
    parts = [spread([np.array(rows)]) for rows in logs.values() if len(rows) == count]
    of_all, of_one = zip(*parts, strict=True)
    shared, rests = moderated(of_all, apart=True), moderated(of_one, apart=True)
    common = [math.sqrt(max(0.0, one.value - rest.value / count)) for one, rest in zip(shared, rests, strict=True)]
    return np.array(common), np.array([math.sqrt(rest.value) for rest in rests])


def judged(pages: int, variants: int | None, processes: int, change: float, beyond: float) -> str:
    """Return a line: the shares of pages with a false positive, of changed rows found, and of intervals that hold."""
    rng = np.random.default_rng(17)
    common, own = components(Settings.load().root / "reports" / "h200" / "flux" / "records")
    if variants:
        chosen = np.flatnonzero(common < USUAL)[:variants]
        common, own = common[chosen], own[chosen]
    false, found, held, rows = 0, 0, 0, 0
    for _ in range(pages):
        shape = (2, len(common), 6, processes)
        levels = common[:, None, None] * rng.normal(size=(2, len(common), 1, processes))
        levels = levels + own[:, None, None] * rng.normal(size=shape) + beyond * rng.normal(size=(2, len(common), 1, 1))
        which = rng.choice(np.flatnonzero(common < USUAL))
        levels[1, which] += math.log1p(change)
        keys = [("", "", str(v), str(w)) for v in range(len(common)) for w in range(6)]
        sides = {
            key: (tuple(levels[0, int(key[2]), int(key[3])]), tuple(levels[1, int(key[2]), int(key[3])]))
            for key in keys
        }
        verdicts, _, _ = changes(sides, {("", ""): KNOWN}, least=SUSTAINED_LEAST, apart=True)
        changed = {key: change if key[2] == str(which) else 0.0 for key in keys}
        false += any(verdicts[key].significant for key in keys if not changed[key])
        found += sum(verdicts[key].significant for key in keys if changed[key])
        held += sum(verdicts[key].low <= 1 + changed[key] <= verdicts[key].high for key in keys)
        rows += len(keys)
    shown = f"{100 * found / pages / 6:.0f}%" if change else "-"
    drawn = f"{len(common):8} {processes:10} {change:7.1%} {beyond:8.2%}"
    return f"{drawn} {100 * false / pages:11.1f}% {shown:>6} {100 * held / rows:8.1f}%"


if __name__ == "__main__":
    PAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("variants  processes  change   beyond  false pages  found  coverage")
    for line in (
        (None, 3, 0.0, 0.0), (None, 3, 0.0, KNOWN.variant), (None, 3, 0.02, KNOWN.variant),
        (None, 5, 0.01, KNOWN.variant), (None, 12, 0.01, KNOWN.variant), (4, 3, 0.01, KNOWN.variant),
        (4, 5, 0.01, KNOWN.variant), (4, 12, 0.01, KNOWN.variant), (4, 3, 0.02, KNOWN.variant),
    ):  # fmt: skip
        print(judged(PAGES, *line), flush=True)
