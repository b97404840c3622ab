"""A cell on a page: what it gave, and below it a line that opens its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer
from uvnote.generator import split_uv_install_logs
from uvnote.parser import CodeCell

from fluxbench.core.formatting import utc
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.page import templates
from fluxbench.notebook.snapshot import Failure, NotRun, Pending
from fluxbench.notebook.store import Result
from fluxbench.report import picture

_PICTURES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where a page finds what lies beside it. `artifact` returns None for one that is not there."""

    artifact: Callable[[str, str], str | None]  # of a cell's id and the artifact's name
    script: Callable[[str], str]  # of a cell's id


def draw(
    code: CodeCell,
    freshness: Freshness,
    failure: Failure | Pending | None,
    links: Links,
    *,
    is_measuring: bool,
    linenos: bool,
) -> Markup:
    """Return a cell's markup: its last good result, with a note above where that is not a fresh one.

    `failure` is the run that failed, or why there was none, of a cell that was to run and did not succeed, or says that
    it is still to run.
    """
    result = freshness.result
    pending = isinstance(failure, Pending)
    failed = not pending and (failure is not None or freshness.state in (State.FAILED, State.MISSING))
    # A cell that never succeeded shows what it printed when it failed.
    shown = failure if isinstance(failure, Result) and result is None else result
    # Of a cell that failed, what went wrong stands below what it gave before.
    errors = (failure if isinstance(failure, Result) else None) if failed else result
    logs, stderr = split_uv_install_logs(errors.run.stderr) if errors else ("", "")
    artifacts = list(result.run.artifacts) if result else []
    linked = [(href, name) for name in artifacts if (href := links.artifact(code.id, name))]
    return templates.filled(
        "cell.html",
        id=code.id,
        failed=failed,
        stale=freshness.state is State.STALE and not pending,
        pending=pending,
        note=_to_come(freshness) if isinstance(failure, Pending) else _note(freshness, failure, failed=failed),
        display=Markup(shown.display) if shown and shown.display else None,
        stdout=shown.run.stdout if shown else "",
        logs=logs,
        stderr=stderr,
        figures=list(_figures(result, linked, display=shown.display if shown else None)) if result else [],
        files=linked,
        facts=[*_facts(code, shown, failed=failed), *_origin(result, is_measuring=is_measuring)],
        tells_facts=is_measuring or failed,
        script=links.script(code.id),
        code=Markup(
            highlight(code.code, PythonLexer(), _formatter(linenos=linenos)).replace("<pre>", '<pre tabindex="0">')
        ),
        hides_code=code.collapse_code,
        hides_output=code.collapse_output,
    )


_formatter = partial(HtmlFormatter, cssclass="highlight")


def _note(freshness: Freshness, failure: Failure | None, *, failed: bool) -> str | None:
    """Return why what a cell shows is not a fresh result, and what it is; None where it is one."""
    result = freshness.result
    if failed:
        why = (
            f"The last run of this cell failed: {failure.run.failure}."
            if isinstance(failure, Result)
            else f"Not run: {failure.reason if isinstance(failure, NotRun) else '; '.join(freshness.reasons)}."
        )
        return f"{why} Below is {_last_good(result)}." if result else why
    if freshness.state is State.STALE and result:
        return f"Stale on this machine: {'; '.join(freshness.reasons)}. This is {_last_good(result)}."
    return None


def _to_come(freshness: Freshness) -> str:
    parts = ["This cell has not run yet."]
    if result := freshness.result:
        parts += [f"Below is {_last_good(result)}."]
        if freshness.state is State.STALE:
            parts += [f"It is stale: {'; '.join(freshness.reasons)}."]
    return " ".join(parts)


def _last_good(result: Result) -> str:
    driver = result.run.depends.get("driver")
    return f"its last good result, of {utc(result.run.ran_at)}" + (f", with driver {driver}" if driver else "")


def _figures(result: Result, linked: Iterable[tuple[str, str]], *, display: str | None) -> Iterator[Markup]:
    """Yield the pictures among a result's artifacts that its display does not hold with a caption.

    Those in SVG become part of the page, in its colours.
    """
    for href, name in linked:
        if display and picture.marker(name) in display:
            continue
        suffix = PurePosixPath(name).suffix
        content = ""
        if suffix == ".svg":
            content = (result.folder / name).read_text(encoding="utf-8", errors="replace")
        if "<svg" in content and "</svg>" in content:
            yield Markup(content)
        elif suffix == ".svg" or suffix in _PICTURES:
            yield Markup('<img src="{}" alt="{}">').format(href, name)


def _facts(code: CodeCell, shown: Result | None, *, failed: bool) -> Iterator[str]:
    if code.deps:
        yield f"deps: {', '.join(code.deps)}"
    if shown and shown.run.duration is not None:
        yield f"{shown.run.duration:.2f}s"
    if failed:
        yield "FAILED"


def _origin(result: Result | None, *, is_measuring: bool) -> Iterator[str]:
    """Yield when a result was made, on what device, with which driver and torch."""
    if result is None:
        return
    records = (result.records or ()) if is_measuring else ()
    times = sorted({utc(record.measured_at) for record in records})
    when = f"measured {' to '.join(dict.fromkeys((times[0], times[-1])))}" if times else f"ran {utc(result.run.ran_at)}"
    depends = records[0].fingerprint if records else result.run.depends
    driver = f"driver {depends['driver']}" if depends.get("driver") else ""
    versions = sorted({record.versions.get("torch", "") for record in records} - {""})
    torch = f"torch {' and '.join(versions)}" if versions else ""
    yield ", ".join(filter(None, (when, str(depends.get("device") or ""), driver, torch)))
