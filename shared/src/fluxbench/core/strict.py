"""JSON that others wrote, read strictly: a regular file, bounded in size, depth, numbers and names, of one type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fluxbench.core import files

T = TypeVar("T")

MOST_BYTES = 16 << 20
_DEEPEST = 64
_LARGEST = 2**63  # of an integer
_BOUNDED = frozenset({float, bool, type(None)})  # types of which every value is in bounds
_LONGEST_KEY = 1024  # characters


class MalformedError(ValueError):
    """A file does not hold what it must; the message says what is wrong."""


def read(path: Path, type_: type[T], most_bytes: int = MOST_BYTES) -> T:
    """Return the value that a file holds. Raises `OSError` also where it is no regular file, and `MalformedError`."""
    return decode(files.read_regular(path, most_bytes), type_)


def decode(content: bytes | str, type_: type[T]) -> T:
    """Return the value of a JSON text. Raises `MalformedError` where it does not fit the type or the bounds.

    msgspec refuses wrong types, numbers that no float holds, and text that is not Unicode.
    """
    try:
        value = msgspec.json.decode(content, type=type_)
    except RecursionError as error:
        raise MalformedError(f"it must be at most {_DEEPEST} levels deep") from error
    except ValueError as error:  # msgspec's own, and Python's of a number with thousands of digits
        raise MalformedError(str(error)) from error
    check_bounds(msgspec.to_builtins(value))
    return value


def check_bounds(value: Any, *, longest_text: int | None = None) -> None:
    """Raise `MalformedError` where dicts and lists are too deep, or hold too long an integer, key or text."""
    bounded = _BOUNDED if longest_text is not None else _BOUNDED | {str}
    level, ahead = 0, [value]
    while ahead:
        level += 1
        if level > _DEEPEST:
            raise MalformedError(f"it must be at most {_DEEPEST} levels deep")
        below: list[Any] = []
        for each in ahead:
            if isinstance(each, dict):
                _check_length(max(each, key=len, default=""), _LONGEST_KEY)
                below += [one for one in each.values() if type(one) not in bounded]
            elif isinstance(each, list | tuple):
                types = set(map(type, each)) - bounded
                if types == {int}:  # of a million numbers two say enough
                    numbers = [one for one in each if type(one) is int]
                    below += (min(numbers), max(numbers))
                elif types:
                    below += [one for one in each if type(one) not in bounded]
            elif isinstance(each, int) and not -_LARGEST <= each < _LARGEST:
                raise MalformedError("an integer must fit in 64 bits")
            elif isinstance(each, str) and longest_text is not None:
                _check_length(each, longest_text)
        ahead = below


def _check_length(text: str, most: int) -> None:
    if len(text) > most:
        raise MalformedError(f"a name must be at most {most:,} characters long, got {text[:40]!r}...")
