"""The published records that a showing cell reads: a change of them makes its result stale."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from uvnote.parser import CodeCell

from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.device.targets import target_name
from fluxbench.environments import cell
from fluxbench.notebook.document import Document
from fluxbench.notebook.store import Store
from fluxbench.records import files
from fluxbench.records.schema import RecordError

KEPT = (*files.SUFFIXES, *files.CONTROL_SUFFIXES, "trials.json.gz")  # in the history of a page
_RESULTS = (*KEPT, "trials.json")  # as a cell leaves them


def of(code: CodeCell, document: Document, device: Device, settings: Settings) -> str:
    """Return a hash of the published records that a showing cell reads; "" where there are none.

    A cell that needs a measuring one gathers those of its notebook on this target, and those of the notebooks that its
    header reads. Where nothing is measured, as for the audit, all records are read. Their content counts, and not
    where they lie. The present results of the notebook are left out, so that publishing them makes no cell stale.
    """
    reports, measuring = settings.root / "reports", [each.id for each in document.cells if document.is_measuring(each)]
    if measuring:
        own = [document.path.stem] if set(measuring) & set(code.needs) else []
        homes = [reports / target_name(device, name) / name for name in (*own, *cell.reads(code.code))]
        folders = [folder for home in homes for folder in (home / "records", *_listed(home / "history"))]
    else:
        folders = [home / "records" for target in _listed(reports) for home in _listed(target)]
    if not (found := set(_hashes(folders, KEPT))):
        return ""
    store = Store(document)
    present = [result.folder for cell_id in measuring if (result := store.last_good(cell_id))]
    others = sorted(found - set(_hashes(present, _RESULTS)))
    return hashlib.sha256("".join(others).encode()).hexdigest()[:12] if others else ""


def _hashes(folders: Iterable[Path], names: tuple[str, ...]) -> Iterator[str]:
    """Yield the hash of each file in folders whose name ends with one of these."""
    for path in (path for folder in folders for path in _listed(folder) if path.name.endswith(names)):
        with contextlib.suppress(FileNotFoundError):  # another page is published meanwhile
            stat = path.lstat()
            yield _hash_of(path, stat.st_mtime_ns, stat.st_size)


def _listed(folder: Path) -> list[Path]:
    """Return what a folder holds but what is hidden, as a page is until it is published whole; none if it is gone."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    return []


@functools.lru_cache(maxsize=4096)  # several cells read the same files
def _hash_of(path: Path, mtime_ns: int, size: int) -> str:
    """Return the hash of what a file holds, decompressed; of one that cannot be read that of why."""
    try:
        content = files.read_bytes(path)
    except (OSError, RecordError) as error:
        content = str(error).encode()
    return hashlib.sha256(content).hexdigest()
