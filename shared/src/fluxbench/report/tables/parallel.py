"""A step on several GPUs of one host: its time, its speedup over one of them, and what it is spent on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.ranking import is_vague
from fluxbench.analysis.shared import ALONE, OPERATION, WAYS, SharedRecord, shared_records
from fluxbench.core.formatting import listed, number, percent, plus_minus
from fluxbench.device.model import Device
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.sharing import model_of
from fluxbench.report.blocks import Block, Bullets, Column, Fold, Heading, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, statistic
from fluxbench.report.tables import Rows, estimate_cells, time_cells
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.variants import label

_WHICH = (Column("kernel", left=True), Column("way", left=True), Column("ranks"))
_HEADS = ("step\nms", "speedup", "of ideal")
_PARTS = ("launching\nms", "profiled\nstep, ms", "computing\nms", "commu-\nnicating\nms", "waiting\nms", "idle\nms")
_SPEEDUP = (
    "Speedup: the time on one GPU of this host over the time on several, measured in the same windows of the same "
    "processes. Of ideal: the speedup over the number of GPUs."
)
_LAUNCHED = (
    "Steps are launched by the host, kernel by kernel, on one GPU as on several; none is a CUDA graph. Launching: how "
    "long the host takes for it. Where that is about as long as the step, a faster host or CUDA graphs would make it "
    "shorter, and the speedup is that of launching."
)
_SPLIT = (
    "Of the first GPU in one profiled step, from its first kernel to the end of its last: kernels that compute, "
    "kernels that communicate, and what these take longer than those of the GPU that waits least, which may be this "
    "one. Idle: no kernel, since the host has not launched the next one. Ring attention computes while it "
    "communicates, so the parts may be longer together than the step."
)


def blocks(results: Results) -> list[Block]:
    """Return the times of each model by way and number of GPUs, after a sentence on the fastest way of each.

    What a step is spent on is in a fold.
    """
    records = [record for record in results.records if record.workload.operation == OPERATION]
    if not records:
        return [
            Paragraph("There are no shared steps among the records." if results.records else "There are no records.")
        ]
    found = shared_records(records)
    where, gains = _lead(found, results.device)
    said = Bullets(where, [(gain, "") for gain in gains]) if gains else Paragraph(where)
    split = [Fold("What a step is spent on", [_table_of_parts(found)])] if any(each.split for each in found) else []
    return [said, *([_table(found)] if found else []), *split, *not_passed(records)]


def rows(results: Results) -> Rows:
    """Return one row per model, way, number of GPUs and variant that passed."""
    times = ("ms", "ms_low", "ms_high", "speedup", "speedup_low", "speedup_high")
    split = ("launch_ms", "profiled_step_ms", "computing_ms", "communicating_ms", "waiting_ms", "idle_ms")
    csv: Rows = [("model", "variant", "form", "way", "gpus", *times, *split)]
    for each in shared_records(results.records):
        facts = (each.model, each.record.variant, each.record.form, each.way, each.gpus)
        parts = vars(each.split).values() if each.split else (None,) * 5
        taken = (*time_cells(each.record.timing), *estimate_cells(each.speedup), each.record.launch_ms)
        csv.append((*facts, *taken, *parts))
    return csv


def lead(found: Sequence[SharedRecord], device: Device) -> str:
    """Return how much faster a step of each model is on all GPUs of a host by the fastest way."""
    where, gains = _lead(found, device)
    return " ".join([where, *gains])


def _lead(found: Sequence[SharedRecord], device: Device) -> tuple[str, list[str]]:
    """Return on how many GPUs it was run, or why on one alone, and a sentence for each model."""
    is_cpu = device.kind == "cpu"
    what = "process" if is_cpu else "GPU"
    shared = [each for each in found if each.speedup]
    if not shared:
        have = f"This host has {device.count} {what}{'s' * (device.count > 1)}"
        return "No step was shared: a reason stands with each row." if is_cpu else f"{have}: no step was shared.", []
    most = max(each.gpus for each in shared)
    numbers = " and ".join(str(gpus) for gpus in sorted({each.gpus for each in shared}))
    by_model = [[*its] for _, its in groupby(shared, key=lambda each: each.model)]
    gains = [_gain([each for each in its if each.gpus == most] or its, what) for its in by_model]
    return f"Run on {numbers} {what}{'es' if is_cpu else 's'} of one host.", gains


def _gain(of_model: Sequence[SharedRecord], what: str) -> str:
    """Return how much faster the fastest of some shared steps of one model is than the same step on one GPU."""
    best = min(of_model, key=lambda each: timing_of(each.record).median_ms)
    assert best.speedup is not None
    shape = ModelShape.of(model_of(best.record.workload.shape))
    model = best.model.partition(",")[0]
    block = "one block of " if shape.layers + shape.single_layers == 1 else ""
    name = f"{block}{model} with {shape.image_tokens:,} image tokens"
    if best.speedup.low <= 1:
        return f"By its fastest way {name} is not measurably faster on {best.gpus} than on one."
    interval = plus_minus(best.speedup.value, (best.speedup.low, best.speedup.high))
    if is_vague(best.speedup.value, best.speedup.high):
        return f"How much faster {name} is on {best.gpus} than on one is too uncertain to tell: {interval} times."
    level = [each for each in of_model if each.record.variant == best.record.variant and _overlap(each, best)]
    others = dict.fromkeys(WAYS[each.way] for each in level if each is not best)
    tied = f"; {listed(list(others))} {'is' if len(others) == 1 else 'are'} level with it" if others else ""
    how = f"on {best.gpus} by {WAYS[best.way]} ({label(best.record.variant)})"
    took = number(timing_of(best.record).median_ms)
    return f"{capitalized(name)} takes {took} ms {how}, {interval} times as fast as on one {what}{tied}."


def _overlap(one: SharedRecord, other: SharedRecord) -> bool:
    """Whether the intervals of two steps' times overlap."""
    (low, high), (lowest, highest) = timing_of(one.record).ci95_ms, timing_of(other.record).ci95_ms
    return low <= highest and lowest <= high


def _table(found: Sequence[SharedRecord]) -> Table:
    timed = [each.record for each in found]
    regime = "sustained" if timed[0].sustained else next(iter(timed[0].timings))
    how = f"{capitalized(f'{statistic(timed, regime)} time per step, {regime}; {conditions(timed, regime)}')}."
    notes = [how, f"{capitalized(INTERVALS)}.", _SPEEDUP]
    return Table([*_WHICH, *map(Column, _HEADS)], _body(found, _times), "A step alone and shared.", notes)


def _table_of_parts(found: Sequence[SharedRecord]) -> Table:
    title = "A step as the host launches it, and one profiled step."
    return Table([*_WHICH, *map(Column, _PARTS)], _body(found, _parts), title, [_LAUNCHED, _SPLIT])


def _body(found: Sequence[SharedRecord], cells: Callable[[SharedRecord], Iterable[str]]) -> list[Heading | Row]:
    """Return a row for each step, below its model; the one on a GPU alone is one row, however often it was measured."""
    body: list[Heading | Row] = []
    for model, its in groupby(found, key=lambda each: each.model):
        body.append(Heading(model))
        alone: set[str] = set()
        for each in its:
            if each.way == ALONE:
                if each.record.variant in alone:
                    continue
                alone.add(each.record.variant)
            body.append(Row((label(each.record.variant), WAYS[each.way], str(each.gpus), *cells(each))))
    return body


def _times(each: SharedRecord) -> Iterator[str]:
    timing = timing_of(each.record)
    yield plus_minus(timing.median_ms, timing.ci95_ms)
    yield plus_minus(each.speedup.value, (each.speedup.low, each.speedup.high)) if each.speedup else "-"
    yield percent(each.speedup.value / each.gpus) if each.speedup else "-"


def _parts(each: SharedRecord) -> Iterator[str]:
    yield number(each.record.launch_ms) if each.record.launch_ms is not None else "-"
    parts = [number(ms) for ms in vars(each.split).values()] if each.split else ["-"] * (len(_PARTS) - 1)
    if each.way == ALONE:
        parts[2:4] = "-", "-"
    yield from parts
