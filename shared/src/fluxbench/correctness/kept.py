"""What takes seconds to compute, kept in files for later processes and cells: read whole and right, or not.

A kernel that runs in a worker may write any file of its user. So the first worker of a cell, before it loads a kernel,
tells whoever started it the digests of all files that the cell will read; later ones get these and read no other: what
a kernel wrote since is computed again. Between cells and builds the digest beside the content says only that a file is
whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from fluxbench import operations
from fluxbench.device import cpu
from fluxbench.operations.workload import Workload

MOST_BYTES = 3 << 30  # of all files of a folder; the ones that were used least recently go first
_SPARE = 4  # times as much as a file must be free on the disk
_SUFFIX, _LOCK = ".pt", ".lock"
_DIGEST_BYTES = 64
_PACKAGE = Path(operations.__file__).parents[1]
_SOURCES = ("operations/**/*.py", *(f"correctness/{name}.py" for name in ("allowance", "case", "deviation")))


class Kept:
    """A folder of contents by name. The files must have the digests that are `known`; `note` gets each one's.

    `trusts` files without a known digest too, as long as no kernel can have written them.
    """

    def __init__(
        self,
        folder: Path,
        known: Mapping[str, str] | None = None,
        note: Callable[[str, str], None] = lambda name, digest: None,
        *,
        trusts: bool = True,
    ) -> None:
        self._folder, self._known, self._note, self._trusts = folder, dict(known or {}), note, trusts

    def load(self, name: str) -> Any | None:
        """Return a content; None where there is none, it is damaged, or it has another digest than it had."""
        content = self._read(name)
        try:
            return None if content is None else torch.load(io.BytesIO(content), weights_only=True)
        except Exception:  # noqa: BLE001 - whatever the file of another torch makes it raise: it is computed again
            return None

    @contextlib.contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """Wait until no other process computes a content: there is no need to then, if it was kept."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((self._folder / f"{name}{_LOCK}").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)  # the system releases it when its holder dies
            yield

    def vouch(self, name: str) -> None:
        """Note the digest of a content that a later process will load, where there is one."""
        self._read(name)

    def _read(self, name: str) -> memoryview | None:
        """Return the bytes of a content that is whole and has the digest that it must have."""
        path = self._folder / f"{name}{_SUFFIX}"
        try:
            whole = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        content = memoryview(whole)[_DIGEST_BYTES:]
        digest = hashlib.sha256(content).hexdigest()
        expected = self._known.get(name, digest if self._trusts else None)
        if whole[:_DIGEST_BYTES] != digest.encode() or digest != expected:
            return None
        self._remember(name, digest)
        return content

    def save(self, name: str, content: Any) -> None:
        """Keep a content, whole or not at all; where it cannot be kept, nothing happens."""
        buffer = io.BytesIO()
        torch.save(content, buffer)
        digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
        path = self._folder / f"{name}{_SUFFIX}"
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(buffer.getbuffer().nbytes)
            with part.open("wb") as file:
                file.write(digest.encode())
                file.write(buffer.getbuffer())
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return
        self._remember(name, digest)

    def _remember(self, name: str, digest: str) -> None:
        self._known[name] = digest
        self._note(name, digest)

    def _make_room(self, size: int) -> None:
        """Remove what killed processes left, and the oldest files beyond `MOST_BYTES`. Raises `OSError`: a full disk.

        A disk that is nearly full is left to whoever needs it more.
        """
        for part in self._folder.glob("*.part"):
            if not Path(f"/proc/{part.name.split('.')[-2]}").exists():
                part.unlink(missing_ok=True)
        files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.glob(f"*{_SUFFIX}"))
        total = size + sum(of_file for _, of_file, _ in files)
        for _, of_file, path in files:
            if total <= MOST_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= of_file
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize < _SPARE * size:
            raise OSError("the disk is nearly full")


def name_of_case(workload: Workload, kind: str, seed: int) -> str:
    """Return a name of a case by all that determines its content.

    These are its operation and shape, kind and seed, the sources that make it, torch and the device. A workload's name
    is not: an equal shape has equal cases, and an operation may have those of another (`case_of`).
    """
    case_of = getattr(operations.find(workload.operation), "case_of", lambda shape: (workload.operation, shape))
    operation, shape = case_of(workload.shape)
    facts = (operation, sorted(shape.items()), kind, seed, *_versions(), _sources(operation))
    return f"case-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"


def _versions() -> tuple[str | int | None, ...]:
    """Return what computes: torch, and the GPU that the process uses, or the CPU, its instructions and threads."""
    if torch.cuda.is_initialized():
        return torch.__version__, torch.cuda.get_device_name()
    return torch.__version__, torch.backends.cpu.get_cpu_capability(), cpu.model(), torch.get_num_threads()


@functools.cache
def _sources(operation: str) -> str:
    """Return a digest of the files that make inputs, references and yardsticks, an operation's own included."""
    paths = {path for pattern in _SOURCES for path in _PACKAGE.glob(pattern)}
    own = sys.modules[type(operations.find(operation)).__module__].__file__
    digest = hashlib.sha256()
    for path in sorted(paths | ({Path(own)} if own else set())):
        digest.update(path.read_bytes())
    return digest.hexdigest()
