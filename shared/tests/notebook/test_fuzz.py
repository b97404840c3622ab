"""Seeded mutations of what others wrote: each is read, or refused in one sentence. `FUZZ=20000` tries more of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import REPOSITORY
from notebooks import Machine

from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.notebook.document import load
from fluxbench.notebook.store import Store

COUNT = int(os.environ.get("FUZZ", "100"))
PIECES = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b"1e999", b"-1", b"NaN", b"null", b'"', b"{", b"[" * 5000),
    *(
        b"9" * 5000,
        b"../",
        b"\n",
        b"---\n",
        b"```",
        b"```python id=",
        b"# ///\n",
        b"requires-python = 1\n",
        b": [",
        b"<b>",
    ),
)


def mutations(content: bytes) -> Iterator[bytes]:
    """Yield a text with one to three pieces of it removed, repeated, or replaced by something else."""
    chance = random.Random(1)
    for _ in range(COUNT):
        mutated = content
        for _ in range(chance.randint(1, 3)):
            begin = chance.randrange(len(mutated) + 1)
            end = begin + chance.choice((0, 1, 8, 200))
            piece = chance.choice((*PIECES, b"", mutated[begin:end] * 2, bytes([chance.randrange(256)])))
            mutated = mutated[:begin] + piece + mutated[end:]
        yield mutated


def read_result(machine: Machine, path: Path) -> None:
    if Store(load(machine.notebook)).latest("first"):
        machine.reasons("first")


def read_notebook(machine: Machine, path: Path) -> None:
    load(path)


def read_progress(machine: Machine, path: Path) -> None:
    progress.read(path)


KINDS: dict[str, tuple[Callable[[Machine, Path], None], Callable[[Machine], Path]]] = {
    "results": (read_result, lambda machine: machine.good("first").folder / "result.json"),
    "notebooks": (read_notebook, lambda machine: machine.notebook),
    "progress": (read_progress, lambda machine: machine.folder / "progress"),
}


@pytest.mark.parametrize(("read", "place"), KINDS.values(), ids=KINDS)
def test_whatever_others_wrote_is_read_or_refused(
    built: Machine, read: Callable[[Machine, Path], None], place: Callable[[Machine], Path]
) -> None:
    path = place(built)
    if read is read_notebook:
        path.write_bytes((REPOSITORY / "notebooks" / "certificate.md").read_bytes())
    elif read is read_progress:
        path.write_bytes(b'{"steps": 12}\n{"variant": "flex", "workload": "tiny"}\n{"step": "waits"}\n')
    for mutated in mutations(path.read_bytes()):
        path.write_bytes(mutated)
        sentence = ""
        try:
            read(built, path)
        except SetupError as error:
            sentence = str(error)
        assert "\n" not in sentence
