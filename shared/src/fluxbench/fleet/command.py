"""The command `fluxbench fleet`: its arguments, and what it prints."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.output import one_line
from fluxbench.core.settings import Settings

DOES = "build notebooks on several targets by jobs of a Slurm cluster, and publish them; `status`: what runs where"
_STATUS = [Path("status")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK", help="notebooks, or `status` alone")
    parser.add_argument("--targets", type=_names, default=(), help="such as h200,cpu; see environment/targets.toml")
    parser.add_argument("--cluster", choices=("slurm", "local"), default="slurm", help="local: this machine alone")
    parser.add_argument("--again", action="store_true", help="measure again what is stale of published pages too")
    parser.add_argument("--wait", type=_hours, default=24.0, help="hours to wait for jobs, which stay (default: 24)")
    parser.add_argument("--json", action="store_true", help="print the status as JSON for machines")


def run(chosen: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0 where every page is published. Raises `SetupError`, `OSError`."""
    from fluxbench.fleet import overview
    from fluxbench.fleet.local import Local
    from fluxbench.fleet.pair import FOLDER
    from fluxbench.fleet.run import Fleet, asked
    from fluxbench.fleet.slurm import Slurm

    settings = Settings.load()
    clusters = {cluster.name: cluster for cluster in (Slurm(), Local())}
    if chosen.notebooks == _STATUS:
        state = overview.overview(settings.root / FOLDER, clusters)
        print(state.to_json() if chosen.json else state.text())
        return 0 if state.is_done else 1
    if not chosen.targets:
        raise SetupError("a fleet must have targets, got none; name them, such as --targets h200,cpu")
    pairs = asked(chosen.notebooks, chosen.targets, settings)
    fleet = Fleet(pairs, clusters[chosen.cluster], settings, settings.root / "reports", _note)
    problems = overview.problems(fleet.run(3600 * chosen.wait, again=chosen.again))
    for problem in problems:
        print(f"fluxbench: {one_line(problem)}", file=sys.stderr)
    return 1 if problems else 0


def _note(line: str) -> None:
    print(one_line(line), flush=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _hours(text: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"a wait must be a number of hours, got {text!r}")
    return float(text)
