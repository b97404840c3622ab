"""How often intervals of burst medians are right, on synthetic samples.

    python shared/benchmarks/coverage_of_medians.py [repetitions]

The logarithms of samples are normal, with a spread between processes and one within, of 0.4% and 0.2%, 0.1% and 0.4%,
or 0 and 0.4%. In every second line one sample in twenty stalls: it takes 1.42 times as long. Printed are how many
intervals of 100 that `stats.intervals.medians` gives hold the true median, and half their width: the median and the
90th percentile.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from fluxbench.stats.intervals import medians

PROCESSES = ((3, 3), (3, 5), (3, 20), (5, 5), (5, 2))  # and samples in each
SPREADS = ((0.004, 0.002), (0.001, 0.004), (0.0, 0.004))  # between processes, and within
STALLED, STALL = 0.05, 0.35  # the share of samples, and by how much in the logarithm


def main(repetitions: int) -> int:
    """Print a line for each case."""
    print("processes samples  between  within  stalls   held   half  90th percentile")
    for (processes, samples), (between, within), stalls in itertools.product(PROCESSES, SPREADS, (False, True)):
        rng = np.random.default_rng(1)
        held, halves = 0, []
        for _ in range(repetitions):
            logs = rng.normal(0, between, (processes, 1)) + rng.normal(0, within, (processes, samples))
            logs += STALL * (rng.random(logs.shape) < STALLED * stalls)
            [found] = medians([np.exp(logs).tolist()])
            held += found.low <= 1 <= found.high
            halves.append((found.high - found.low) / 2)
        print(
            f"{processes:9} {samples:7}  {between:7.1%}  {within:6.1%}  {'yes' if stalls else 'no':>6}  "
            f"{held / repetitions:5.1%}  {np.median(halves):5.2%}  {np.quantile(halves, 0.9):15.2%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400))
