"""How many processes, blocks and seconds a sustained mean needs: from the variance components of published records.

    python shared/benchmarks/sustained_design.py [reports/h200/flux/records]

The logarithm of a process's mean over a block of one period is the sum of the variant's and a deviation P of the
process. Within a block, samples of 0.1 s swing with the power limit's period; what they leave of a whole period is
within P. The components are medians over the variants, robust against those that are tuned anew in each process.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean, median

import numpy as np

from fluxbench.core.settings import Settings
from fluxbench.records import files
from fluxbench.stats.student import critical

WARM_UP_S, PERIOD_S = 0.3, 1.0  # of a block that follows another one, as in `timing/plan.py`
_APART = 0.009  # standard deviation between processes from which on a variant is left out of the spread of spreads
_EXPECTED = math.pi**2 / 6  # variance of the logarithm of a variance of two degrees of freedom (trigamma of one)


def _logs(folder: Path) -> list[np.ndarray]:
    """Return the logarithms of the means of each variant that has several workloads: [workloads, processes]."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for path in files.paths(folder):
        for record in files.read(path):
            if record.sustained:
                means = [math.log(fmean(part)) for part in record.sustained.samples_ms]
                found.setdefault((record.cell, record.variant), []).append(means)
    return [np.array(rows) for rows in found.values()]


def _within(folder: Path) -> list[tuple[float, float]]:
    """Return the standard deviation of a process's mean by its samples alone, and less the swing that all share."""
    found = []
    for path in files.paths(folder):
        for record in files.read(path):
            parts = record.sustained.samples_ms if record.sustained else ()
            size = min(map(len, parts), default=0)
            if size > 1 and len(parts) > 1:
                logs = np.log(np.array([part[:size] for part in parts]))
                alone = logs.var(axis=1, ddof=1).mean() / size
                rest = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
                free = (len(parts) - 1) * (size - 1)
                found.append((math.sqrt(alone), math.sqrt(float((rest**2).sum()) / free / size)))
    return found


def components(folder: Path) -> dict[str, float]:
    """Return standard deviations, in shares: of processes, and within a process; and how alike the lengths are."""
    logs = _logs(folder)
    own = [float(np.sqrt(one.var(axis=1, ddof=1).mean())) for one in logs]
    usual = [one for one in own if 0 < one < _APART]
    centered = [one - one.mean(axis=1, keepdims=True) for one, spread in zip(logs, own, strict=True) if spread < _APART]
    common = fmean(float(one.mean(axis=0).var(ddof=1)) for one in centered)
    whole = fmean(float(one.var(axis=1, ddof=1).mean()) for one in centered)
    count = len(centered[0])
    scatter = float(np.var([math.log(one**2) for one in usual], ddof=1)) - _EXPECTED
    within = _within(folder)
    return {
        "variants": len(logs),
        "far wider": len(logs) - len(usual),
        "process": math.sqrt(fmean(one**2 for one in usual)),
        "process, median": median(own),
        "spread of its logarithm": math.sqrt(max(0.0, scatter)) / 2,
        "correlation of lengths": (common - (whole - common) / (count - 1)) / whole,
        "samples alone": median(one for one, _ in within),
        "samples less the common swing": median(one for _, one in within),
    }


def half(processes: int, variants: int, spread: float) -> float:
    """Return half the 95% interval of a mean, a share, in a cell of so many variants, the reference included."""
    return critical(0.05, variants * (processes - 1)) * spread / math.sqrt(processes)


def main(folder: Path) -> None:
    """Print the components, then half-widths and seconds of a device by the number of processes."""
    found = components(folder)
    for name, value in found.items():
        kept = name in ("variants", "far wider", "correlation of lengths", "spread of its logarithm")
        print(f"{name:>30}  {value:.3g}" if kept else f"{name:>30}  {100 * value:.2f}%")
    spread = found["process"]
    heads = "".join(f"{f'of {count}':>8}" for count in (2, 5, 10))
    print(f"\nhalf of an interval in a cell{heads}{'known':>8}   device s a variant, blocks of 1 / 2 / 4 periods")
    for processes in range(2, 7):
        halves = [half(processes, count, spread) for count in (2, 5, 10)]
        halves.append(1.96 * spread / math.sqrt(processes))
        seconds = [processes * (WARM_UP_S + periods * PERIOD_S) for periods in (1, 2, 4)]
        shown = "".join(f"{100 * value:7.2f}%" for value in halves)
        print(f"{f'{processes} processes':>29}{shown}   {' / '.join(f'{value:.1f}' for value in seconds)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Settings.load().root / "reports" / "h200" / "flux" / "records")
