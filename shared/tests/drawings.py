"""Figures as tests draw them: of some records or of everything, with the rows of their CSV and their words."""

from __future__ import annotations

import functools

from sample_records import results
from sample_results import LONG, SMALL, everything
from tabled import unfolded

from fluxbench.records.schema import Record
from fluxbench.report import figures
from fluxbench.report.figures import Drawing
from fluxbench.report.picture import Svg


def drawing(name: str, *records: Record, **fields: object) -> Drawing:
    drawn = figures.find(name)(results(*records, **fields))  # type: ignore[arg-type]
    assert drawn is not None
    return drawn


def rows(drawn: Drawing) -> list[dict[str, object]]:
    """Return the rows of the CSV by their columns."""
    header, *cells = drawn.rows
    return [dict(zip(map(str, header), row, strict=True)) for row in cells]


def row(drawn: Drawing, variant: str, workload: str = LONG) -> dict[str, object]:
    [cells] = [line for line in rows(drawn) if (line["variant"], line["workload"]) == (variant, workload)]
    return cells


def said(drawn: Drawing) -> str:
    """Return what stands below a figure in one line: the caption, and how to read it."""
    return " ".join([drawn.caption, *(" ".join(block.text().split()) for block in drawn.details)])


def folded(drawn: Drawing) -> str:
    """Return the drawing in the fold below a figure."""
    [svg] = [block.svg for block in unfolded(drawn.details) if isinstance(block, Svg)]
    return svg


@functools.cache
def full(name: str) -> Drawing:
    """Return what a figure draws of everything."""
    drawn = figures.find(name)(everything())
    assert drawn is not None
    return drawn


@functools.cache
def small(name: str) -> Drawing:
    """Return what a figure draws of `SMALL`."""
    return drawing(name, *SMALL)


def svgs(drawn: Drawing) -> list[str]:
    """Return a figure's drawings: for a wide screen, for a phone, and the one in the fold."""
    return [drawn.svg, drawn.narrow, *(block.svg for block in unfolded(drawn.details) if isinstance(block, Svg))]
