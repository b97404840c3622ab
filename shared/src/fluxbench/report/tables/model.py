"""A model's step: what the kernel is worth over diffusers' default, and what attention leaves to gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluxbench.analysis.groups import has_time, is_graph, launched_ms, timing_of
from fluxbench.analysis.model import FORMS, IMAGE_STEPS, OPERATION, Step, forms, steps
from fluxbench.core.formatting import interval, listed, number, percent, plus_minus
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
_SHARE = "Attention's share is of the default's step: about what a kernel that takes no time would gain."
_BY_PROFILER = (
    "Attention's share is by the profiler, - of a step that was not profiled. Of a step as a CUDA graph it is that of "
    "all kernels' time. The parts of a step do not stay the same, however: some kernels need copies, and at a power "
    "limit the clock follows what runs."
)
_OF_IMAGE = f"gain of\n{IMAGE_STEPS} steps, s"
_NO_GAIN = "none measurably"
_LAUNCHING = "launching decides"
_LAUNCHED = (
    f"{_LAUNCHING.capitalize()}: the host takes about as long to launch the step as it takes, or the kernels take so "
    "much less that the device waits: times differ by what else the host does. Such steps have no gain."
)
_UNCAPTURED = (
    "Without a time as launched: no CUDA graph of the step could be captured, so the host launches it. It has no gain."
)
_GRAPHS = (
    "Steps are replayed as CUDA graphs. As launched: the host launches a step kernel by kernel, as a pipeline without "
    "CUDA graphs does, on a device that is idle before, at a higher clock; the mean of the processes, each of which "
    "has one or two such steps. Where that is clearly longer, the device waits for the host: without CUDA graphs a "
    "faster kernel gains less there, or nothing. It has no interval, and differs between processes by up to a factor "
    "of two or three where the host does other work: a difference between two kernels in it may be the host's."
)
_AS_LAUNCHED = (
    "Steps are replayed as CUDA graphs; the tables of all kernels also have their times as the host launches them. "
    "Where these are clearly longer, without CUDA graphs a faster kernel gains less, or nothing."
)
_LESS = "Beside a gain, a step's time is the default's less that gain"
_OVER = (
    "A gain is of the default's time. It is from the times of both, or, where that is steadier, from their ratios to "
    "the model as it is with the default kernel, which each process times beside its own. Then it need not be the "
    "difference of the times that each kernel's own processes took: those are in the CSV file."
)
_NONE = (
    f"Fastest is {_NO_GAIN!r} where none is measurably faster than the default, at 95% for all of them together, as in "
    "the verdict; the default itself where it is measurably faster than all others; - where no other kernel has a time "
    "in this form. A = behind it: another kernel is neither measurably faster nor slower."
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
    """Return the time of attention over that of the profiled step, of a CUDA graph over that of all its kernels.

    None where the profiler saw none.
    """
    times = parts_ms(record)
    if ATTENTION not in times or record.cupti is None or not has_time(record):
        return None
    waited_ms = 0.0 if is_graph(record) else record.cupti.span_ms  # a graph does not wait for the host
    return times[ATTENTION] / max(waited_ms, sum(times.values()))


def _lead(found: Sequence[Step]) -> str:
    """Return what the choice of kernel is worth at the largest step of the first model, in its most compiled form."""
    step = found[0].group.longest
    [last] = [each for each in found if each.workload is step]
    for form in reversed(forms([last])):
        default, faster = last.default(form), last.faster(form)
        if default is None:
            continue
        at = f"{describe(step)}, {FORMS[form]}{', replayed as a CUDA graph' * is_graph(default)}"
        share = attention_share(default)
        most = f" Attention is {percent(share)} of that step: about the most that a kernel can gain." if share else ""
        gain = last.gain(faster[0]) if faster else None
        if gain is None:
            return f"{capitalized(at)}: no kernel is measurably faster than diffusers' default.{most}"
        level = [label(record.kernel) for record in faster[1:] if not last.apart(record, faster[0])]
        tied = f" {listed(level)} {'is' if len(level) == 1 else 'are'} not measurably slower." if level else ""
        return (
            f"{capitalized(at)}: {label(faster[0].kernel)} takes {percent(gain.share.value)} off a step with "
            f"diffusers' default, {number(gain.ms.value)} of {number(timing_of(default).median_ms)} ms, and "
            f"{number(gain.image_s)} s off an image of {IMAGE_STEPS} steps.{tied}{most}"
        )
    return "diffusers' default has no time, so nothing can be compared with it."


def _fastest(found: Sequence[Step]) -> Table:
    columns = [Column(head, left=True) for head in ("step", "model", "fastest")]
    columns += map(Column, ("gain", "attention's\nshare", "default\nms", "gain\nms"))
    compared = [(step, form, default) for step in found for form in forms([step]) if (default := step.default(form))]
    body = [Row(_summary(step, form, default)) for step, form, default in compared]
    graphs = any(_as_launched(default) for _, _, default in compared)
    launching = any(_decided(step, form) for step, form, _ in compared)
    notes = [_SHARE, _BY_PROFILER, *[_AS_LAUNCHED] * graphs, _OVER, _NONE, *[_LAUNCHED] * launching]
    return Table(columns, body, "The fastest kernel of each step, over diffusers' default.", notes)


def _as_launched(record: Record) -> tuple[str, ...]:
    """Return the cell of a step's time where the host launches it; none where no CUDA graph was timed."""
    ms = launched_ms(record)
    return (number(ms),) if ms is not None else ()


def _summary(step: Step, form: str, default: Record) -> tuple[str | Name, ...]:
    faster, is_alone = step.faster(form), len(step.records(form)) == 1
    share = attention_share(default)
    left = "-" if share is None else percent(share)
    best = faster[0] if faster else default if not is_alone and step.is_first(default) else None
    fastest: str | Name = "-" if is_alone else _NO_GAIN
    if _decided(step, form):
        fastest, left = _LAUNCHING, "-"
    elif best:
        fastest = legend.name(best.kernel, tied=step.is_tied(best))
    gain_ms, gain, _ = _gain(step, best) if best else ("-", "-", "-")
    whole = timing_of(default)
    name = step.workload.name, FORMS[form]
    return (*name, fastest, gain, left, plus_minus(whole.median_ms, whole.ci95_ms), gain_ms)


def _decided(step: Step, form: str) -> bool:
    """Whether launching decides at all of a form, as nothing can be compared with its default."""
    others = [record for record in step.records(form) if record is not step.default(form)]
    return bool(others) and all(step.launches(record) and not step.uncaptured(record) for record in others)


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
        over = f"Gains are over diffusers' default in the same form. {_LESS}"
        notes = [f"{capitalized(how)}. {over}. {capitalized(INTERVALS)}.", *[_GRAPHS] * graphs, _IMAGE, _OVER]
        notes += [_UNCAPTURED] * any(map(step.uncaptured, timed))
        notes += [_LAUNCHED] * any(step.launches(record) and not step.uncaptured(record) for record in timed)
    return Table(columns, list(_rows(step, graphs=graphs)), describe(step.workload), notes)


def _rows(step: Step, *, graphs: bool) -> Iterator[Heading | Row]:
    for form in forms([step]):
        yield Heading(capitalized(FORMS[form]))
        for record in sorted(step.records(form), key=lambda record: _ms(step, record)):
            gain, timing = step.gain(record), timing_of(record)
            time = number(_ms(step, record)) if gain else plus_minus(timing.median_ms, timing.ci95_ms)
            cells = (*_launched_cell(record, graphs=graphs), *_gain(step, record))
            yield Row((legend.name(record.variant), time, *cells))


def _ms(step: Step, record: Record) -> float:
    """Return the time of a step: the default's less the gain, so that they agree; its own where it has no gain."""
    gain, default = step.gain(record), step.default(record.form)
    return timing_of(default).median_ms - gain.ms.value if gain and default else timing_of(record).median_ms
