"""A CSV or a frame of pandas -> its claims, or one sentence where the whole is refused."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluxbench.analysis.audit.claim import Claim, Metric, number
from fluxbench.analysis.audit.columns import ALIASES, UNITS, VALUE_COLUMNS, VALUES, resolved
from fluxbench.analysis.audit.context import Context
from fluxbench.core.files import read_regular
from fluxbench.device.peaks import Peak

MOST_BYTES = 256 << 20
MOST_ROWS = 100_000  # half a minute and a gigabyte, where no two rows have the same shape
_ZERO = re.compile(r"0+(\.0*)?")  # of memory nothing may be used


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A row: its figures, or why it has none."""

    line: int
    context: Context
    claims: tuple[Claim, ...]
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What holds for rows that do not state it."""

    gpu: str | None = None
    causal: bool = False
    peak: Peak | None = None


@dataclass(kw_only=True)
class _Reader:
    """Reads rows into entries; rows with the same cells share a context."""

    header: Sequence[str]
    options: Options
    contexts: dict[tuple[str, ...], Context] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places, self.twice = resolved(self.header)
        known = [name for name in ALIASES if name in self.places and name not in VALUE_COLUMNS]
        self.stated = [(name, self.places[name]) for name in known]
        taken = {*self.places.values(), *(second for _, second in self.twice)}
        self.others = [index for index in range(len(self.header)) if index not in taken]
        self.values = [(self.places[name], *VALUES[name]) for name in VALUES if name in self.places]

    def entry(self, line: int, cells: Sequence[str]) -> Entry:
        """Return a row. Raises `ValueError` where it holds a formula, or one thing twice."""
        padded = [text.strip() for text in cells[: len(self.header)]]
        padded += [""] * (len(self.header) - len(padded))
        if formula := next((text for text in padded if text.startswith("=")), None):
            raise ValueError(f"line {line} must hold values, got the formula {formula[:40]!r}; export the values")
        for first, second in self.twice:
            if padded[first] and padded[second]:
                one, other = self.header[first][:40], self.header[second][:40]
                raise ValueError(f"one column must give a row's {one}, got {one!r} and {other!r} in line {line}")
            padded[first] = padded[first] or padded[second]
        context = self._context(padded)
        if more := [text for text in cells[len(self.header) :] if text.strip()]:  # as 1,234.5 without quotes gives
            return Entry(line, context, (), f"it has more cells than there are columns: {more[0].strip()[:40]}")
        if context.get("workload") == "" and "workload" in context.cells:
            return Entry(line, context, (), "of no workload")
        claims, problem = [], ""
        for text, unit in self._figures(padded):
            claim = self._claim(line, context, text, unit)
            if isinstance(claim, str):
                problem = claim
            else:
                claims.append(claim)
        if claims or problem:
            return Entry(line, context, () if problem else tuple(claims), problem)
        status = padded[self.places["status"]] if "status" in self.places else ""
        return Entry(line, context, (), f"no figure: {status[:60]}" if status else "no figure")

    def _context(self, cells: Sequence[str]) -> Context:
        stated = tuple(cells[index] for _, index in self.stated)
        others = tuple(cells[index] for index in self.others)
        if "value" not in self.places:  # numbers beside several figures are measured too
            others = tuple(text for text in others if not number(text))
        key = (*stated, *others)
        context = self.contexts.get(key)
        if context is None:
            cells_by_name = {name: text for (name, _), text in zip(self.stated, stated, strict=True)}
            context = Context(
                cells=cells_by_name,
                others=others,
                page_gpu=self.options.gpu,
                causal_unless_stated=self.options.causal,
                given_peak=self.options.peak,
            )
            self.contexts[key] = context
        return context

    def _figures(self, cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        if "value" in self.places:
            yield cells[self.places["value"]], cells[self.places["unit"]]
        for index, _, unit in self.values:
            if cells[index]:
                yield cells[index], unit

    def _claim(self, line: int, context: Context, text: str, unit: str) -> Claim | str:
        if unit not in UNITS:
            return f"the unit is not known: {unit[:40] or 'none'}"
        metric, factor = UNITS[unit]
        parsed = number(text)
        if parsed is None and metric is Metric.BYTES and _ZERO.fullmatch(text):
            parsed = (0.0, 0.0, 0.5)
        if parsed is None:
            return f"the value is not a positive number: {text[:60] or 'empty'}"
        value, low, high = (factor * end for end in parsed)
        return Claim(line, context, metric, value, low, high, factor, f"{text} {unit}")


def of_csv(path: Path, options: Options) -> list[Entry]:
    """Return the rows of a CSV.

    Raises `OSError`, and `ValueError`, a sentence, where it is no text or no CSV, has no header that is known, has a
    formula or too many rows.
    """
    try:
        return _of_csv(path, options)
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _of_csv(path: Path, options: Options) -> list[Entry]:
    text = read_regular(Path(os.path.realpath(path)), MOST_BYTES).decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    if not header or any(number(head.strip()) for head in header):
        raise ValueError(f"its first line must name the columns, got {','.join(header)[:80] or 'none'}")
    _check_number(sum(1 for _ in itertools.islice(csv.reader(io.StringIO(text, newline="")), MOST_ROWS + 2)) - 1)
    return _entries(header, ((reader.line_num, cells) for cells in reader if cells), options)


def of_frame(frame: Any, options: Options) -> list[Entry]:
    """Return the rows of a frame of pandas, numbered from 1; what is missing there is empty. Raises `ValueError`."""
    header = [str(name) for name in frame.columns]
    _check_number(len(frame))
    series = [frame.iloc[:, index] for index in range(len(header))]
    columns = [one.astype(object).where(one.notna(), "").tolist() for one in series]
    rows = (list(map(str, cells)) for cells in zip(*columns, strict=True))
    return _entries(header, enumerate(rows, start=1), options)


def _entries(header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]], options: Options) -> list[Entry]:
    reader = _Reader(header=header, options=options)
    return [reader.entry(line, cells) for line, cells in rows]


def _check_number(rows: int) -> None:
    """Raise `ValueError` where a table has more rows than are judged."""
    if rows > MOST_ROWS:
        raise ValueError(f"a table must have at most {MOST_ROWS:,} rows, got more; split it")
