"""Where a build's time went: when each cell ran, kept beside the notebook's results, and what measuring cells did then.

All times are monotonic seconds, which processes of one machine share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fluxbench.core import strict
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_text
from fluxbench.notebook.document import Document
from fluxbench.notebook.store import Store
from fluxbench.records import files
from fluxbench.records.schema import RecordError

# What a moment counts as where several things happen in it: the first of these.
KINDS = ("measuring", "checking", "compiling", "importing", "drawing", "waiting", "other")
_KIND_OF = {"environment": "importing", "preparing": "checking", "probing": "checking"}  # phases of other names
_MOST_BYTES = 1 << 26
_COLUMNS = (
    "The page counts each moment once, in the leftmost column of its cells. "
    "busy: seconds of measured calls on the device, but for its own rates."
)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's run, or a drawing of the whole page before all was measured."""

    cell: str
    measures: bool
    begin_s: float
    end_s: float


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build that ran at least one cell."""

    begin_s: float
    end_s: float
    spans: tuple[Span, ...]


class _Phases(msgspec.Struct, frozen=True):
    """What of a cell's samples or rates is read: what its processes did when, and how long the device was busy.

    Of rates the latter is not known.
    """

    phases: tuple[tuple[str, float, float], ...] = ()  # name, begin_s, end_s
    busy_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """Where the time of a cell, or of the whole build, went: seconds by kind of `KINDS`, each moment counted once."""

    name: str
    wall_s: float
    by_kind_s: Mapping[str, float]
    busy_s: float | None  # of the device; None where nothing says so


def write(document: Document, build: Build) -> None:
    """Keep a build's times in the place of those of the build before. Raises `OSError`."""
    write_text(_path(document), msgspec.json.encode(build).decode() + "\n")


def read(document: Document) -> tuple[list[Share], Share]:
    """Return where the time of each cell of the last build went, and of all of it.

    Raises `SetupError` where no build was kept.
    """
    path = _path(document)
    try:
        build = strict.read(path, Build, _MOST_BYTES)
    except (OSError, strict.MalformedError) as error:
        raise SetupError(f"{path} must hold a build's times, got {error}; run `fluxbench build` first") from error
    store, shares, everything, busy_s = Store(document), list[Share](), list[tuple[str, float, float]](), list[float]()
    for span in build.spans:
        if span.measures:
            read = _phases(store, span)
            phases = [(_KIND_OF.get(name, name), begin, end) for name, begin, end in read.phases]
            busy_s += [read.busy_s] if phases and read.busy_s is not None else []
        else:
            read, phases = _Phases(), [("drawing", span.begin_s, span.end_s)]
        shares.append(_share(span.cell, phases, span.begin_s, span.end_s, read.busy_s if phases else None))
        everything += phases
    return shares, _share("the page", everything, build.begin_s, build.end_s, sum(busy_s) if busy_s else None)


def _share(
    name: str, phases: Iterable[tuple[str, float, float]], begin_s: float, end_s: float, busy_s: float | None
) -> Share:
    return Share(name=name, wall_s=end_s - begin_s, by_kind_s=split(phases, begin_s, end_s), busy_s=busy_s)


def split(phases: Iterable[tuple[str, float, float]], begin_s: float, end_s: float) -> dict[str, float]:
    """Return how many seconds between two moments are of each kind; what no phase covers is "other"."""
    by_kind = dict.fromkeys(KINDS, 0.0)
    running = Counter({"other": 1})
    before = begin_s
    for moment, kind, change in sorted(_edges(phases, begin_s, end_s)):
        by_kind[next(each for each in KINDS if running[each])] += moment - before
        running[kind] += change
        before = moment
    by_kind[next(each for each in KINDS if running[each])] += end_s - before
    return by_kind


def _edges(
    phases: Iterable[tuple[str, float, float]], begin_s: float, end_s: float
) -> Iterator[tuple[float, str, int]]:
    for kind, begin, end in phases:
        begin, end = max(begin, begin_s), min(end, end_s)
        if begin < end and kind in KINDS:
            yield begin, kind, 1
            yield end, kind, -1


def _phases(store: Store, span: Span) -> _Phases:
    """Return what a cell did in this run; nothing where its last good result is of another one."""
    result = store.last_good(span.cell)
    if result is None:
        return _Phases()
    samples = result.folder / f"{span.cell}.samples.json.gz"
    try:
        read = files.read_json(samples if samples.exists() else result.folder / "rates.json", _Phases, "phases")
    except (OSError, RecordError):
        return _Phases()
    inside = all(span.begin_s <= begin <= end <= span.end_s for _, begin, end in read.phases)
    return read if inside else _Phases()


def _path(document: Document) -> Path:
    return document.work / f"{document.path.stem}.times.json"


def text(cells: Iterable[Share], page: Share) -> str:
    """Return a table for a terminal: a line for each cell and for the page, seconds by kind."""
    lines = [f"{'seconds':<18}{'wall':>8}" + "".join(f"{kind:>11}" for kind in KINDS) + f"{'busy':>8}"]
    for share in (*cells, page):
        seconds = "".join(f"{share.by_kind_s[kind]:>11.1f}" for kind in KINDS)
        busy = "-" if share.busy_s is None else f"{share.busy_s:.1f}"
        lines.append(f"{share.name:<18}{share.wall_s:>8.1f}{seconds}{busy:>8}")
    lines += [
        "",
        _COLUMNS,
        f"The device was being measured for {page.by_kind_s['measuring'] / page.wall_s:.0%} of the wall time",
    ]
    lines[-1] += "." if page.busy_s is None else f", and busy for {page.busy_s / page.wall_s:.0%}."
    return "\n".join(lines)
