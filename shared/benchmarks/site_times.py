"""How long `make site` takes, and how that grows: `make bench`. It needs no device and no torch.

Made-up targets of 1,250 to 20,000 records, as many in one target as in sixteen. Prints the best and the median of three
runs in seconds of wall time, each in a fresh process, and microseconds a record.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from fluxbench import operations
from fluxbench.records import files
from fluxbench.records.schema import Record

_ROOT = Path(__file__).resolve().parents[2]
_VARIANTS, _RUNS = 25, 3


def main() -> int:
    """Print the times."""
    folders = _ROOT.glob("reports/*/*/records")
    records = (record for folder in folders for file in files.paths(folder) for record in files.read(file))
    record = next(record for record in records if record.burst and record.sustained)
    print(f"{'fluxbench site':<32}{'best':>9}{'median':>10}{'per record':>14}{'compare.html':>15}")
    for targets in (1, 16):
        for count in (1_250, 2_500, 5_000, 10_000, 20_000):
            with tempfile.TemporaryDirectory() as folder:
                _fill(Path(folder), record, targets, count)
                times = [_time(folder) for _ in range(_RUNS)]
                size = (Path(folder) / "compare.html").stat().st_size / 1e6
            name = f"{count:>7,} records, {targets:>2} target{'s' * (targets > 1)}"
            best, middle, micro = min(times), statistics.median(times), min(times) / count * 1e6
            print(f"{name:<32}{best:>7.2f} s{middle:>8.2f} s{micro:>11.0f} µs{size:>12.1f} MB")
    return 0


def _fill(reports: Path, record: Record, targets: int, count: int) -> None:
    """Write records with as many samples as a published one, each of a variant and length of its own."""
    of_target = count // targets
    for target in range(targets):
        folder = reports / f"target-{target}" / "flux" / "records"
        folder.mkdir(parents=True)
        files.write(folder / "made_up.jsonl", (_made_up(record, number) for number in range(of_target)))


def _made_up(record: Record, number: int) -> Record:
    variant, length = f"variant_{number % _VARIANTS}", 1024 + number // _VARIANTS
    old = record.workload
    shape = {**old.shape, "seq_len_q": length, "seq_len_k": length}
    workload = operations.workload(
        old.operation, f"made-up-{length}", shape, group="made-up", x=length, x_unit="tokens"
    )
    return msgspec.structs.replace(record, variant=variant, kernel=variant, form="eager", workload=workload)


def _time(reports: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "fluxbench.cli", "site", "--reports", reports]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
