"""The command line: arguments to calls, problems to one sentence and an exit code.

Exit code 0: the page is what was asked for. 1: it is not, and each problem is said. 2: it could not be begun.
"""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path

from fluxbench.settings import Settings, SetupError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="fluxbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, does in (
        ("build", "build a notebook's page for this machine"),
        ("publish", "build it, and take the page into reports/<target>/"),
    ):
        command = commands.add_parser(name, help=does)
        command.add_argument("notebook", type=Path)
        command.add_argument("--output", type=Path, default=Path("site"), help="folder of the page (default: site)")
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen.command, chosen.notebook, chosen.output)
    except SetupError as error:
        print(f"fluxbench: {error}", file=sys.stderr)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(f"fluxbench: the disk is full{where}; free some space and run it again", file=sys.stderr)
    return 2


def _run(command: str, notebook: Path, output: Path) -> int:
    from fluxbench.notebook.build import build
    from fluxbench.notebook.publish import publish

    settings = Settings.load()
    built = build(notebook, settings, output)
    for problem in built.problems:
        print(f"fluxbench: {problem}", file=sys.stderr)
    page = built.page
    if command == "publish" and not built.problems:
        page = publish(built, settings.root / "reports", built.target.name)
    if page.is_file():
        print(f"\nThe page is {page.resolve()}")
    return 1 if built.problems else 0


if __name__ == "__main__":
    sys.exit(main())
