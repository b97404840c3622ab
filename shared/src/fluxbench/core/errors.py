"""The one-sentence error, and what turns the system's refusals into it."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class SetupError(Exception):
    """This machine or request is not as it must be; the message is one sentence with what to do."""


def full_disk(error: OSError) -> str | None:
    """Return the sentence for an error that is a full disk, or None."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    name = error.filename2 or error.filename  # of a copy, the second is what is written
    where = f" ({name})" if name else ""
    return f"the disk is full{where}; free some space and run it again"


def one_sentence(function: Callable[P, None]) -> Callable[P, None]:
    """End a cell with one sentence and exit code 1 where the function raises `SetupError` or the disk is full."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except SetupError as error:
            sys.exit(f"fluxbench: {error}")
        except OSError as error:
            if not (sentence := full_disk(error)):
                raise
            sys.exit(f"fluxbench: {sentence}")

    return wrapped
