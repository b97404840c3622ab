"""What a certificate's sustained trials can show: by simulation with their own spreads, judged by the present code.

    python shared/benchmarks/sustained_certificate.py [simulations] [reports/h200/certificate/records/trials.json.gz]

Prints the spreads between processes, and by how much those between runs exceed them; how many false positives unchanged
runs have, where each is compared with each other; and which share of the rows of a changed kernel is found, by the
number of processes a side.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from statistics import fmean

import numpy as np

from fluxbench.analysis.certificate import trials
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.analysis.comparison.between import between_runs
from fluxbench.analysis.comparison.compare import SUSTAINED_LEAST
from fluxbench.analysis.comparison.page import changes
from fluxbench.core.settings import Settings
from fluxbench.device.targets import BetweenRuns
from fluxbench.stats.pooling import spread
from fluxbench.stats.significance import Change


def levels_of(measured: Trials) -> np.ndarray:
    """Return the logarithms of the means of each unslowed variant: [variants, runs, workloads, processes]."""
    return np.array([
        [
            [
                [math.log(fmean(part)) for part in record.sustained.samples_ms]
                for record in sorted(run.records, key=lambda record: record.workload.name)
                if record.variant == variant and record.sustained
            ]
            for run in measured.runs
        ]
        for variant in measured.unslowed
    ])  # fmt: skip


def judged(before: np.ndarray, after: np.ndarray, known: BetweenRuns) -> dict[int, list[Change]]:
    """Return the changes of two sides, [variants, workloads, processes], by variant."""
    keys = list(itertools.product(range(before.shape[0]), range(before.shape[1])))
    sides = {("", "", f"{v}", f"{w}"): (tuple(before[v, w].tolist()), tuple(after[v, w].tolist())) for v, w in keys}
    found, _, _ = changes(sides, {("", ""): known}, least=SUSTAINED_LEAST, apart=True)
    return {v: [found["", "", f"{v}", f"{w}"] for w in range(before.shape[1])] for v in range(before.shape[0])}


def drawn(rng: np.random.Generator, common: np.ndarray, own: np.ndarray, *shape: int) -> np.ndarray:
    """Return unchanged levels, [runs, variants, workloads, processes], without a difference between runs."""
    runs, workloads, processes = shape
    of_process = common[:, None, None] * rng.normal(size=(runs, len(common), 1, processes))
    return of_process + own[:, None, None] * rng.normal(size=(runs, len(own), workloads, processes))


def main(simulations: int, path: Path) -> None:
    """Print all of it."""
    measured = trials.read_file(path)
    levels = levels_of(measured)
    fingerprint = measured.records[0].fingerprint
    known = between_runs(fingerprint, fingerprint, sustained=True)
    _, runs, workloads, processes = levels.shape
    parts = [spread(list(of_variant)) for of_variant in levels]
    means, rests = (np.array([part.value for part in of_all]) for of_all in zip(*parts, strict=True))
    common, own = np.sqrt(np.maximum(0, means - rests / workloads)), np.sqrt(rests)
    for name, mean in zip(measured.unslowed, means, strict=True):
        print(f"{name:<32} a process {100 * math.sqrt(mean):.2f}%")
    ratio = processes * levels.mean(axis=(2, 3)).var(axis=1, ddof=1).mean() / means.mean()
    print(f"all: a process {100 * math.sqrt(means.mean()):.2f}%; variance of runs over that of processes {ratio:.2f}")
    rng = np.random.default_rng(17)
    rows, pairs = [], []
    for _ in range(simulations):
        page = drawn(rng, common, own, runs, workloads, processes)
        found = [judged(page[a], page[b], known).values() for a, b in itertools.combinations(range(runs), 2)]
        counts = [sum(change.significant for of_one in one for change in of_one) for one in found]
        rows.append(sum(counts))
        pairs.append(sum(map(bool, counts)))
    of = math.comb(runs, 2)
    of_rows = fmean(rows) / of / len(common) / workloads
    print(f"unchanged: {100 * of_rows:.1f}% of rows, {100 * fmean(pairs) / of:.1f}% of pairs")
    for least in (1, 6, 9):
        print(f"  {least} rows or more in {100 * fmean(count >= least for count in rows):.0f}% of simulations")
    print("found, by processes a side:")
    everywhere = np.full(len(common), math.sqrt(fmean(common**2))), np.full(len(own), math.sqrt(fmean(own**2)))
    for change in (0.006, 0.01, 0.02):
        shares = []
        for count in (3, 5, 8, 10, 12, 14, 20):
            hits = 0
            for _ in range(simulations):
                before, after = drawn(rng, *everywhere, 2, workloads, count)
                after[0] += math.log1p(change)
                hits += sum(one.significant for one in judged(before, after, known)[0])
            shares.append(f"{count}: {100 * hits / simulations / workloads:.0f}%")
        print(f"  {change:.1%}  {', '.join(shares)}", flush=True)


if __name__ == "__main__":
    PUBLISHED = Settings.load().root / "reports" / "h200" / "certificate" / "records" / "trials.json.gz"
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400, Path(sys.argv[2]) if len(sys.argv) > 2 else PUBLISHED)
