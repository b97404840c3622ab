"""Take a built page into `reports/<target>/`, whole or not at all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fluxbench.notebook.build import Built
from fluxbench.records import write_text
from fluxbench.settings import SetupError


def publish(built: Built, reports: Path, target: str) -> Path:
    """Copy a page and its records to `reports/<target>/` and return the page's path there.

    `<notebook>.html` and `<notebook>/` are replaced, the folder in one step; records go to `<notebook>/records/`, other
    artifacts and the cells' sources beside them. Raises `SetupError` where the page has problems: what is published
    stays as it was.
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
        write_text(new_page, _relinked(built.page.read_text(encoding="utf-8"), name))
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
    for code_id, (cache, result) in built.document.results().items():
        for artifact in result.get("artifacts", []):
            into = folder / "records" if _is_record(artifact) else folder / "artifacts" / code_id
            into.mkdir(exist_ok=True)
            shutil.copy2(cache / artifact, into / artifact)


def _is_record(artifact: str) -> bool:
    return artifact.endswith((".jsonl", ".json"))


def _relinked(page: str, name: str) -> str:
    """Point uvnote's links to artifacts and cells at where `_fill` put them."""

    def moved(match: re.Match[str]) -> str:
        artifact = match["file"]
        where = f"records/{artifact}" if _is_record(artifact) else f"artifacts/{match['cell']}/{artifact}"
        return f'{match["attribute"]}="{name}/{where}"'

    page = re.sub(r'(?P<attribute>href|src)="artifacts/(?P<cell>[\w-]+)/(?P<file>[^"/]+)"', moved, page)
    return re.sub(r'href="cells/([\w-]+\.py)"', rf'href="{name}/cells/\1"', page)
