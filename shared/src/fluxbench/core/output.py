"""What a command prints: a reader that goes away ends no work, and what others wrote cannot steer the terminal."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import signal
import sys
import unicodedata
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT, _STDERR = 1, 2
# Where a build is stopped; of the certificate's trials and the device's rates nothing is kept.
KEPT = "finished cells and all earlier results are kept, and of most other cells what finished processes had measured"


def printable(text: str) -> str:
    r"""Return a text with its control and other invisible characters as `\u001b`, which JSON reads as the same.

    Line ends and tabs stay, and so do letters and signs of every language.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(letter) if _is_control(letter) else letter for letter in text)


def one_line(text: str) -> str:
    r"""Return a text on one line, a line end in it as `\n`, so that nothing in it can look like a line of ours."""
    return printable(text).replace("\n", "\\n")


class Output(io.TextIOWrapper):
    """A stream of this process: `printable` text to a descriptor that may be lost at any time.

    Where the reader is gone, what is printed goes nowhere. stderr only says how the work goes, so no error of writing
    to it is worth failing for; what stdout cannot take for another reason, such as a full disk, is an `OSError`.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        is_line_buffered = descriptor == _STDERR or os.isatty(descriptor)
        super().__init__(
            io.BufferedWriter(_Descriptor(descriptor)), encoding, "backslashreplace", line_buffering=is_line_buffered
        )

    def write(self, text: str) -> int:
        """Print a text."""
        super().write(printable(text))
        return len(text)

    def drawn(self) -> TextIO:
        """Return a stream to the same place for who moves the terminal's cursor, and makes its texts `printable`."""
        return io.TextIOWrapper(io.BufferedWriter(_Descriptor(self.fileno())), self.encoding, "backslashreplace")


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Print by `Output` within this block; a descriptor that was closed at the start leads nowhere."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # else the next file opened would be printed to
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:  # and not what a caller put in its place
        sys.stdout = Output(_STDOUT, getattr(sys.stdout, "encoding", "utf-8"))
    if sys.stderr is sys.__stderr__:
        sys.stderr = Output(_STDERR, getattr(sys.stderr, "encoding", "utf-8"))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


class _Descriptor(io.FileIO):
    """A descriptor of somebody else's, who may close it or let it fill."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_lost = False

    def write(self, data: ReadableBuffer) -> int:
        """Write bytes and return how many were taken."""
        if not self._is_lost:
            try:
                while (count := super().write(data)) is None:  # somebody made it non-blocking, and it is full
                    select.select([], [self], [])
                return count
            except OSError as error:
                self._is_lost = True  # what is buffered must not fail again when the process ends
                if self.fileno() == _STDOUT and error.errno != errno.EPIPE:
                    error.filename = "standard output"
                    raise
        return memoryview(data).nbytes


def _is_control(letter: str) -> bool:
    return letter not in "\n\t" and (unicodedata.category(letter)[0] == "C" or letter in "\u2028\u2029")


def _escaped(letter: str) -> str:
    """Return a letter as JSON escapes it: two surrogates beyond the 16 bits of one."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def terminated(number: int, frame: FrameType | None) -> NoReturn:
    """End the process on a signal, with a sentence.

    Where make passes a signal on, each process of its group gets it twice, in the midst of a `print` too.
    """
    signal.signal(number, _again)
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"\nfluxbench: terminated; {KEPT}\n".encode())
    sys.exit(128 + number)


def _again(number: int, frame: FrameType | None) -> None:
    """Pass over a signal that comes again. Of one that is ignored by then, Python may print that it was."""
