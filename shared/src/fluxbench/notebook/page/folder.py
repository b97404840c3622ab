"""What lies beside a page, in the folder of its notebook: records, artifacts and the cells' sources.

<notebook>.html
<notebook>/records/               what measuring cells left, and every other JSON file
<notebook>/artifacts/<cell>/      figures and tables
<notebook>/cells/<cell>.py
<notebook>/summary.json           of a certificate
<notebook>/history/               of a published page only
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from fluxbench.core.files import write_gzip, write_text
from fluxbench.notebook import scripts
from fluxbench.notebook.document import Document
from fluxbench.notebook.freshness import Freshness
from fluxbench.notebook.page.cells import Links
from fluxbench.records import files
from fluxbench.report import results

_GATHERED = results.OUTPUTS  # copies of what measuring cells left
_COMPRESSED = ("trials.json",)  # it holds every sample
_LARGE_BYTES = 1 << 20  # of records, from which on they are compressed: a grid of 5,940 rows has 120 MB

Places = Mapping[tuple[str, str], str]  # of a cell's artifact, relative to the folder


def places(document: Document, cells: Mapping[str, Freshness]) -> dict[tuple[str, str], str]:
    """Return the place of each artifact by its cell and name; those that have none are left out.

    Of files that would have one place, the first cell's has it; the others lie in `artifacts/<cell>/`.
    """
    found: dict[tuple[str, str], str] = {}
    taken = set[str]()
    for code in document.cells:
        result = cells[code.id].result
        for name in result.run.artifacts if result else ():
            if result and (place := _place(code.id, name)):
                place = _compressed(result.folder / name, place)
                place = place if place not in taken else f"artifacts/{code.id}/{name}"
                taken.add(place)
                found[code.id, name] = place
    return found


def doubles(found: Places) -> Iterator[tuple[str, str]]:
    """Yield the cell and the name of each artifact that lies elsewhere because another cell's has its place."""
    yield from (
        key for key, place in found.items() if place.removesuffix(".gz") != str(_place(*key)).removesuffix(".gz")
    )


def links(notebook: str, found: Places) -> Links:
    """Return where a page finds what lies in its folder."""

    def artifact(cell_id: str, name: str) -> str | None:
        place = found.get((cell_id, name))
        return f"{notebook}/{place}" if place else None

    return Links(artifact=artifact, script=lambda cell_id: f"{notebook}/cells/{cell_id}.py")


def fill(folder: Path, document: Document, cells: Mapping[str, Freshness], found: Places) -> None:
    """Copy artifacts and the cells' sources into a new folder. Raises `OSError`."""
    for sub in ("records", "artifacts", "cells"):
        (folder / sub).mkdir(parents=True)
    for code in document.cells:
        write_text(folder / "cells" / f"{code.id}.py", scripts.source(code))
        result = cells[code.id].result
        for name in result.run.artifacts if result else ():
            if not (result and (place := found.get((code.id, name)))):
                continue
            source, copy = result.folder / name, folder / place
            copy.parent.mkdir(parents=True, exist_ok=True)
            if place.endswith(".gz") and not name.endswith(".gz"):
                write_gzip(copy, source.read_bytes())
            else:
                shutil.copy2(source, copy)


def _compressed(path: Path, place: str) -> str:
    """Return the place of a file, with another suffix where it holds so many records that they are compressed."""
    is_large = place.endswith(".jsonl") and path.is_file() and path.stat().st_size >= _LARGE_BYTES
    return f"{place}.gz" if is_large else place


def _place(cell_id: str, name: str) -> str | None:
    """Return where an artifact goes; None for one that lies nowhere."""
    if name in _GATHERED:
        return None
    if name == "summary.json":
        return name
    if name in _COMPRESSED:
        return f"records/{name}.gz"
    if name.endswith((".json", ".json.gz", *files.SUFFIXES)):
        return f"records/{name}"
    return f"artifacts/{cell_id}/{name}"
