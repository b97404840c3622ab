"""How often intervals and ranks are right, on synthetic cells with the variance components that an H200 shows.

    python shared/benchmarks/coverage.py [cells]

The components are those of the published page of 2026-11-22 (`benchmarks/sustained_design.py` prints them): the
logarithm of a process's mean has a standard deviation of 0.30% (median over the variants; the logarithm of this spread
has one of 0.35), and correlates by 0.9 between six lengths. One variant in seven is far wider: 0.8 to 10%, and in half
of these a process takes one of two times. The reference is no such variant. All variants of a cell have one true time.

First: of 100 intervals of `stats.intervals.means` and `mean_ratios`, how many hold the truth; half their width, the
median and the 90th percentile of variants that are not far wider. Sequential: a fourth and a fifth process where half
the interval is over 0.5%. Drift: the device's own level moves between processes by 0.15%. Apart: lengths that were
measured apart, and correlate by 0 to 0.5. Then, of a page of 40 variants, in how many of 100 pages one is wrongly
called slower than an equal one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluxbench.stats.intervals import Estimate, Samples, mean_ratios, means
from fluxbench.stats.ordering import faster_than, levels

SPREAD, BY_VARIANT, CORRELATION, LENGTHS = 0.0030, 0.35, 0.9, 6
WIDER, WIDEST, SHARE = 0.008, 0.10, 1 / 7
TARGET, MOST = 0.005, 5


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One line of the table."""

    name: str
    variants: int = 5  # of the cell, besides the reference
    processes: tuple[int, ...] = (3,)  # of the variants in turn
    spread: float = BY_VARIANT
    share: float = SHARE  # of the variants that are far wider
    drift: float = 0.0
    sequential: bool = False
    apart: float | None = None  # by which lengths correlate that were measured apart


SCENARIOS = (
    *(Scenario(name=f"{count} variants", variants=count) for count in (1, 2, 5, 10)),
    Scenario(name="all spread alike", spread=0.0, share=0.0),
    Scenario(name="spread twice as unequal", spread=2 * BY_VARIANT),
    Scenario(name="two processes each", processes=(2,)),
    Scenario(name="2 to 5 processes", processes=(2, 3, 5)),
    Scenario(name="five processes each", processes=(5,)),
    Scenario(name="drift", drift=0.0015),
    *(Scenario(name=f"sequential, {count} variants", variants=count, sequential=True) for count in (1, 2, 5, 10)),
    *(Scenario(name=f"apart, correlate by {by}", apart=by) for by in (0.0, 0.25, 0.5)),
    *(Scenario(name=f"apart, {count} variants", variants=count, apart=0.25) for count in (1, 2, 10)),
    *(Scenario(name=f"apart, 2 processes, by {by}", processes=(2,), apart=by) for by in (0.0, 0.25, 0.5)),
    Scenario(name="apart, sequential", apart=0.25, sequential=True),
)


def spreads(rng: np.random.Generator, one: Scenario) -> tuple[Any, Any]:
    """Return the standard deviation of each variant's processes, the reference's last, and which are far wider."""
    usual = SPREAD * np.exp(one.spread * rng.normal(size=one.variants + 1))
    wide = rng.random(one.variants + 1) < one.share
    wide[-1] = False
    return np.where(wide, np.exp(rng.uniform(math.log(WIDER), math.log(WIDEST), one.variants + 1)), usual), wide


def cell(rng: np.random.Generator, one: Scenario) -> tuple[Any, Any]:
    """Return the logarithms of the means, [variants + 1, lengths, processes], and which variants are far wider."""
    spread, wide = spreads(rng, one)
    whole = rng.normal(size=(len(spread), 1, MOST))
    two_times = wide & (rng.random(len(spread)) < 0.5)
    whole[two_times] = np.sign(whole[two_times])
    own = rng.normal(size=(len(spread), LENGTHS, MOST))
    together = CORRELATION if one.apart is None else one.apart
    logs = spread[:, None, None] * (math.sqrt(together) * whole + math.sqrt(1 - together) * own)
    return logs + one.drift * rng.normal(size=(1, 1, MOST)), wide


def samples(logs: Any, counts: Sequence[int]) -> list[list[Samples]]:
    """Return one sample a process, of so many processes of each variant."""
    return [
        [[[value] for value in row[:count]] for row in np.exp(of_variant).tolist()]
        for of_variant, count in zip(logs, counts, strict=True)
    ]


def half(estimate: Estimate) -> float:
    """Return half the width of an interval, a share."""
    return math.log(estimate.high / estimate.low) / 2


def judged(logs: Any, one: Scenario) -> tuple[list[list[Estimate]], list[list[Estimate]], list[int]]:
    """Return the means and ratios of a cell, and how many processes each variant had."""
    variants = len(logs) - 1
    units = [range(LENGTHS)] * (variants + 1)
    counts = [one.processes[place % len(one.processes)] for place in range(variants)]
    while True:
        counts = [*counts[:variants], max(counts[:variants])]  # the reference is in every process
        found = means(samples(logs, counts), units if one.apart is not None else ())
        more = [
            one.sequential and count < MOST and max(map(half, of_variant)) > TARGET
            for count, of_variant in zip(counts[:-1], found[:-1], strict=True)
        ]
        if not any(more):
            break
        counts = [count + wanted for count, wanted in zip(counts[:-1], more, strict=True)]
    own = samples(logs[:-1], counts[:-1])
    beside = [samples(logs[-1:], [count])[0] for count in counts[:-1]]
    return found, mean_ratios(own, beside, units[1:] if one.apart is not None else ()), counts


def coverage(cells: int, one: Scenario, seed: int = 0) -> tuple[str, ...]:
    """Return a line of the table: coverages in %, half-widths in %, processes a variant."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"means": [], "usual": [], "wider": [], "ratios": []}
    halves, within, processes = [], [], []
    for _ in range(cells):
        logs, wide = cell(rng, one)
        found, ratios, counts = judged(logs, one)
        processes += counts[:-1]
        for place, of_variant in enumerate(found[:-1]):
            holds = [estimate.low <= 1 <= estimate.high for estimate in of_variant]
            held["means"] += holds
            held["wider" if wide[place] else "usual"] += holds
            held["ratios"] += [estimate.low <= 1 <= estimate.high for estimate in ratios[place]]
            if not wide[place]:
                halves.append(half(of_variant[0]))
                within.append(halves[-1] <= TARGET)
    shown = [f"{100 * np.mean(kind):.1f}" if kind else "-" for kind in held.values()]
    widths = [f"{100 * np.quantile(halves, part):.2f}" for part in (0.5, 0.9)]
    return *shown, *widths, f"{100 * np.mean(within):.0f}", f"{np.mean(processes):.2f}"


def wrongly_slower(pages: int, rivals: int, seed: int = 0) -> float:
    """Return in how many of 100 pages the first of some equal variants is called slower than one of the others."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(pages):
        logs, _ = cell(rng, Scenario(name="page", variants=39))
        behind = [0.0 if place < rivals else 0.2 for place in range(40)]  # the rest are far behind
        page = [(far + row[0, :3]).tolist() for far, row in zip(behind, logs[::-1], strict=True)]
        wrong += bool(faster_than(levels(page))[0])
    return 100 * wrong / pages


def main(cells: int) -> None:
    """Print both tables."""
    heads = ("means", "usual", "wider", "ratios", "half %", "90th", "<= 0.5%", "processes")
    print(f"{'coverage':>26}  " + "".join(f"{head:>10}" for head in heads))
    for one in SCENARIOS:
        shown = coverage(max(100, cells // one.variants), one)
        print(f"{one.name:>26}  " + "".join(f"{value:>10}" for value in shown))
    print("\nrivals  wrongly called slower, %")
    for count in (2, 5, 37):
        print(f"{count:6}  {wrongly_slower(max(100, cells // 10), count):6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20000)
