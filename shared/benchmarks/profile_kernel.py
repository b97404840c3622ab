"""Run a command under Nsight Compute and print, of one launch of a kernel, how busy its units are and where it waits.

    PYTHONPATH=shared/src python shared/benchmarks/profile_kernel.py quantized_forward_kernel -- \\
        python shared/benchmarks/gluon_int8_fp8.py --launch default

It profiles the second launch whose name matches. Clocks stay as they are. Samples of waiting warps are summed by
reason, by opcode, by the stretches between products and barriers, and by instruction.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

SECTIONS = (
    *("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"),
    *("SchedulerStats", "WarpStateStats", "SourceCounters"),
)
UNITS = re.compile(
    r"(sm__inst_executed_pipe_\w+|sm__pipe_\w+|\w*issue_active|lts__t_\w+|l1tex__data_\w+)\.avg\.pct_of_peak_\w+"
    r"|gpu__time_duration\.sum|\w+__cycles_(elapsed|active)\.(max|avg)(\.per_second)?"
)
BREAKS = re.compile(r"GMMA|BAR|DEPBAR|SYNCS|SHFL")


def tool() -> str:
    """Return the path of ncu."""
    found = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(found).exists():
        sys.exit("ncu is neither on the PATH nor in /usr/local/cuda/bin; install Nsight Compute")
    return found


def page(ncu: str, report: Path, name: str) -> list[list[str]]:
    """Return the rows of a page of a report."""
    done = subprocess.run(
        [ncu, "--import", str(report), "--page", name, "--csv"], capture_output=True, text=True, check=False
    )
    rows = [row for row in csv.reader(done.stdout.splitlines()) if len(row) > 2]
    if not rows:
        sys.exit(f"ncu has no page {name}: {(done.stderr or done.stdout)[-400:]}")
    return rows


def number(text: str) -> float:
    """Return what a cell says, 0 if it is no number."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def print_units(rows: Sequence[Sequence[str]]) -> None:
    """Print cycles, time and how busy the units are, in percent."""
    names, units, values = rows[0], rows[1], rows[2]
    for name, unit, value in zip(names, units, values, strict=False):
        if UNITS.fullmatch(name) and number(value) >= 0.5:
            print(f"{name:<86}{value:>16} {unit}")


def print_samples(rows: Sequence[Sequence[str]], top: int) -> None:
    """Print the shares of samples: by reason, opcode, stretch and instruction."""
    start = next((index for index, row in enumerate(rows) if "Source" in row), None)
    if start is None:
        sys.exit(f"no column Source in {rows[0][:12]}")
    names = list(rows[start])
    sampled = [index for index, name in enumerate(names) if "sampl" in name.lower() and "not" not in name.lower()]
    reasons: dict[str, int] = {}
    for index, name in enumerate(names):
        if (found := re.match(r"stall_(\w+)", name)) and "not" not in name.lower().replace("not_sel", ""):
            reasons.setdefault(found[1], index)
    if not sampled:
        sys.exit(f"no column of samples in {names}")
    text = names.index("Source")
    lines = [row for row in rows[start + 1 :] if len(row) == len(names)]
    samples = [number(row[sampled[0]]) for row in lines]
    total = sum(samples) or 1.0

    def waits(members: Sequence[Sequence[str]], count: int) -> str:
        found = Counter({name: sum(number(row[index]) for row in members) for name, index in reasons.items()})
        whole = sum(found.values()) or 1.0
        return ", ".join(f"{name} {value / whole:.0%}" for name, value in found.most_common(count) if value)

    print(f"{total:.0f} samples: {waits(lines, 10)}")
    opcodes: Counter[str] = Counter()
    for row, each in zip(lines, samples, strict=True):
        words = re.sub(r"^@\S+\s+", "", row[text].strip()).split()
        opcodes[words[0].split(".")[0] if words else ""] += each  # type: ignore[assignment]
    print("opcodes: " + ", ".join(f"{name} {value / total:.1%}" for name, value in opcodes.most_common(14)))
    print("stretches, by the instruction that ends them:")
    first = 0
    for index, row in enumerate(lines):
        if BREAKS.search(row[text]) or index == len(lines) - 1:
            share = sum(samples[first : index + 1]) / total
            if share >= 0.01:
                reason = waits(lines[first : index + 1], 3)
                print(f"{share:6.1%} {first:>5} to {index:<5} {row[text].strip()[:48]:<48} {reason}")
            first = index + 1
    print("instructions:")
    for index in islice(sorted(range(len(lines)), key=lambda index: -samples[index]), top):
        print(
            f"{samples[index] / total:6.1%} {index:>5} {lines[index][text].strip()[:60]:<60} {waits([lines[index]], 2)}"
        )


def main() -> None:
    """Profile, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kernel", help="regular expression of its name")
    parser.add_argument("--top", type=int, default=25, help="instructions that are printed")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    ncu = tool()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "profile.ncu-rep")
        done = subprocess.run(
            [
                *(ncu, "--clock-control", "none", "--force-overwrite", "--export", str(report)),
                *(word for name in SECTIONS for word in ("--section", name)),
                *("--kernel-name", f"regex:{arguments.kernel}", "--launch-skip", "1", "--launch-count", "1"),
                *arguments.command,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            sys.exit((done.stderr + done.stdout)[-800:])
        print_units(page(ncu, report, "raw"))
        print_samples(page(ncu, report, "source"), arguments.top)


if __name__ == "__main__":
    main()
