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

from fluxbench.analysis.history import moment
from fluxbench.core.errors import SetupError
from fluxbench.core.files import write_bytes, write_gzip, write_text
from fluxbench.notebook.build import Built
from fluxbench.notebook.page.cells import Links
from fluxbench.notebook.page.draw import render
from fluxbench.records import files
from fluxbench.records.schema import RecordError
from fluxbench.report import results

_SITE = {"index.html": "all devices", "compare.html": "compare"}
_GATHERED = (results.RECORDS, results.EARLIER, results.REST)  # copies of what measuring cells left
_COMPRESSED = ("trials.json",)  # it holds every sample
_TRIALS = "trials.json.gz"
_KEPT = (*files.SUFFIXES, *files.CONTROL_SUFFIXES, _TRIALS)  # in the history


def publish(built: Built, reports: Path, target: str) -> Path:
    """Copy a page and what it was drawn from to `reports/<target>/` and return the page's path there.

    `<notebook>.html` and `<notebook>/` are replaced, the folder in one step: `records/` holds what measuring cells left
    and every other JSON file, `artifacts/` figures and tables, `cells/` the cells' sources, and `summary.json` lies in
    the folder itself. Records, control times and trials that are replaced by others or by none are kept in
    `history/<when>/`, by when the newest record of the page before was measured, UTC, and never changed again. Raises
    `SetupError` where the page has problems or the disk is full: what is published stays as it was.
    """
    if built.problems:
        raise SetupError(f"only a page without problems can be published, got: {'; '.join(built.problems)}")
    name = built.document.path.stem
    home = reports / target
    home.mkdir(parents=True, exist_ok=True)
    new, old, final = home / f".{name}.new", home / f".{name}.old", home / name
    new_page, page = home / f".{name}.html.new", home / f"{name}.html"
    shutil.rmtree(new, ignore_errors=True)
    if old.exists() and not final.exists():  # an earlier publish was interrupted between its two steps
        old.rename(final)
    try:
        _fill(new, built)
        _keep_history(final, new)
        write_text(new_page, _page(built, name, reports))
    except SetupError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise SetupError(f"the page could not be copied to {home}: {error}; what was published is untouched") from error
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    new.rename(final)
    new_page.replace(page)
    shutil.rmtree(old, ignore_errors=True)
    return page


def _page(built: Built, name: str, reports: Path) -> str:
    """Return the page with links to where `_fill` puts things, and to those pages of the site that are there."""

    def artifact(cell_id: str, artifact_name: str) -> str | None:
        place = _place(cell_id, artifact_name)
        return f"{name}/{place}" if place else None

    links = Links(artifact=artifact, script=lambda cell_id: f"{name}/cells/{cell_id}.py")
    site = [(f"../{file}", words) for file, words in _SITE.items() if (reports / file).is_file()]
    return render(built.document, built.cells, {}, links, site)


def _place(cell_id: str, artifact: str) -> str | None:
    """Return where an artifact goes, relative to the notebook's folder; None for one that is not published."""
    if artifact in _GATHERED:
        return None
    if artifact == "summary.json":
        return artifact
    if artifact in _COMPRESSED:
        return f"records/{artifact}.gz"
    if artifact.endswith((".json", ".json.gz", *files.SUFFIXES)):
        return f"records/{artifact}"
    return f"artifacts/{cell_id}/{artifact}"


def _fill(folder: Path, built: Built) -> None:
    """Copy artifacts and the cells' sources into a new folder. Raises `SetupError` where two would be one file."""
    for sub in ("records", "artifacts", "cells"):
        (folder / sub).mkdir(parents=True)
    for code in built.document.cells:
        shutil.copy2(built.document.work / "cells" / f"{code.id}.py", folder / "cells")
    for cell_id, cell in built.cells.items():
        for artifact in cell.result.run.artifacts if cell.result else ():
            if not (cell.result and (place := _place(cell_id, artifact))):
                continue
            copy, source = folder / place, cell.result.folder / artifact
            if copy.exists():
                raise SetupError(
                    f"two cells must not leave records of the same name, got {artifact!r} from {cell_id} too"
                )
            copy.parent.mkdir(parents=True, exist_ok=True)
            if artifact in _COMPRESSED:
                write_gzip(copy, source.read_text(encoding="utf-8"))
            else:
                shutil.copy2(source, copy)


def _keep_history(published: Path, new: Path) -> None:
    """Give a new folder the history of the published one, and those of its records that the new one replaces."""
    if (published / "history").is_dir():
        shutil.copytree(published / "history", new / "history", symlinks=True, copy_function=_link)
    folder = published / "records"
    present = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.endswith(_KEPT)]
    texts = {path.relative_to(folder): _text(path) for path in present}
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
