"""Mutated results, notebooks and progress: each is read, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import REPOSITORY
from mutations import of_bytes
from notebooks import Machine

from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.notebook.document import load
from fluxbench.notebook.store import Store


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
    for mutated in of_bytes(path.read_bytes()):
        path.write_bytes(mutated)
        sentence = ""
        try:
            read(built, path)
        except SetupError as error:
            sentence = str(error)
        assert "\n" not in sentence
