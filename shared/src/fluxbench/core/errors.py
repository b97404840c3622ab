"""The one-sentence error, and the one place that turns what the system refuses into it."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

# errno -> the rule that the named file breaks, and what to do. A number that is not here has the last of these.
_DENIED = ("be readable and writable for you", "change its owner or mode, or name another place")
_FULL = ("have free space on its disk", "free some and run it again")
_TOO_MANY = ("fit in the limit of open files", "raise the limit with `ulimit -n`")
_NO_PROCESS = ("get memory and processes", "end other programs, or raise the limit with `ulimit -u`")
_IN_THE_WAY = ("be possible to create or remove", "move what is there and run it again")
_REFUSALS = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: ("be on a writable file system", "mount it writable, or name another place"),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: ("fit in the limit of file size", "raise the limit with `ulimit -f`"),
    errno.EMFILE: _TOO_MANY,
    errno.ENFILE: _TOO_MANY,
    errno.ENOMEM: _NO_PROCESS,
    errno.EAGAIN: _NO_PROCESS,
    errno.ENAMETOOLONG: ("have a shorter name", "Linux allows 255 bytes in a name and 4,095 in a path"),
    errno.E2BIG: ("start with shorter arguments and variables", "Linux allows 128 KiB for each"),
    errno.ENOENT: ("exist", "run it again if it was just removed, or correct its name"),
    errno.ENOTDIR: ("be in a folder, not in a file", "move away the file that is in the folder's place"),
    errno.EISDIR: ("be a file, not a folder", "move the folder away"),
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.ELOOP: ("not be part of a loop of links", "fix the links"),
    errno.EADDRINUSE: ("be a free address", "choose another port"),
}
_OTHER = ("be usable", "fix that and run it again")
_CAUSE = "Last error:"  # of NCCL
_OF_SUBPROCESS = "An exception occurred in a subprocess:"  # of torch's compiler; its traceback follows, then advice
_TRACEBACK, _ADVICE = "Traceback (most recent call last):", "\nSet TORCH"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(:|$)")  # how the line after a traceback's frames begins
_LONGEST_NAME = 200  # characters of a file's name that a sentence shows


class SetupError(Exception):
    """This machine or request is not as it must be; the message is one sentence with what to do."""


def refusal(error: BaseException) -> str | None:
    """Return the sentence of a `SetupError`, or for what the system refuses: memory, or any `OSError` with a number.

    None for every other error, which is unexpected.
    """
    if isinstance(error, SetupError):
        return str(error)
    if isinstance(error, MemoryError):
        return "this process must get the memory that it requests, got none; end other programs and run it again"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    rule, advice = _REFUSALS.get(error.errno, _OTHER)
    name = error.filename2 or error.filename  # of a copy, the second is what is written
    return f"{_shown(name)} must {rule}, got {error.strerror}; {advice}"


def first_sentence(error: BaseException) -> str:
    """Return the first line of what an exception says, of 200 characters at most.

    Of one of NCCL the first line of its cause, which stands last. Of one in a subprocess of torch's compiler what that
    raised, with the last line of it, which says why, where the first one says where.
    """
    text = str(error)
    if _OF_SUBPROCESS in text:
        text = _raised(text.partition(_OF_SUBPROCESS)[2])
    text = text.rpartition(_CAUSE)[2]  # all of it where it names no cause
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    sentence = (lines or [type(error).__name__])[0]
    return sentence if len(sentence) <= 200 else sentence[:199] + "…"


def _raised(text: str) -> str:
    """Return what the last traceback of a text ends with, in one line; all of a text without one."""
    lines = text.rpartition(_TRACEBACK)[2].partition(_ADVICE)[0].splitlines()
    raised = [line.strip() for line in itertools.dropwhile(lambda line: not _RAISED.match(line), lines) if line.strip()]
    if not raised:
        return text
    return raised[0] if len(raised) == 1 else f"{raised[0].rstrip(':')}: {raised[-1]}"


def one_sentence(function: Callable[P, None]) -> Callable[P, None]:
    """End a cell with one sentence and exit code 1 where the function raises `SetupError` or the system refuses."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (SetupError, OSError, MemoryError) as error:
            if not (sentence := refusal(error)):
                raise
            sys.exit(f"fluxbench: {sentence}")

    return wrapped


def keep_traceback(error: BaseException) -> Path:
    """Write an error's traceback and what was run to a file of its own in the temporary folder, and return its path.

    Raises `OSError`.
    """
    descriptor, name = tempfile.mkstemp(prefix="fluxbench-", suffix=".traceback.txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{shlex.join(sys.argv)}\nPython {sys.version} on {sys.platform}\n\n")
        traceback.print_exception(error, file=file)
    return Path(name)


def _shown(name: str | bytes | int | None) -> str:
    """Return a file's name as a sentence begins with it, the middle of a long one left out."""
    if name is None or isinstance(name, int):
        return "a file"
    text = os.fsdecode(name)
    half = _LONGEST_NAME // 2
    return text if len(text) <= _LONGEST_NAME else f"{text[:half]}…{text[-half:]}"
