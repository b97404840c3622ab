"""The command line: arguments to calls, problems to one sentence and an exit code.

Exit code 0: what was asked for. 1: not so, and each problem is said (`status`: something is not fresh; `floor`: a time
cannot be; `add`: nothing was taken in; `site`: drawn, but without some records). 2: it could not be begun, and nothing
was changed; or the disk is full, and finished cells and all earlier results are kept. 130 or 143: interrupted, and what
was there before is still there.
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from fluxbench.core.errors import SetupError, full_disk
from fluxbench.core.settings import Settings

if TYPE_CHECKING:
    from fluxbench.analysis.comparison import Measured
    from fluxbench.notebook.build import Built

_TOOLS = ("uvnote", "rich")  # which cells do without, so that fluxbench itself asks for neither


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no × shows something else, and no traceback
            stream.reconfigure(errors="backslashreplace")
    chosen = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        return int(_COMMANDS[chosen.command](chosen))
    except SetupError as error:
        print(f"fluxbench: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if not (sentence := full_disk(error)):
            raise
        print(f"fluxbench: {sentence}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        tool = (error.name or "").partition(".")[0]
        if tool not in _TOOLS:
            raise
        print(f"fluxbench: {tool} must be installed beside fluxbench; run `make setup`", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nfluxbench: interrupted; finished cells and all earlier results are kept", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fluxbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, does: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=does, description=does)

    build = command("build", "build a notebook's page for this machine: run what is not fresh, draw it")
    publish = command("publish", "build it, and take the page into reports/<target>/")
    status = command("status", "say which cells and variants are stale, and exactly why; runs nothing")
    rerun = command("rerun", "run these cells and whatever depends on them, and say what changed")
    diff = command("diff", "compare two published folders, or two revisions of one (FOLDER@REVISION)")
    doctor = command("doctor", "say what this machine has and lacks, and which variants will run")
    floor = command(
        "floor", "hold a CSV of anyone's times to what its device can do at all; exit code 1: some cannot be"
    )
    site = command("site", "draw the index and the comparison of all targets from their records; no device is touched")
    add = command("add", "take a folder of records in as a new target, or say why not")
    for each in (build, publish, status, rerun):
        each.add_argument("notebook", type=Path)
    for each in (build, publish, rerun):
        each.add_argument("--output", type=Path, default=Path("site"), help="folder of the page (default: site)")
    rerun.add_argument("cells", nargs="+", metavar="cell")
    diff.add_argument("before")
    diff.add_argument("after")
    floor.add_argument("table", type=Path)
    floor.add_argument("--gpu", help="the card, where the table does not say it")
    floor.add_argument("--causal", action="store_true", help="causal, where the table does not say it")
    add.add_argument("path", type=Path, help="what `make report` leaves (site), a folder of reports/, or of records")
    add.add_argument("--target", help="its name under reports/ (default: the device's)")
    for each in (site, add):
        each.add_argument(
            "--reports", type=Path, help="the folder of all targets (default: reports/ of the repository)"
        )
    for each in (status, rerun, diff, doctor, floor):
        each.add_argument("--json", action="store_true", help="print JSON for machines")
    return parser


def _build(chosen: argparse.Namespace) -> int:
    return _finish(_built(chosen))


def _publish(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.publish import publish

    built = _built(chosen)
    if built.problems:
        code = _finish(built)
        print("fluxbench: nothing was published: only a page without problems is", file=sys.stderr)
        return code
    page = publish(built, Settings.load().root / "reports", built.target.name)
    print(f"\nThe page is {page.resolve()}")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.status import status

    found = status(chosen.notebook, Settings.load())
    print(found.to_json() if chosen.json else found.text())
    return 0 if found.is_fresh else 1


def _rerun(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook import changes
    from fluxbench.report import comparison_text

    built = _built(chosen, only=chosen.cells)
    comparison = changes.of_rerun(built, Settings.load().root / "reports")
    if chosen.json:
        compared = json.loads(comparison_text.to_json(comparison)) if comparison else None
        print(json.dumps({"page": str(built.page.resolve()), "problems": built.problems, "comparison": compared}))
    elif comparison:
        print(f"\n{comparison_text.table(comparison)}\n\n{comparison_text.summary(comparison)}")
    return _finish(built, quiet=chosen.json)


def _diff(chosen: argparse.Namespace) -> int:
    from fluxbench.analysis.comparison import compare
    from fluxbench.notebook.revisions import measured
    from fluxbench.report import comparison_text

    root = Path.cwd()
    sides: list[Measured] = [measured(spec, root) for spec in (chosen.before, chosen.after)]
    comparison = compare(*sides)
    if chosen.json:
        print(comparison_text.to_json(comparison))
    elif comparison.compared:
        print(f"{comparison_text.table(comparison)}\n\n{comparison_text.summary(comparison)}")
    if not comparison.compared:
        raise SetupError(comparison_text.summary(comparison).splitlines()[0].rstrip("."))
    return 0


def _doctor(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.doctor import examine

    found = examine(Settings.load())
    print(found.to_json() if chosen.json else found.text())
    return 0 if found.is_well else 1


def _floor(chosen: argparse.Namespace) -> int:
    import csv

    from fluxbench.analysis.audit import check_table

    try:
        found = check_table(chosen.table, gpu=chosen.gpu, causal=chosen.causal)
    except (OSError, ValueError, csv.Error) as error:  # a text that is no UTF-8 is a ValueError
        raise SetupError(f"{chosen.table} must be a CSV: {error}") from error
    print(found.to_json() if chosen.json else found.text())
    return 1 if found.impossible else 0


def _site(chosen: argparse.Namespace) -> int:
    from fluxbench.site.draw import draw

    drawn = draw(_reports(chosen))
    for problem in drawn.problems:
        print(f"fluxbench: {problem}", file=sys.stderr)
    print(f"The site is {drawn.index.resolve()}")
    return 1 if drawn.problems else 0


def _add(chosen: argparse.Namespace) -> int:
    from fluxbench.site.intake import add

    found = add(chosen.path, _reports(chosen), chosen.target)
    for problem in found.problems:
        print(f"fluxbench: {problem}", file=sys.stderr)
    print(f"fluxbench: {found.text()}", file=sys.stderr if found.problems else sys.stdout)
    return 1 if found.problems else 0


def _reports(chosen: argparse.Namespace) -> Path:
    return chosen.reports or Settings.load().root / "reports"


def _built(chosen: argparse.Namespace, only: tuple[str, ...] = ()) -> Built:
    from fluxbench.notebook import listeners
    from fluxbench.notebook.build import build

    with listeners.on() as listener:
        return build(chosen.notebook, Settings.load(), chosen.output, only=only, listener=listener)


def _finish(built: Built, *, quiet: bool = False) -> int:
    for problem in built.problems:
        print(f"fluxbench: {problem}", file=sys.stderr)
    if not quiet:
        print(f"\nThe page is {built.page.resolve()}")
    return 1 if built.problems else 0


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    print("\nfluxbench: terminated; finished cells and all earlier results are kept", file=sys.stderr)
    sys.exit(128 + number)


_COMMANDS = {
    "build": _build,
    "publish": _publish,
    "status": _status,
    "rerun": _rerun,
    "diff": _diff,
    "doctor": _doctor,
    "floor": _floor,
    "site": _site,
    "add": _add,
}

if __name__ == "__main__":
    sys.exit(main())
