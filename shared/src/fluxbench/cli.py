"""The command line: arguments to calls, problems to one sentence and an exit code.

Exit code 0: everything requested was done. 1: not everything, and each problem is printed (`status`: something
is not fresh; `audit`: a figure is wrong; `doctor`: something is lacking; `site`: drawn, without some records;
`fleet`: a page is not published).
2: it could not begin, or records were refused (`add`, `diff`), and nothing was changed; or the system refused
something, such as space on a disk, and finished cells and all earlier results are kept. 70: an unexpected exception;
the message names the file with its traceback. 130 or 143: interrupted; finished cells and all earlier results
are kept, and of most other cells what finished processes had measured.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fluxbench.core import output
from fluxbench.core.errors import SetupError, keep_traceback, refusal
from fluxbench.core.settings import Settings
from fluxbench.fleet import command as fleet_command

if TYPE_CHECKING:
    from fluxbench.notebook.build import Built

_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h
_LONGEST = 300  # characters of an exception that a sentence shows


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    with output.lasting():
        before = signal.signal(signal.SIGTERM, output.terminated)
        try:
            chosen = _parser().parse_args(arguments)
            code = int(_COMMANDS[chosen.command](chosen))
            sys.stdout.flush()  # what it cannot take is refused below, not when the process ends
            return code
        except KeyboardInterrupt:
            print(f"\nfluxbench: interrupted; {output.KEPT}", file=sys.stderr)
            return 130
        except Exception as error:  # noqa: BLE001 - the one place for what nobody foresaw, which keeps the traceback
            sentence = refusal(error) or _not_whole(error)
            return _refused(sentence) if sentence else _unforeseen(error)
        finally:
            signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fluxbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, does: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=does, description=does)

    build = command("build", "build a notebook's page for this machine: run what is not fresh, and draw it")
    publish = command("publish", "build it, and copy the page into reports/<target>/")
    redraw = command("redraw", "draw a published page again from its records; nothing is measured")
    status = command("status", "print which cells and variants are stale, and exactly why; runs nothing")
    rerun = command("rerun", "run these cells and whatever depends on them, and print what changed")
    diff = command("diff", "compare two published folders, or two revisions of one (FOLDER@REVISION)")
    doctor = command("doctor", "print what this machine has and lacks, and which variants will run")
    audit = command(
        "audit", "judge a CSV of anyone's figures by physics, by itself and by ours; exit code 1: some are wrong"
    )
    site = command("site", "draw the index and the comparison of all targets from their records; no device is touched")
    serve = command("serve", "show the drawn site to browsers of this machine until interrupted")
    fleet_command.add_arguments(command("fleet", fleet_command.DOES))
    add = command("add", "add a folder of records as a new target, or print why not")
    for notebook in (build, publish, status, rerun):
        notebook.add_argument("notebook", type=Path)
    for drawing in (build, publish, rerun):
        drawing.add_argument("--output", type=Path, default=Path("site"), help="folder of the page (default: site)")
    rerun.add_argument("cells", nargs="+", metavar="cell")
    redraw.add_argument("page", type=Path, help="the folder of the page's records, such as reports/h200/flux")
    redraw.add_argument("--notebook", type=Path, help="the notebook (default: notebooks/<page>.md of the repository)")
    doctor.add_argument(
        "notebook", type=Path, nargs="?", help="list all details of this one (default: an overview of all)"
    )
    diff.add_argument("before")
    diff.add_argument("after")
    audit.add_argument("table", type=Path)
    audit.add_argument("--gpu", help="the card, where the table does not state it")
    audit.add_argument("--peak", type=_peak, help="of a card that is not known: dense 16-bit rate in TFLOP/s")
    audit.add_argument("--causal", action="store_true", help="causal, where the table does not state it")
    add.add_argument("path", type=Path, help="what `make report` leaves (site), a folder of reports/, or of records")
    add.add_argument("--target", help="its name under reports/ (default: the device's)")
    serve.add_argument("--port", type=_port, default=8000, help="port at 127.0.0.1 (default: 8000)")
    for of_reports in (site, serve, add):
        of_reports.add_argument(
            "--reports", type=Path, help="the folder of all targets (default: reports/ of the repository)"
        )
    for printing in (status, rerun, diff, doctor, audit):
        printing.add_argument("--json", action="store_true", help="print JSON for machines")
    return parser


def _build(chosen: argparse.Namespace) -> int:
    return _finish(_built(chosen))


def _publish(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.publish import publish, target_of

    built = _built(chosen)
    if built.problems:
        code = _finish(built)
        print("fluxbench: nothing was published, since the page has problems", file=sys.stderr)
        return code
    page = publish(built, Settings.load().root / "reports", target_of(built))
    print(f"\nThe page is {page.resolve()}")
    return 0


def _redraw(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook import listeners
    from fluxbench.notebook.redraw import redraw

    settings = Settings.load()
    published = chosen.page.absolute()
    notebook = chosen.notebook or settings.root / "notebooks" / f"{published.name}.md"
    with listeners.on() as listener:
        page = redraw(published, notebook, settings, listener)
    print(f"\nThe page is {page.resolve()}")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.status import status

    state = status(chosen.notebook, Settings.load())
    print(state.to_json() if chosen.json else state.text())
    return 0 if state.is_fresh else 1


def _rerun(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook import changes
    from fluxbench.report import comparison as shown
    from fluxbench.report import display

    built = _built(chosen, only=chosen.cells)
    comparison = changes.of_rerun(built, Settings.load().root / "reports")
    if chosen.json:
        compared = json.loads(shown.to_json(comparison)) if comparison else None
        print(json.dumps({"page": str(built.page.resolve()), "problems": built.problems, "comparison": compared}))
    elif comparison:
        print()
        display.show(*shown.blocks(comparison))
    return _finish(built, quiet=chosen.json)


def _diff(chosen: argparse.Namespace) -> int:
    from fluxbench.analysis.comparison.compare import compare
    from fluxbench.notebook.revisions import measured
    from fluxbench.report import comparison as shown
    from fluxbench.report import comparison_words, display

    root = Path.cwd()
    comparison = compare(measured(chosen.before, root), measured(chosen.after, root))
    if chosen.json:
        print(shown.to_json(comparison))
    elif comparison.compared:
        display.show(*shown.blocks(comparison))
    if not comparison.compared:
        raise SetupError(comparison_words.summary(comparison)[0].rstrip("."))
    return 0


def _doctor(chosen: argparse.Namespace) -> int:
    from fluxbench.notebook.doctor.examination import examine

    examination = examine(Settings.load(), chosen.notebook)
    print(examination.to_json() if chosen.json else examination.text(detailed=bool(chosen.notebook)))
    return 1 if examination.lacking else 0


def _audit(chosen: argparse.Namespace) -> int:
    from fluxbench.analysis.audit import judge, ours
    from fluxbench.report.audit import text

    options = {"gpu": chosen.gpu, "causal": chosen.causal, "peak_tflops": chosen.peak}
    try:
        judged = judge.audit(chosen.table, ours=ours.read(Settings.load().root / "reports"), **options)
    except ValueError as error:
        raise SetupError(f"{chosen.table} must be a CSV: {error}") from error
    print(text.to_json(judged) if chosen.json else text.text(judged))
    return int(judged.is_wrong or not judged.is_decided)


def _site(chosen: argparse.Namespace) -> int:
    from fluxbench.site.draw import draw

    drawn = draw(_reports(chosen))
    _print_problems(drawn.problems)
    print(f"The site is {drawn.index.resolve()}")
    return 1 if drawn.problems else 0


def _serve(chosen: argparse.Namespace) -> int:
    from fluxbench.site.serve import serve

    serve(_reports(chosen), chosen.port)
    return 0


def _port(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text) or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"a port must be a whole number from 1 to 65535, got {text!r}")
    return int(text)


def _peak(text: str) -> float:
    if not re.fullmatch(r"\d{1,5}(\.\d+)?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"a peak must be a positive number of TFLOP/s, got {text!r}")
    return float(text)


def _add(chosen: argparse.Namespace) -> int:
    from fluxbench.site.intake import add

    intake = add(chosen.path, _reports(chosen), chosen.target)
    _print_problems(intake.problems)
    print(f"fluxbench: {intake.text()}", file=sys.stderr if intake.problems else sys.stdout)
    return 2 if intake.problems else 0


def _reports(chosen: argparse.Namespace) -> Path:
    return chosen.reports or Settings.load().root / "reports"


def _built(chosen: argparse.Namespace, only: tuple[str, ...] = ()) -> Built:
    from fluxbench.notebook import listeners
    from fluxbench.notebook.build import build

    with listeners.on() as listener:
        return build(chosen.notebook, Settings.load(), chosen.output, only=only, listener=listener)


def _finish(built: Built, *, quiet: bool = False) -> int:
    _print_problems(built.problems)
    if not quiet:
        print(f"\nThe page is {built.page.resolve()}")
    return 1 if built.problems else 0


def _print_problems(problems: Iterable[str]) -> None:
    for problem in problems:
        print(f"fluxbench: {output.one_line(problem)}", file=sys.stderr)


def _refused(sentence: str) -> int:
    _print_problems([sentence])
    return 2


def _not_whole(error: Exception) -> str | None:
    """Return the sentence for a package that is missing beside fluxbench, or is there in part; None for all else."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in ("", "fluxbench") or package in sys.stdlib_module_names:
        return None
    return f"{package} must be installed beside fluxbench, got {error}; run `make setup`"


def _unforeseen(error: Exception) -> int:
    """Print in a sentence that this must not happen, and where its traceback is: in a file, above if none can be."""
    try:
        place = f"in {keep_traceback(error)}"
    except OSError:
        traceback.print_exception(error)
        place = "above"
    what = f"{type(error).__name__}: {error}"[:_LONGEST]
    _print_problems([f"this command must not raise an exception, got {what}; report it with its traceback {place}"])
    return _UNFORESEEN


_COMMANDS = {
    "build": _build,
    "publish": _publish,
    "redraw": _redraw,
    "status": _status,
    "rerun": _rerun,
    "diff": _diff,
    "doctor": _doctor,
    "audit": _audit,
    "site": _site,
    "serve": _serve,
    "fleet": fleet_command.run,
    "add": _add,
}

if __name__ == "__main__":
    sys.exit(main())
