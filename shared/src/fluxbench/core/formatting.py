"""Numbers -> text, at the edge only: records keep one unit each, and here it is decided how many digits are shown."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

_WIDE = 0.05  # half an interval over its number above which ± would hide where the interval lies
_UNKNOWN = 10.0  # times its number, or a tenth, beyond which an end of an interval says nothing
_ONE = 1.000001  # unit of the last decimal, with room for binary fractions
_WIDTH = 118  # of a terminal's lines


def decimals(value: float, digits: int = 3) -> int:
    """Return how many decimals show a number to so many significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1


def number(value: float, digits: int = 3) -> str:
    """Return a number to so many significant digits, never in powers of ten: `0.400`, `12.3`, `1,234`."""
    return f"{value:,.{decimals(value, digits)}f}"


def is_unknown(value: float, ends: tuple[float, float]) -> bool:
    """Whether an interval says nothing: it reaches from under a tenth of its number to over ten times as much."""
    return 0 <= ends[0] < value / _UNKNOWN and ends[1] > value * _UNKNOWN


def interval(value: float, ends: tuple[float, float], digits: int = 3, unit: str = "") -> str:
    """Return a number and its interval with equally many decimals: `0.400 ms [0.398, 0.402]`.

    One that says nothing (`is_unknown`) has no ends: `0.400 ms [unknown]`.
    """
    if is_unknown(value, ends):
        return f"{number(value, digits)}{unit} [unknown]"
    places = _places(value, ends, digits)
    return f"{value:,.{places}f}{unit} [{ends[0]:,.{places}f}, {ends[1]:,.{places}f}]"


def plus_minus(value: float, ends: tuple[float, float], digits: int = 3) -> str:
    """Return a number and half the width of its interval with equally many decimals: `0.400 ±0.002`.

    An interval that is wide, or whose sides differ by more than one unit of what is shown, has both its ends.
    """
    places, half = _places(value, ends, digits), (ends[1] - ends[0]) / 2
    skew = abs(ends[0] + ends[1] - 2 * value)
    if half > _WIDE * abs(value) or skew > _ONE * 10.0**-places:
        return interval(value, ends, digits)
    return f"{value:,.{places}f} ±{half:,.{places}f}"


def percent(share: float, places: int = 1) -> str:
    """Return a share in percent, with a sign where it is under zero and shows: `0.3%`, `-1.2%`, `0.0%`."""
    return f"{round(100 * share, places) + 0.0:.{places}f}%"


def _places(value: float, ends: tuple[float, float], digits: int) -> int:
    """Return the decimals of so many digits, or up to two more where a narrow interval would not show without them."""
    places = decimals(value, digits)
    half = (ends[1] - ends[0]) / 2
    is_narrow = half and math.isfinite(half)  # of one process an interval may have no end
    return max(places, min(decimals(half, 1), places + 2)) if is_narrow else places


def count(number: int, noun: str) -> str:
    """Return a number of things: `1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def utc(time: str) -> str:
    """Return an ISO 8601 time in UTC for a reader: `2026-11-21 13:01:11 UTC`."""
    return time.replace("T", " ").replace("+00:00", " UTC")


def reason(text: str | None) -> str:
    """Return why something did not pass, on one line; an exception that says nothing ends in `(no message)`."""
    line = " ".join((text or "").split())
    return f"{line[:-1]} (no message)" if line.endswith(":") else line


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence.

    >>> listed(["normal", "flux", "peaked"])
    'normal, flux and peaked'
    """
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def wrapped(line: str) -> str:
    """Return a line as lines of a terminal, of which all but the first are indented by two more."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
