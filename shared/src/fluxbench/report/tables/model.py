"""A model's step: what the kernel is worth over diffusers' default, and what attention leaves to gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.groups import has_time, launched_ms, timing_of
from fluxbench.analysis.model import FORMS, IMAGE_STEPS, OPERATION, Step, forms, steps
from fluxbench.core.formatting import interval, number, percent, plus_minus
from fluxbench.operations.words import describe
from fluxbench.records.schema import Record
from fluxbench.report import legend
from fluxbench.report.blocks import Block, Column, Fold, Heading, Name, Paragraph, Row, Table
from fluxbench.report.results import Results
from fluxbench.report.sentences import INTERVALS, capitalized, conditions, statistic
from fluxbench.report.tables import Rows, ends, estimate_cells, time_cells
from fluxbench.report.tables.layer_parts import parts_ms
from fluxbench.report.tables.not_passed import not_passed
from fluxbench.variants import label

ATTENTION = "attention"
_NO_ATTENTION = (
    "Without attention: the step less the time of its attention, by the profiler. No kernel can gain more than that."
)
_OF_IMAGE = f"gain of\n{IMAGE_STEPS} steps, s"
_NO_GAIN = "none measurably"
_LAUNCHING = "launching decides"
_LAUNCHED = (
    f"{_LAUNCHING.capitalize()}: the host takes about as long to launch the step as it takes, or the kernels take so "
    "much less that the device waits: times differ by what else the host does. Such steps have no gain."
)
_GRAPHS = (
    "Steps are replayed as CUDA graphs. As launched: the host launches a step kernel by kernel, as a pipeline without "
    "CUDA graphs does, on a device that is idle before; the mean of the processes, each of which has one or two such "
    "steps. Where that is clearly longer, the device waits for the host: without CUDA graphs a faster kernel gains "
    "less there, or nothing. A step without such a time could not be captured: the host launches it, and it has no "
    "gain."
)
_OVER = (
    "A gain is from ratios to the default in the same processes, and of this default's time. So it need not be the "
    "difference of two times, which are of different processes."
)
_NONE = (
    f"Fastest is {_NO_GAIN!r} where the gain of the fastest kernel may be none, as its interval includes 0, or where "
    "the default takes least but is not measurably faster than all others."
)
_IMAGE = f"Of an image: {IMAGE_STEPS} steps, the rest of a pipeline left out."


def blocks(results: Results) -> list[Block]:
    """Return the fastest kernel of each step with its gain, and a fold for each step with all kernels."""
    found = steps(results.records)
    if not found:
        return [Paragraph("There are no steps among the records." if results.records else "There are no records.")]
    of_steps = [record for record in results.records if record.workload.operation == OPERATION]
    every = [Fold(f"All kernels: {describe(step.workload)}", [_every(step)]) for step in found]
    return [Paragraph(_lead(found)), _fastest(found), *every, *not_passed(of_steps)]


def rows(results: Results) -> Rows:
    """Return one row per step and variant, with its gain over the default of its form in ms and as a share."""
    header = ("step", "variant", "form", "status", "ms", "ms_low", "ms_high", "launched_ms", "attention_share")
    csv: Rows = [(*header, *ends("gain_ms"), *ends("gain_share"))]
    for step in steps(results.records):
        for record in step.group.records_at[step.workload.name].values():
            gain = step.gain(record) if step.group.trusted(record.variant, step.workload) else None
            of_gain = (*estimate_cells(gain.ms if gain else None), *estimate_cells(gain.share if gain else None))
            facts = (step.workload.name, record.variant, record.form, record.status.value)
            times = (*time_cells(record.timing), launched_ms(record))
            csv.append((*facts, *times, attention_share(record), *of_gain))
    return csv


def attention_share(record: Record) -> float | None:
    """Return the time of attention by the profiler over that of a step; None where it saw none."""
    times = parts_ms(record)
    if ATTENTION not in times or not has_time(record):
        return None
    return times[ATTENTION] / max(timing_of(record).median_ms, sum(times.values()))


def _lead(found: Sequence[Step]) -> str:
    """Return what the choice of kernel is worth at the largest step of the first model, in its most compiled form."""
    step = found[0].group.longest
    [last] = [each for each in found if each.workload is step]
    for form in reversed(forms([last])):
        default, (best, *_) = last.default(form), last.records(form)
        if default is None:
            continue
        at = f"{describe(step)}, {FORMS[form]}{', replayed as a CUDA graph' * (launched_ms(default) is not None)}"
        share = attention_share(default)
        most = f" Attention is {percent(share)} of that step: no kernel can gain more." if share else ""
        gain = last.gain(best)
        if gain is None or gain.share.low <= 0:
            return f"{capitalized(at)}: no kernel is measurably faster than diffusers' default.{most}"
        return (
            f"{capitalized(at)}: {label(best.kernel)} takes {percent(gain.share.value)} off a step with diffusers' "
            f"default, {number(gain.ms.value)} of {number(timing_of(default).median_ms)} ms, and "
            f"{number(gain.image_s)} s off an image of {IMAGE_STEPS} steps.{most}"
        )
    return "diffusers' default has no time, so nothing can be compared with it."


def _fastest(found: Sequence[Step]) -> Table:
    heads = ("ms", "gain\nms", "gain", _OF_IMAGE, "without\nattention, ms", "gain\nat most")
    compared = [(step, form) for step in found for form in forms([step]) if step.default(form)]
    graphs = any(map(_as_launched, filter(None, (step.default(form) for step, form in compared))))
    columns = [Column("step", left=True), Column("model", left=True), Column("default\nms")]
    columns += [Column("default as\nlaunched, ms")] * graphs
    columns += [Column("fastest", left=True), *map(Column, heads)]
    body = [Row(cells) for step, form in compared if (cells := _summary(step, form, graphs=graphs))]
    launching = any(step.launches(record) for step, form in compared for record in step.records(form)[:1])
    notes = [_NO_ATTENTION, *[_GRAPHS] * graphs, _IMAGE, _OVER, _NONE, *[_LAUNCHED] * launching]
    return Table(columns, body, "The fastest kernel of each step, over diffusers' default.", notes)


def _as_launched(record: Record) -> tuple[str, ...]:
    """Return the cell of a step's time where the host launches it; none where no CUDA graph was timed."""
    ms = launched_ms(record)
    return (number(ms),) if ms is not None else ()


def _summary(step: Step, form: str, *, graphs: bool) -> tuple[str | Name, ...] | None:
    default, best = step.default(form), step.records(form)[0]
    if default is None:
        return None
    whole, share = timing_of(default), attention_share(default)
    gain = step.gain(best)
    is_faster = gain.share.low > 0 if gain else step.is_first(default)
    of_gain = _gain(step, best) if gain and is_faster else ("-", "-", "-")
    left = (number(whole.median_ms * (1 - share)), percent(share)) if share is not None else ("-", "-")
    fastest: tuple[str | Name, str] = (_LAUNCHING if step.launches(best) else _NO_GAIN), "-"
    if is_faster and not step.launches(best):
        fastest = legend.name(best.variant), plus_minus(timing_of(best).median_ms, timing_of(best).ci95_ms)
    name = step.workload.name, FORMS[form], plus_minus(whole.median_ms, whole.ci95_ms)
    return (*name, *_launched_cell(default, graphs=graphs), *fastest, *of_gain, *left)


def _launched_cell(record: Record, *, graphs: bool) -> tuple[str, ...]:
    return (_as_launched(record) or ("-",)) if graphs else ()


def _gain(step: Step, record: Record) -> tuple[str, str, str]:
    gain = step.gain(record)
    if gain is None:
        return ("-", "-", "-")
    share = interval(100 * gain.share.value, (100 * gain.share.low, 100 * gain.share.high), unit="%")
    return number(gain.ms.value), share, number(gain.image_s) if step.is_whole else "-"


def _every(step: Step) -> Table:
    timed = [record for form in FORMS for record in step.records(form)]
    graphs = any(map(_as_launched, timed))
    launched = ("as launched\nms",) * graphs
    columns = [Column("kernel", left=True), *map(Column, ("step\nms", *launched, "gain\nms", "gain", _OF_IMAGE))]
    notes = [_IMAGE]
    if timed:
        regime = next(iter(timed[0].timings)) if not timed[0].sustained else "sustained"
        how = f"{statistic(timed, regime)} time per step, {regime}; {conditions(timed, regime)}"
        over = "Gains are over diffusers' default in the same form"
        notes = [f"{capitalized(how)}. {over}. {capitalized(INTERVALS)}.", *[_GRAPHS] * graphs, _IMAGE, _OVER]
        notes += [_LAUNCHED] * any(map(step.launches, timed))
    return Table(columns, list(_rows(step, graphs=graphs)), describe(step.workload), notes)


def _rows(step: Step, *, graphs: bool) -> Iterator[Heading | Row]:
    for form in forms([step]):
        yield Heading(capitalized(FORMS[form]))
        for record in step.records(form):
            time = plus_minus(timing_of(record).median_ms, timing_of(record).ci95_ms)
            cells = (*_launched_cell(record, graphs=graphs), *_gain(step, record))
            yield Row((legend.name(record.variant), time, *cells))
