"""How long the command line takes where nothing is measured, on a notebook that is fresh, after `make report`.

`.venv/bin/python shared/benchmarks/command_times.py notebooks/flux.md` prints the best and the median of ten runs, in
seconds of wall time, each in a fresh process; of fewer where these take ten seconds or more. `fluxbench site` draws a
copy of the published reports, all of whose records it checks.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_RUNS, _ENOUGH_S = 10, 10.0
_REPORTS = Path(__file__).resolve().parents[2] / "reports"


def main(notebook: str) -> int:
    """Time the commands on a notebook that is fresh; return 1 where it is not."""
    fluxbench = [sys.executable, "-m", "fluxbench.cli"]
    if subprocess.run([*fluxbench, "status", notebook], stdout=subprocess.DEVNULL).returncode:
        print(f"{notebook} is not fresh, so there is something to do; build it first", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        site, reports = Path(folder) / "site", Path(folder) / "reports"
        shutil.copytree(_REPORTS, reports)
        commands = {
            "python alone": [sys.executable, "-c", "0"],
            "import fluxbench.cli": [sys.executable, "-c", "import fluxbench.cli"],
            "fluxbench status": [*fluxbench, "status", notebook],
            "fluxbench build": [*fluxbench, "build", notebook, "--output", str(site)],
            "fluxbench site": [*fluxbench, "site", "--reports", str(reports)],
        }
        for name, command in commands.items():
            times: list[float] = []
            while len(times) < _RUNS and sum(times) < _ENOUGH_S:
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                times.append(time.perf_counter() - started)
            print(f"{name:<24}{min(times):>7.3f} s best{statistics.median(times):>9.3f} s median of {len(times)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
