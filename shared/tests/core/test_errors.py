"""What the system refuses, as one sentence."""

from __future__ import annotations

import errno

import pytest

from fluxbench.core.errors import SetupError, full_disk, one_sentence


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_spent_quota_are_one_sentence(number: int) -> None:
    assert full_disk(OSError(number, "no room")) == "the disk is full; free some space and run it again"
    named = OSError(number, "no room", "/a/sdpa.jsonl")
    assert full_disk(named) == "the disk is full (/a/sdpa.jsonl); free some space and run it again"


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no", "/a"), OSError(errno.EACCES, "no"), OSError("no room")])
def test_another_error_is_no_full_disk(error: OSError) -> None:
    assert full_disk(error) is None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SetupError("it must be so, got otherwise"), "fluxbench: it must be so, got otherwise"),
        (OSError(errno.ENOSPC, "no room"), "fluxbench: the disk is full; free some space and run it again"),
    ],
)
def test_a_cell_ends_with_the_sentence(error: Exception, sentence: str) -> None:
    @one_sentence
    def cell() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        cell()
    assert caught.value.code == sentence


def test_any_other_error_of_a_cell_keeps_its_traceback() -> None:
    @one_sentence
    def cell(number: int, *, path: str) -> None:
        raise OSError(number, "no", path)

    with pytest.raises(OSError, match="no") as caught:
        cell(errno.EIO, path="/a")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "/a")
