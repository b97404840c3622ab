"""Take a built page into `reports/<target>/`, whole or not at all, and keep the records that it replaces."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from fluxbench.analysis.history import moment
from fluxbench.core.errors import SetupError
from fluxbench.notebook.build import Built
from fluxbench.records.schema import write_text


def publish(built: Built, reports: Path, target: str) -> Path:
    """Copy a page and its records to `reports/<target>/` and return the page's path there.

    `<notebook>.html` and `<notebook>/` are replaced, the folder in one step; records go to `<notebook>/records/`, a
    `summary.json` to `<notebook>/` itself, other artifacts and the cells' sources beside them. Files of `records/` that
    are replaced by others or by none are kept in `<notebook>/history/<when>/`, by when the newest record of the page
    before was measured, UTC; that is never changed again.
    Raises `SetupError` where the page has problems or the disk is full: what is published stays as it was.
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
        _keep(final, new)
        text = _relinked(built.page.read_text(encoding="utf-8"), name)
        write_text(new_page, _beside_site(text, reports))
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


def _fill(folder: Path, built: Built) -> None:
    for sub in ("records", "artifacts", "cells"):
        (folder / sub).mkdir(parents=True)
    for code in built.document.cells:
        shutil.copy2(built.document.work / "cells" / f"{code.id}.py", folder / "cells")
    for cell_id, cell in built.cells.items():
        if cell.result is None:
            continue
        for artifact in cell.result.artifacts:
            into = folder / _place(artifact, cell_id)
            if into.exists():
                raise SetupError(
                    f"two cells must not leave records of the same name, got {artifact!r} from {cell_id} too"
                )
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(cell.result.folder / artifact, into)


def _keep(published: Path, new: Path) -> None:
    """Give a new folder the history of the published one, and those of its records that are not the new ones."""
    if (published / "history").is_dir():
        shutil.copytree(published / "history", new / "history", symlinks=True, copy_function=_link)
    folder = published / "records"
    there = {file.relative_to(folder): file for file in sorted(folder.rglob("*")) if _is_record(file.name)}
    files = {name: file for name, file in there.items() if file.is_file()}
    replaced = {name: file for name, file in files.items() if not _same(file, new / "records" / name)}
    if not replaced:
        return
    # Of all that was published, and not of what is replaced: entries then lie in the order in which they were made.
    stamp = f"{_newest(files.values()):%Y-%m-%dT%H%M%SZ}"
    names = itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2)))
    entry = next(each for name in names if not (each := new / "history" / name).exists() or _holds(each, replaced))
    if entry.exists():  # it was published, replaced and published again
        return
    for name, file in replaced.items():
        (entry / name).parent.mkdir(parents=True, exist_ok=True)
        _link(file, entry / name)


def _holds(entry: Path, files: Mapping[Path, Path]) -> bool:
    return all(_same(file, entry / name) for name, file in files.items())


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:  # what cannot be read is kept
        return False


def _link(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file a second name, or copy it where the file system has no such names. Raises `OSError`."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _newest(files: Collection[Path]) -> datetime:
    """Return when the newest record in some files was measured, UTC, or else when the newest file was written."""
    written = (datetime.fromtimestamp(file.stat().st_mtime, UTC) for file in files)
    return max(_measured_at(files), default=None) or max(written)


def _measured_at(files: Iterable[Path]) -> Iterator[datetime]:
    """Yield the times in the lines that can be read: a file may be damaged, or of another schema."""
    for file in files:
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, AttributeError, RecursionError):
                    if time := moment(json.loads(line).get("measured_at")):
                        yield time


def _is_record(artifact: str) -> bool:
    return artifact.endswith((".jsonl", ".json"))


def _place(artifact: str, cell_id: str) -> str:
    """Return where an artifact goes, relative to the notebook's folder."""
    if artifact == "summary.json":
        return artifact
    return f"records/{artifact}" if _is_record(artifact) else f"artifacts/{cell_id}/{artifact}"


def _relinked(page: str, name: str) -> str:
    """Point uvnote's links to artifacts and cells at where `_fill` put them."""

    def moved(match: re.Match[str]) -> str:
        return f'{match["attribute"]}="{name}/{_place(match["file"], match["cell"])}"'

    page = re.sub(r'(?P<attribute>href|src)="artifacts/(?P<cell>[\w-]+)/(?P<file>[^"]+)"', moved, page)
    return re.sub(r'href="cells/([\w-]+\.py)"', rf'href="{name}/cells/\1"', page)


def _beside_site(page: str, reports: Path) -> str:
    """Link a page to those pages of the site that are there."""
    names = {"index.html": "all devices", "compare.html": "compare"}
    links = [f'<a href="../{file}">{name}</a>' for file, name in names.items() if (reports / file).is_file()]
    nav = f'<nav class="where" aria-label="Site">{" ".join(links)}</nav>' if links else ""
    return page.replace('<button type="button" id="theme"', f'{nav}<button type="button" id="theme"', 1)
