"""The latency of one curve of each study over the length: the latency figure of a few of many groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fluxbench.analysis.groups import Group, groups
from fluxbench.report.figures import Drawing, latency
from fluxbench.report.results import Results

_MOST = 6  # curves of a figure
_HEAD_DIM = 64  # of the curves that differ in it alone


def draw(results: Results) -> Drawing | None:
    """Draw the latency in ms over the length: of all curves where they are few, else those of one head_dim."""
    every = [group for group in groups(results.records) if len(group.workloads) > 1]
    shown = every if len(every) <= _MOST else _chosen(every)
    records = tuple(record for group in shown for record in group.records)
    drawing = latency.draw(dataclasses.replace(results, records=records))
    if drawing is None or len(shown) == len(every):
        return drawing
    rows = [latency.HEADER, *(row for group in every for row in latency.rows_of(group))]
    caption = f"{drawing.caption} {len(shown)} of {len(every)} curves; the CSV has all."
    return dataclasses.replace(drawing, caption=caption, rows=rows)


def _chosen(every: Sequence[Group]) -> list[Group]:
    """Return the curves of models, and of one head those of a head_dim, forward and forward + backward."""
    chosen = [group for group in every if group.longest.shape.get("heads") != 1]
    of_one = [group for group in every if group.longest.shape.get("head_dim_qk") == _HEAD_DIM and group not in chosen]
    return [*chosen, *(group for group in of_one if group.operation != "attention_backward")]
