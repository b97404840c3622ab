"""How often intervals and ranks are right, on synthetic sustained blocks with the variance that an H200 shows.

    python shared/benchmarks/coverage.py [draws]

A block of 0.6 s is six samples of 0.1 s; by the published samples its mean varies 1.23 times as much as they say. A
third number is the processes' own variance, over that of a block. Three lines a row: how many of 100 intervals of
`stats.intervals.mean` hold the truth; how wide half of one is, in standard deviations of a block; and the same for
Student's t over the three means alone. Then, of a page of 40 equal variants of unequal spread (three of them
bistable), in how many of 100 pages a given one is wrongly called slower than any other.
"""

from __future__ import annotations

import sys

import numpy as np

from fluxbench.stats.intervals import mean
from fluxbench.stats.ordering import faster_than, levels
from fluxbench.stats.student import critical

EXCESS, SAMPLES, PROCESSES, BLOCK = 1.23, 6, 3, 0.004
SPREAD = 0.5  # standard deviation of the logarithm of a variant's spread


def blocks(rng: np.random.Generator, own: float, spread: float = BLOCK) -> np.ndarray:
    """Return samples around 1, a row for each process; `own` is the processes' own variance over that of a block."""
    samples = rng.normal(0, spread * np.sqrt(SAMPLES), (PROCESSES, SAMPLES))
    return np.exp(samples + rng.normal(0, spread * np.sqrt(EXCESS - 1 + own), (PROCESSES, 1)))


def coverage(draws: int, own: float, seed: int = 0) -> tuple[float, float, float]:
    """Return the coverage of `mean`, its half-width over a block's deviation, and that of Student's t over means."""
    rng = np.random.default_rng(seed)
    held, halves, plain = 0, [], []
    for _ in range(draws):
        samples = blocks(rng, own)
        estimate = mean(samples.tolist())
        held += estimate.low <= 1 <= estimate.high
        halves.append(np.log(estimate.high / estimate.low) / 2 / BLOCK)
        means = np.log(samples.mean(axis=1))
        plain.append(critical(0.05, 2) * means.std(ddof=1) / np.sqrt(PROCESSES) / BLOCK)
    return 100 * held / draws, float(np.mean(halves)), float(np.mean(plain))


def wrongly_slower(draws: int, rivals: int, seed: int = 0) -> float:
    """Return in how many of 100 pages the first of some equal variants is called slower than one of the others."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(draws):
        page = []
        for place in range(40):
            spread = BLOCK * np.exp(rng.normal(0, SPREAD))
            own = 100.0 if place > 36 else 0.0
            behind = 0.0 if place < rivals else 0.2  # the rest are far behind
            page.append((behind + np.log(blocks(rng, own, spread).mean(axis=1))).tolist())
        wrong += bool(faster_than(levels(page))[0])
    return 100 * wrong / draws


if __name__ == "__main__":
    DRAWS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    print("own part  coverage  half-width  of Student's t over three means")
    for share in (0.0, 0.25, 1.0, 4.0, 10.0, 100.0):
        print("{:8g}  {:7.1f}%  {:10.2f}  {:10.2f}".format(share, *coverage(DRAWS, share)))
    print("rivals  wrongly called slower")
    for count in (2, 5, 37):
        print(f"{count:6}  {wrongly_slower(max(100, DRAWS // 10), count):6.1f}%")
