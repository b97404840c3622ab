"""Takes a built page into `reports/<target>/`, whole or not at all, and keeps the records that it replaces."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from fluxbench.analysis.revision import moment
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_bytes, write_gzip
from fluxbench.notebook.build import Built
from fluxbench.notebook.page import folder
from fluxbench.notebook.page.draw import draw
from fluxbench.notebook.published import KEPT
from fluxbench.records import files
from fluxbench.records.schema import RecordError

_SITE = {"index.html": "all devices", "compare.html": "compare"}
OF_NO_DEVICE = "published"


def target_of(built: Built) -> str:
    """Return the folder of `reports/` that a page belongs in: `OF_NO_DEVICE` where its notebook measures nothing."""
    measures = any(map(built.document.is_measuring, built.document.cells))
    return built.target.name if measures else OF_NO_DEVICE


def publish(built: Built, reports: Path, target: str) -> Path:
    """Copy a page and what it was drawn from to `reports/<target>/` and return the page's path there.

    `<notebook>.html` and `<notebook>/` (see `page.folder`) are replaced. Records, control times and trials that are
    replaced by others or by none are kept in `history/<when>/`, by when the newest record of the page before was
    measured, UTC, and never changed again. Above its title are links to the site, if there is one, and to the target's
    other pages there. Raises `SetupError` where the page has problems, `OSError` where it cannot be copied: what is
    published stays as it was.
    """
    if built.problems:
        raise SetupError(f"only a page without problems can be published, got: {'; '.join(built.problems)}")
    twice = next(folder.doubles(folder.places(built.document, built.cells)), None)
    if twice:
        raise SetupError(f"two cells must not leave records of the same name, got {twice[1]!r} from {twice[0]} too")
    home = reports / target
    site = [(f"../{file}", words) for file, words in _SITE.items() if (reports / file).is_file()]
    if site and target != OF_NO_DEVICE:
        site.insert(1, (f"../index.html#card-{target}", "this device"))
    home.mkdir(parents=True, exist_ok=True)
    return draw(built.document, built.cells, {}, home, site=site, finish=_keep_history)


def _keep_history(published: Path, new: Path) -> None:
    """Give a new folder the history of the published one, and those of its records that the new one replaces."""
    if (published / "history").is_dir():
        shutil.copytree(published / "history", new / "history", symlinks=True, copy_function=_link)
    records = published / "records"
    present = [path for path in sorted(records.rglob("*")) if path.is_file() and path.name.endswith(KEPT)]
    texts = {path.relative_to(records): _text(path) for path in present}
    replaced = {name: text for name, text in texts.items() if _text(new / "records" / name) != text}
    if not replaced:
        return
    # Of all that was published, and not of what is replaced: entries then lie in the order in which they were made.
    stamp = f"{_newest(present, texts.values()):%Y-%m-%dT%H%M%SZ}"
    for entry in (new / "history" / name for name in _numbered(stamp)):
        if not entry.exists():
            _add_entry(entry, replaced)
            return
        if all(_text(entry / _kept_as(name)) == text for name, text in replaced.items()):
            return  # it was published, replaced and published again


def _numbered(stamp: str) -> Iterator[str]:
    yield stamp
    yield from (f"{stamp}-{number}" for number in itertools.count(2))


def _add_entry(entry: Path, texts: Mapping[Path, bytes | None]) -> None:
    for name, text in texts.items():
        path = entry / _kept_as(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz":
            write_gzip(path, text or b"")
        else:
            write_bytes(path, text or b"")


def _kept_as(name: Path) -> Path:
    """Return under which name a file is kept: records are compressed."""
    return name.with_name(f"{name.name}.gz") if name.suffix == ".jsonl" else name


def _text(path: Path) -> bytes | None:
    """Return what a file holds, decompressed; None where there is none or it cannot be read."""
    try:
        return files.read_bytes(path)
    except (OSError, RecordError):
        return None


def _link(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file a second name, or copy it where the file system has no such names. Raises `OSError`."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _newest(paths: Iterable[Path], texts: Iterable[bytes | None]) -> datetime:
    """Return when the newest record in some files was measured, UTC, or else when the newest file was written."""
    written = (datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in paths)
    return max(_measured_at(filter(None, texts)), default=None) or max(written)


def _measured_at(texts: Iterable[bytes]) -> Iterator[datetime]:
    """Yield the times in the lines that can be read, of a file of trials in its one object; a file may be damaged."""
    for line in (line for text in texts for line in ([text] if b'"runs": [' in text else text.splitlines())):
        with contextlib.suppress(ValueError, AttributeError, RecursionError, TypeError, KeyError):
            content = json.loads(line)
            for record in [content, *(record for run in content.get("runs", ()) for record in run["records"])]:
                if time := moment(record.get("measured_at")):
                    yield time
