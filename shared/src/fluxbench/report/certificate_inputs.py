"""What the tables of the certificate are drawn from, and what they share."""

from __future__ import annotations

from fluxbench.analysis.certificate import reruns, trials
from fluxbench.analysis.certificate.judging import Tally
from fluxbench.analysis.certificate.reruns import Reruns
from fluxbench.analysis.certificate.trials import Trials
from fluxbench.core.formatting import percent
from fluxbench.report.blocks import Block, Paragraph
from fluxbench.report.results import Results

NO_TRIALS: list[Block] = [Paragraph("There are no trials: the cell that measures them gave nothing.")]


def trials_of(results: Results) -> Trials | None:
    """Return the trials; None where there are none. Raises `RecordError` where they are damaged."""
    return trials.read(results.trials) if results.trials else None


def earlier_trials_of(results: Results) -> list[Trials]:
    """Return the trials of earlier sessions, the oldest first. Raises `RecordError` where they are damaged."""
    return [trials.read(one) for one in results.earlier_trials]


def reruns_of(results: Results) -> Reruns | None:
    """Return how far fresh runs differ; None where that was not gathered. Raises `RecordError` where it is damaged."""
    return reruns.read(results.reruns) if results.reruns else None


def coverage(tally: Tally) -> str:
    """Return the share of the 95% intervals that hold the truth."""
    return "-" if tally.coverage is None else percent(tally.coverage)


def half_width(tally: Tally) -> str:
    """Return half the width of the 95% intervals, their median."""
    return "-" if tally.half_width is None else f"±{percent(tally.half_width, 2)}"


def missing(tally: Tally) -> str:
    """Return a sentence on the rows that could not be compared; empty where all could."""
    return f"{tally.missing} rows could not be compared: a variant was not measured there." if tally.missing else ""
