"""The audit of published figures: of a frame of pandas, and what the cells of `notebooks/audit.md` show.

`check` judges anyone's table; `docs/audit.md` has its columns, units and judgements. No device, and no torch.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from fluxbench.analysis.audit import ours, published
from fluxbench.analysis.audit.judge import Audit, audit, audit_frame
from fluxbench.core import plain
from fluxbench.core.errors import SetupError, one_sentence
from fluxbench.core.files import write_rows, write_text
from fluxbench.core.settings import Settings
from fluxbench.report.audit import tables
from fluxbench.report.audit.text import summary, text, to_json, why
from fluxbench.report.blocks import Paragraph
from fluxbench.report.display import show
from fluxbench.report.picture import Picture

__all__ = ["check", "text", "to_json", "why"]


def check(frame: Any, *, gpu: str | None = None, causal: bool = False, peak_tflops: float | None = None) -> Audit:
    """Return the judgement of every row of a frame of pandas, in its order.

    `gpu` and `causal` are what a row does not state, `peak_tflops` the dense 16-bit rate of a card that is not known.
    `text(audit)`, `to_json(audit)` and `why(row)` word it. Raises `SetupError`, one sentence, where the frame is
    refused whole.
    """
    try:
        return audit_frame(frame, gpu=gpu, causal=causal, peak_tflops=peak_tflops, ours=measured_here())
    except ValueError as error:
        raise SetupError(f"the frame must be a table of figures: {error}") from error


def measured_here() -> ours.Ours:
    """Return what was measured here, from the records in `reports/`; nothing where there is no repository."""
    return ours.read(Settings.load().root / "reports")


@plain.goes_on
@one_sentence
def overview() -> None:
    """Show the counts of all sources and the figure; write `shares.svg`, CSVs and `summary.json`."""
    from fluxbench.report.audit import figure  # it loads matplotlib, which no other cell needs

    judged = _published()
    drawing = figure.draw(judged, measured_here())
    show(Paragraph(f"{summary(judged)}.", kind="lead"), *tables.overview(judged, tuple(published.sources())))
    write_text(Path("summary.json"), json.dumps({"verdict": f"{summary(judged)}."}, indent=1) + "\n")
    file = "shares.svg"
    write_text(Path(file), drawing.svg)
    write_rows(Path("shares.csv"), drawing.rows)
    write_rows(Path("judgements.csv"), tables.rows(judged))
    show(Picture(file=file, wide=drawing.svg, narrow=drawing.narrow, caption=drawing.caption, details=drawing.details))


@plain.goes_on
@one_sentence
def source(name: str) -> None:
    """Show what a source says of its method, and its rows that are not fine."""
    sources = published.sources()
    if name not in sources:
        raise SetupError(f"a source must be one of {', '.join(sources)}, got {name!r}")
    show(*tables.of_source(_published(), name, sources[name]))


@plain.goes_on
@one_sentence
def layers() -> None:
    """Show how many whole layers exceed the card by attention's own operations, and with the projections."""
    show(*tables.layers(_published()))


@plain.goes_on
@one_sentence
def beside_ours() -> None:
    """Show their shares of the peak beside ours."""
    show(*tables.beside_ours(_published(), measured_here()))


@functools.cache
def _published() -> Audit:
    return audit(published.MEASUREMENTS, ours=measured_here())
