"""Forward and backward pass together against the backward pass alone, with the memory that training takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fluxbench.analysis.failures import passed
from fluxbench.analysis.groups import Group, groups, timing_of, workloads_of
from fluxbench.core.formatting import plus_minus
from fluxbench.operations.words import describe
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record, Timing
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows

_TRAINING, _BACKWARD = "attention_training", "attention_backward"
_LINE = (
    "Forward + backward is one timed call. Backward is timed by itself, after a forward pass that is not. Peak: what "
    "forward + backward allocate at most, outputs and gradients included, q, k, v and the output's gradient not."
)
_WORDS = (
    "The first column less the second is not the time of a forward pass in inference: in training it also keeps what "
    "the backward pass needs. A GPU measures the backward pass alone in burst; both columns are burst times then. -: "
    "did not pass, or is not known; a CPU reports no memory."
)


@dataclass(frozen=True)
class _Pair:
    """A variant's records of both measurements at one shape."""

    training: Record
    backward: Record | None

    @property
    def times(self) -> tuple[Timing, Timing | None]:
        """The timings of both measurements: in the regime that ranks if both have it, else in burst."""
        both, own = timing_of(self.training), timing_of(self.backward) if self.backward else None
        if self.backward and self.training.burst and not self.backward.sustained:
            both = self.training.burst
        return both, own

    @property
    def share(self) -> float | None:
        """The time of the backward pass alone, over that of both passes."""
        both, own = self.times
        return own.median_ms / both.median_ms if own else None


def blocks(results: Results) -> list[Block]:
    """Return a table for each group of training, at its longest workload, fastest first."""
    if not results.records:
        return [Paragraph("There are no records.")]
    alone = _alone(results)
    of_training = [group for group in groups(results.records) if group.operation == _TRAINING]
    return [_table(group, alone) for group in of_training] or [Paragraph("No forward + backward was measured.")]


def rows(results: Results) -> Rows:
    """Return every workload of training: times in ms, memory in bytes."""
    alone = _alone(results)
    found: Rows = [
        ("variant", "workload", "forward_backward_ms", "backward_ms", "backward_share", "forward_backward_peak_bytes")
    ]
    for group, workload in workloads_of(results.records, _TRAINING):
        for pair in _pairs(group, workload, alone):
            (both, own), peak = pair.times, pair.training.peak_memory_bytes
            own_ms = own.median_ms if own else None
            found.append((pair.training.variant, workload.name, both.median_ms, own_ms, pair.share, peak))
    return found


def _table(group: Group, alone: Mapping[object, Record]) -> Block:
    longest = group.longest
    pairs = list(_pairs(group, longest, alone))
    if not pairs:
        return Paragraph(f"Nothing passed forward + backward at {describe(longest)}.")
    heads = ("forward + backward\nms", "backward\nms", "backward's\nshare", "peak\nMiB")
    return Table(
        columns=[Column("kernel", left=True), *map(Column, heads)],
        rows=[_row(pair) for pair in pairs],
        caption=f"Forward + backward against backward at {describe(longest)}",
        notes=[_LINE, _WORDS],
    )


def _row(pair: _Pair) -> Row:
    both, own = pair.times
    peak = pair.training.peak_memory_bytes
    return Row((
        legend.name(pair.training.variant),
        plus_minus(both.median_ms, both.ci95_ms),
        plus_minus(own.median_ms, own.ci95_ms) if own else "-",
        "-" if pair.share is None else f"{pair.share:.0%}",
        "-" if peak is None else f"{peak / 2**20:,.0f}",
    ))  # fmt: skip


def _pairs(group: Group, workload: Workload, alone: Mapping[object, Record]) -> Iterator[_Pair]:
    """Yield the variants that passed forward + backward at a workload, fastest first."""
    pairs = [_Pair(record, alone.get(_key(record))) for record in passed(group) if record.workload == workload]
    yield from sorted(pairs, key=lambda pair: (pair.times[0].median_ms, pair.training.variant))


def _alone(results: Results) -> Mapping[object, Record]:
    """Return the records of backward passes that passed."""
    of_backward = [group for group in groups(results.records) if group.operation == _BACKWARD]
    return {_key(record): record for group in of_backward for record in passed(group)}


def _key(record: Record) -> object:
    return record.variant, tuple(sorted(record.workload.shape.items()))
