"""Forward and backward pass together against the backward pass alone, with the memory that training takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from fluxbench.analysis.failures import passed
from fluxbench.analysis.groups import Group, groups, workloads_of
from fluxbench.core.formatting import plus_minus
from fluxbench.operations.words import describe
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, SUSTAINED, Record, Timing
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
    "the backward pass needs. Where the backward pass alone has burst times only, as on a GPU, both columns are burst "
    "times. -: did not pass, or is not known; a CPU reports no memory."
)


@dataclass(frozen=True)
class _Pair:
    """A variant's records of both measurements at one shape, with the regime of the group's times."""

    training: Record
    backward: Record | None
    regime: str

    @property
    def both(self) -> Timing | None:
        """The timing of both passes."""
        return self.training.timings.get(self.regime)

    @property
    def alone(self) -> Timing | None:
        """The timing of the backward pass alone."""
        return self.backward.timings.get(self.regime) if self.backward else None

    @property
    def share(self) -> float | None:
        """The time of the backward pass alone, over that of both passes."""
        return self.alone.median_ms / self.both.median_ms if self.alone and self.both else None


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
    header = ("variant", "workload", "regime", "forward_backward_ms", "backward_ms", "backward_share")
    found: Rows = [(*header, "forward_backward_peak_bytes")]
    for group, workload in workloads_of(results.records, _TRAINING):
        for pair in _pairs(group, workload, alone):
            times = (timing.median_ms if timing else None for timing in (pair.both, pair.alone))
            names = pair.training.variant, workload.name, pair.regime
            found.append((*names, *times, pair.share, pair.training.peak_memory_bytes))
    return found


def _table(group: Group, alone: Mapping[object, Record]) -> Block:
    longest = group.longest
    pairs = list(_pairs(group, longest, alone))
    if not pairs:
        return Paragraph(f"Nothing passed forward + backward at {describe(longest)}.")
    heads = (*(f"{passes}\n{pairs[0].regime} ms" for passes in ("forward + backward", "backward")), "backward's\nshare")
    return Table(
        columns=[Column("kernel", left=True), *map(Column, (*heads, "peak\nMiB"))],
        rows=[_row(pair) for pair in pairs],
        caption=f"Forward + backward against backward at {describe(longest)}",
        notes=[_LINE, _WORDS],
    )


def _row(pair: _Pair) -> Row:
    peak = pair.training.peak_memory_bytes
    return Row((
        legend.name(pair.training.variant),
        *(plus_minus(timing.median_ms, timing.ci95_ms) if timing else "-" for timing in (pair.both, pair.alone)),
        "-" if pair.share is None else f"{pair.share:.0%}",
        "-" if peak is None else f"{peak / 2**20:,.0f}",
    ))  # fmt: skip


def _pairs(group: Group, workload: Workload, alone: Mapping[object, Record]) -> Iterator[_Pair]:
    """Yield the variants that passed forward + backward at a workload, fastest first."""
    regime = _regime(group, alone)
    pairs = [_Pair(record, alone.get(_key(record)), regime) for record in passed(group) if record.workload == workload]
    yield from sorted(pairs, key=lambda pair: (pair.both.median_ms if pair.both else inf, pair.training.variant))


def _regime(group: Group, alone: Mapping[object, Record]) -> str:
    """Return the one regime of all times of a group: sustained where every record has it, else burst."""
    of_training = passed(group)
    of_backward = [own for record in of_training if (own := alone.get(_key(record)))]
    return SUSTAINED if all(record.sustained for record in (*of_training, *of_backward)) else BURST


def _alone(results: Results) -> Mapping[object, Record]:
    """Return the records of backward passes that passed."""
    of_backward = [group for group in groups(results.records) if group.operation == _BACKWARD]
    return {_key(record): record for group in of_backward for record in passed(group)}


def _key(record: Record) -> object:
    return record.variant, tuple(sorted(record.workload.shape.items()))
