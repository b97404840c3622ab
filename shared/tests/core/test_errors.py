"""What ends a cell in one sentence; the command line's refusals are in `test_refusals.py`."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from fluxbench.core.errors import SetupError, one_sentence, refusal

FULL = "/a must have free space on its disk, got no room; free some and run it again"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SetupError("it must be so, got otherwise"), "it must be so, got otherwise"),
        (OSError(errno.ENOSPC, "no room", "/b", None, "/a"), FULL),  # a copy: the second name is what is written
        (OSError(errno.EIO, "no", "/a"), "/a must be usable, got no; fix that and run it again"),
        (MemoryError(), "this process must get the memory that it requests, got none; end other programs and run it a"),
    ],
)
def test_a_cell_ends_with_the_sentence(error: Exception, sentence: str) -> None:
    @one_sentence
    def cell() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        cell()
    assert str(caught.value.code).startswith(f"fluxbench: {sentence}")


@pytest.mark.parametrize("error", [OSError("no number"), KeyError("x"), RecursionError()])
def test_what_nobody_foresaw_keeps_its_traceback(error: Exception) -> None:
    @one_sentence
    def cell(number: int, *, path: str) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        cell(1, path="/a")
    assert caught.value is error


def test_a_sentence_leaves_out_the_middle_of_a_long_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Errno") as caught:
        (tmp_path / (150 * "é" + 150 * "x")).touch()
    assert re.fullmatch(
        rf"{tmp_path}/é+…x{{100}} must have a shorter name, got File name too long; Linux .*",
        str(refusal(caught.value)),
    )
