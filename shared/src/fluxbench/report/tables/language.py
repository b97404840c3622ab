"""A profile of language models: forward, backward and a whole step, with standard and with fused attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.language import STANDARD, Step, profiles
from fluxbench.analysis.launching import KERNELS_FROM, is_launching
from fluxbench.core.formatting import count, number, plus_minus
from fluxbench.operations.language import OPTIMIZER
from fluxbench.operations.language_sets import PASSES, TRAINING
from fluxbench.operations.words import describe
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, factor
from fluxbench.report.tables import Rows, estimate_cells, time_cells
from fluxbench.report.tables.layer_parts import parts_ms
from fluxbench.stats.intervals import Estimate
from fluxbench.worker.request import LAUNCHING_FROM

Passes = Mapping[str, Step]  # of one size and length, by operation
Profiles = Mapping[tuple[str, int], Passes]
_HEADS = {"language": "forward", "language_backward": "backward", TRAINING: "step"}
_STEP = (
    "A step is forward and backward pass and AdamW's step in one call; the optimizer's part of it is by the profiler. "
    "The forward pass keeps nothing for gradients; the backward pass is timed after a forward pass that did."
)
LAUNCHING = (
    f"h: the device waits for the host: the call's kernels take under {KERNELS_FROM:.0%} of its time or, of a call "
    f"without a profile, launching over {LAUNCHING_FROM:.0%}. Such times differ by what else the host does, so there "
    "is no speed over standard where one of the two has an h."
)
_KERNELS_APART = "The table of the kernels alone compares these."
_NOT_APART = "Of the {count} over standard here the interval of {unsure} includes 1: not measurably faster or slower."
_KERNELS = (
    "What the device computes in a pass, without the gaps in which it waits for the host: medians of the profiler's "
    "sums over seven calls, without intervals."
)


def blocks(results: Results) -> list[Block]:
    """Return the passes of each size and length, each attention a row, the fastest step first."""
    found = profiles(results.records)
    if not found:
        return [Paragraph("No profile was measured." if results.records else "There are no records.")]
    columns = [Column("attention", left=True)]
    for head in _HEADS.values():
        columns += [Column(f"{head}\nms"), Column("over\nstandard")]
    timed = [record for passes in found.values() for step in passes.values() for record in step.ranked()]
    how = f"{capitalized(conditions(timed, next(iter(timed[0].timings))))}. {capitalized(INTERVALS)}." if timed else ""
    launching = any(map(is_launching, timed))
    speeds = [speed for passes in found.values() for step in passes.values() for speed in _speeds(step)]
    unsure = sum(speed.low <= 1 <= speed.high for speed in speeds)
    notes = [f"{f'Over standard: how many times as fast as {STANDARD}. ' * bool(speeds)}{how}".strip()]
    notes += [_NOT_APART.format(count=count(len(speeds), "speed"), unsure=unsure)] * bool(unsure)
    notes += [_STEP, *[f"{LAUNCHING} {_KERNELS_APART}"] * launching]
    body, title = _body(found, partial(_row, speeds=bool(speeds))), "Time of each pass, by size and length"
    timing_columns = columns if speeds else [columns[0], *columns[1::2]]
    shown: list[Block] = [Table([*timing_columns, Column("optimizer\nms")], body, title, notes)]
    if launching:
        shown.append(Table(columns, _body(found, _kernels_row), "Time of each pass's kernels alone", [_KERNELS]))
    return shown


def rows(results: Results) -> Rows:
    """Return one row per size, length, pass and variant, with the speed over standard attention."""
    header = ("model", "batch", "tokens", "pass", "variant", "status", "ms", "ms_low", "ms_high")
    csv: Rows = [
        (*header, "over_standard", "over_standard_low", "over_standard_high", "optimizer_ms", "launch_ms", "kernels_ms")
    ]
    for (name, tokens), passes in profiles(results.records).items():
        for operation, head in _HEADS.items():
            step = passes.get(operation)
            for record in step.group.records_at[step.workload.name].values() if step else ():
                assert step is not None
                over_standard = estimate_cells(step.speedup(record.variant))
                facts = (name, step.batch, tokens, head, record.variant, record.status.value)
                more = _optimizer_ms(record), record.launch_ms, _kernels_ms(step, record.variant)
                csv.append((*facts, *time_cells(record.timing), *over_standard, *more))
    return csv


def _speeds(step: Step) -> Iterator[Estimate]:
    """Yield the speeds over standard attention of a pass."""
    yield from filter(None, (step.speedup(record.variant) for record in step.ranked()))


def _body(found: Profiles, row: Callable[[Passes, str], Row]) -> list[Heading | Row]:
    """Return a row for each attention of each size and length, the fastest step first."""
    body: list[Heading | Row] = []
    for passes in found.values():
        body.append(Heading(describe(next(iter(passes.values())).workload)))
        body += [row(passes, variant) for variant in _variants(passes)]
    return body


def _variants(passes: Passes) -> list[str]:
    """Return the variants with a time of some pass, the fastest step first."""
    ordered = (passes[operation] for operation in PASSES if operation in passes)
    return list(dict.fromkeys(record.variant for step in ordered for record in step.ranked()))


def _row(passes: Passes, variant: str, *, speeds: bool) -> Row:
    cells: list[str] = []
    for operation in _HEADS:
        step = passes.get(operation)
        record = step.timed(variant) if step else None
        if step is None or record is None:
            failed = step.find(variant) if step else None
            cells += [failed.status.value if failed else "-", *["-"] * speeds]
            continue
        timing, speed = timing_of(record), step.speedup(variant)
        cells.append(plus_minus(timing.median_ms, timing.ci95_ms) + " h" * is_launching(record))
        cells += [factor(speed)] * speeds
    training = passes.get(TRAINING)
    of_step = training.timed(variant) if training else None
    spent = _optimizer_ms(of_step) if of_step else None
    return Row((legend.name(variant), *cells, number(spent) if spent is not None else "-"))


def _kernels_row(passes: Passes, variant: str) -> Row:
    cells = []
    for operation in _HEADS:
        step = passes.get(operation)
        own, standard = (_kernels_ms(step, name) if step else None for name in (variant, STANDARD))
        cells.append(number(own) if own else "-")
        cells.append(f"{standard / own:.2f}×" if own and standard and variant != STANDARD else "-")
    return Row((legend.name(variant), *cells))


def _kernels_ms(step: Step, variant: str) -> float | None:
    """Return what the kernels of a variant's call take by the profiler, in ms; None where that is not known."""
    record = step.timed(variant)
    return record.cupti.kernels_ms if record and record.cupti else None


def _optimizer_ms(record: Record) -> float | None:
    """Return what a step's optimizer takes, by the profiler; None where it did not see it."""
    return parts_ms(record).get(OPTIMIZER)
