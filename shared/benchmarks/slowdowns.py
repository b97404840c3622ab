"""Is a slowdown that was put in on purpose found? Trials of `fluxbench.comparison.compare` on a real GPU.

    FLUXBENCH_PYTHON=$(command -v python3) python shared/benchmarks/slowdowns.py 20 slowdowns.json

Every run is one of a measuring cell, `bench.measure_cell`: three fresh processes, everything interleaved with the
sentinel. It measures torch_flash followed by a short spin of the device (`slowed_0`), and the same with a longer spin:
by 1, 2 and 5% of a call (`slowed_1`, ...). Trial i compares run i with run i + 1 as `fluxbench rerun` does, with
`slowed_0` as the variant before and `slowed_x` after: as if the library had become slower between two runs of the cell.
torch_flash stands beside it, unchanged. The spin is counted in cycles of the very clock that the attention runs at, so
its share does not depend on the clock. The truth is the ratio of `slowed_x` to `slowed_0` within the same process, as
median over all processes.
"""

from __future__ import annotations

import json
import os
import statistics as plain
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from fluxbench import processes, variants
from fluxbench.records import Record, Sentinel
from fluxbench.variants import torch_flash
from fluxbench.variants._base import Attention, Variant, sdpa

WORKLOADS = ("flux1-1024px-t256", "flux1-1024px-t512")
PERCENT = (0, 1, 2, 5)
BASE_CYCLES = 2000  # a spin in every form, so that all of them launch as many kernels
CYCLES = "SLOWDOWNS_CYCLES"  # of a call of torch_flash, by length of the sequence, as JSON


def slowed(percent: int) -> Variant:
    """Return torch_flash followed by a spin, longer by this share of a call than that of `slowed_0`."""

    def load() -> Attention:
        import torch

        attend = sdpa("FLASH_ATTENTION")
        cycles = json.loads(os.environ[CYCLES])

        def attend_and_spin(q: Any, k: Any, v: Any) -> Any:
            out = attend(q, k, v)
            torch.cuda._sleep(BASE_CYCLES + int(cycles[str(q.shape[1])] * percent / 100))
            return out

        return attend_and_spin

    return Variant(name=f"slowed_{percent}", load=load, supports=torch_flash.supports)


variants.REGISTRY = (*variants.REGISTRY, *(slowed(percent) for percent in PERCENT))


def calibrate() -> dict[int, float]:
    """Print, for `main`, how many cycles a call lasts at each length, in a process of the measured interpreter."""
    import torch

    from fluxbench.inputs import make
    from fluxbench.workloads import named

    def lasts_ms(call: Callable[[], object]) -> float:
        samples = []
        for _ in range(300):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end))
        return plain.median(samples[100:])

    found = {}
    for workload in named(*WORKLOADS):
        inputs = make(workload, "normal", 0, torch.device("cuda"))
        attend = sdpa("FLASH_ATTENTION")
        attention_ms = lasts_ms(lambda attend=attend, inputs=inputs: attend(*inputs))
        spins_ms = [lasts_ms(lambda n=n: torch.cuda._sleep(n)) for n in (500_000, 1_500_000)]
        found[workload.seq_len] = attention_ms * 1_000_000 / (spins_ms[1] - spins_ms[0])
    return found


def main(trials: int, path: Path) -> None:
    """Run the trials, print what was found of each slowdown, and write all samples to a file."""
    from fluxbench import bench, hardware
    from fluxbench.cell import Cell
    from fluxbench.comparison import Measured, compare
    from fluxbench.settings import Settings

    os.environ["FLUXBENCH_WORKLOADS"] = ",".join(WORKLOADS)
    settings, device = Settings.load(), hardware.detect()
    python = settings.python or sys.executable
    done = subprocess.run([python, __file__, "calibrate"], capture_output=True, text=True, check=True)
    os.environ[CYCLES] = done.stdout.strip()
    processes.WORKER = (__file__, "worker")
    this = Cell(notebook="slowdowns", id="slowdowns", packages=("torch==2.13.0",), source_sha256="")
    names = ["torch_flash", *(f"slowed_{percent}" for percent in PERCENT)]
    runs: list[tuple[list[Record], Sentinel | None]] = []
    for _ in range(trials + 1):
        runs.append(bench.measure_cell(this, names, device, settings, time.monotonic() + 500))
        if failed := next((record for record in runs[-1][0] if record.timing is None), None):
            sys.exit(f"{failed.variant} at {failed.workload.name}: {failed.status}: {failed.reason}")

    def side(run: int, percent: int) -> Measured:
        """Return a run in which the variant is slower by this much."""
        found, sentinel = runs[run]
        renamed = {"torch_flash": "torch_flash", f"slowed_{percent}": "variant"}
        kept = [replace(record, variant=renamed[record.variant]) for record in found if record.variant in renamed]
        sentinels = {("slowdowns", "slowdowns"): sentinel} if sentinel else {}
        return Measured(name=f"run {run}", records=tuple(kept), sentinels=sentinels)

    print(f"{device.name}, driver {device.driver}, torch {runs[0][0][0].versions['torch']}; {trials} trials each")
    print(
        f"{'workload':<20}{'put in':>7}{'truth':>8}{'faster':>8}{'slower':>8}{'same':>6}{'undecided':>11}"
        f"{'covered':>9}{'half-width':>12}"
    )
    for percent in PERCENT:
        compared = [compare(side(run, 0), side(run + 1, percent)) for run in range(trials)]
        for workload in WORKLOADS:
            ratios = []
            for found, _ in runs:
                times = {r.variant: r.timing.by_process for r in found if r.timing and r.workload.name == workload}
                pairs = zip(times["slowed_0"], times[f"slowed_{percent}"], strict=True)
                ratios += [plain.median(b) / plain.median(a) for a, b in pairs]
            truth = plain.median(ratios)
            rows = [
                row for each in compared for row in each.rows if (row.variant, row.workload) == ("variant", workload)
            ]
            told = [row.told for row in rows if row.told]
            count = [sum(each.verdict == word for each in told) for word in ("faster", "slower", "same", "undecided")]
            covered = sum(each.low <= truth <= each.high for each in told)
            half = plain.median((each.high - each.low) / 2 for each in told)
            print(
                f"{workload:<20}{percent:>6}%{truth:>8.4f}{count[0]:>8}{count[1]:>8}{count[2]:>6}{count[3]:>11}"
                f"{covered:>6}/{len(told)}{half:>11.2%}"
            )
        beside = [row.told for each in compared for row in each.rows if row.variant == "torch_flash" and row.told]
        print(f"  torch_flash beside it: {sum(each.called for each in beside)} of {len(beside)} called changed")
    kept = [
        {"records": [json.loads(r.to_json()) for r in found], "sentinel": s and json.loads(s.to_json())}
        for found, s in runs
    ]
    path.write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "calibrate":
        print(json.dumps(calibrate()))
    elif sys.argv[1] == "worker":
        from fluxbench import worker

        sys.exit(worker.main(*sys.argv[2:]))
    else:
        main(int(sys.argv[1]), Path(sys.argv[2]))
