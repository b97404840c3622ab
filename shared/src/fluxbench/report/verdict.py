"""The verdict on a page: its sentence, a small chart, and the lines that use the choice."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.failures import is_late
from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.model import OPERATION as MODEL_STEP
from fluxbench.analysis.ranking import order
from fluxbench.analysis.verdict import DEFAULT, Verdict
from fluxbench.records.schema import Record
from fluxbench.report import usage
from fluxbench.report.blocks import Block, Chart, Code, Fold, Paragraph
from fluxbench.report.figures.verdict import baseline_name, chart, speed
from fluxbench.report.sentences import mixed_versions, title
from fluxbench.report.usage import pipeline
from fluxbench.report.verdict_words import at_length, caption, counted, gain_over, sentence, unavailable
from fluxbench.variants import label
from fluxbench.variants.forms import COPY

_HUB = "Other builds, which diffusers loads from the Hugging Face hub, and which were not measured here"
MOST = 6  # other groups whose verdicts stand one after the other


def blocks(records: Sequence[Record], device_name: str) -> list[Block]:
    """Return the verdict on the first group of workloads; those on others fold open."""
    every_group = groups(records)
    if not every_group:
        return [Paragraph(f"Nothing was measured on {device_name}.", kind="lead")]
    first, *others = (_of_group(group, device_name) for group in every_group)
    names = [title(group) for group in every_group[1:]]
    folds = [Fold(f"The same for {name}", other) for name, other in zip(names, others, strict=True)]
    if sentence_of_late := late(every_group):
        first.insert(1, Paragraph(sentence_of_late))
    if folds:
        first.insert(0, Paragraph(f"For {title(every_group[0])}:"))
    return (
        [*first, *folds] if len(folds) <= MOST else [*first, Fold(f"The same for {len(folds)} other workloads", folds)]
    )


def late(every_group: Sequence[Group]) -> str:
    """Return what there was no time to measure, a clause for each kernel; empty where there was for all."""
    at: dict[str, list[str]] = {}
    count = 0
    for group in every_group:
        found = [record for record in group.records if is_late(record)]
        count += len(found)
        for name in dict.fromkeys(record.variant for record in found):
            at.setdefault(label(name), []).append(title(group))
    every = sum(len(group.records) for group in every_group)
    parts = [f"{name} at {counted(places)}" for name, places in at.items()]
    return f"There was no time to measure {count:,} of {every:,} rows: {'; '.join(parts)}." if parts else ""


def _of_group(group: Group, device_name: str) -> list[Block]:
    found = analysis.of(group)
    shown: list[Block] = [Paragraph(sentence(found), kind="lead")]
    if missing := unavailable(found):
        shown.append(Paragraph(missing))
    if mixed := mixed_versions(group.ranked_at(group.longest)):
        shown.append(Paragraph(mixed))
    if found.is_compared:
        words = [f"{label(row.record.variant)}: {speed(row)}" for row in found.shown]
        shown.append(Chart(chart(found, f"verdict of {group.name}"), "\n".join(words), caption(found, device_name)))
    return [*shown, *_use(found)]


def _use(verdict: Verdict) -> list[Block]:
    """Return the lines that use the choice, and a fold with all lines for each kernel but the default.

    Nothing where there was one kernel alone to choose.
    """
    if verdict.tried == 1:
        return []
    records = [row.record for row in verdict.shown if row.record.variant != DEFAULT]
    shown: list[Block] = []
    chosen = usage.of(verdict.choice) if verdict.choice else None
    if chosen:
        name = f"Use {chosen.label}{_why(verdict)}"
        is_step = verdict.workload.operation == MODEL_STEP
        if not is_step:
            shown.append(Code(f"# q, k, v: {chosen.layout}\n{chosen.short}", name))
        if chosen.diffusers.backend or (is_step and chosen.diffusers.lines):
            what = f"{name}, in" if is_step else "In"
            shown.append(Code(chosen.diffusers.lines, f"{what} diffusers {usage.DIFFUSERS}"))
        elif chosen.diffusers.note:
            added = f'; the lines under "{usage.title(chosen)}" add one' if chosen.diffusers.lines else ""
            shown.append(Paragraph(f"diffusers {usage.DIFFUSERS} has no backend for this build{added}."))
        if chosen.install and chosen.variant != DEFAULT:
            shown.append(Code(chosen.install, "Install"))
        if not chosen.diffusers.backend:
            shown += _with_backend(verdict)
    every = usage.blocks(records)
    return [*shown, Fold("How to install and use these kernels", every)] if every else shown


def _with_backend(verdict: Verdict) -> list[Block]:
    """Return the fastest kernel that diffusers has a backend for, in the form of the baseline, and builds of its hub.

    Only kernels that were measured as diffusers calls them. None where no other than the default was.
    """
    baseline = verdict.baseline
    if baseline is None or baseline.kernel != DEFAULT:
        return []
    ordering = order(verdict.group, verdict.workload)
    used = [(record, usage.of(record)) for record in verdict.timed if record is not baseline]
    of_form = [(record, lines) for record, lines in used if lines and record.form in (baseline.form, COPY.name)]
    own = [(record, lines) for record, lines in of_form if lines.diffusers.is_as_measured]
    faster = [(record, lines) for record, lines in of_form if ordering.faster(record, baseline)]
    first = min((each for each in own if each in faster), key=lambda each: ordering.log(each[0]), default=None)
    shown: list[Block] = []
    if first:
        record, lines = first
        gain = gain_over(baseline, [analysis.speedup(ordering, record, baseline)])
        shown.append(Paragraph(f"The fastest with a backend in diffusers {usage.DIFFUSERS} is {lines.label}, {gain}."))
        shown.append(Code(lines.diffusers.lines, f"In diffusers {usage.DIFFUSERS}: {lines.label}"))
    elif own:
        which = f"Of the {len(own) + 1} kernels that diffusers {usage.DIFFUSERS} calls as they were measured here none"
        by_itself = ", which diffusers takes by itself" if baseline.variant == DEFAULT else ""
        shown.append(Paragraph(f"{which} is measurably faster than {baseline_name(baseline)}{by_itself}."))
    known = {lines.diffusers.backend for _, lines in used if lines}
    hub = [
        f"# {label(record.kernel)}\n{pipeline.SET.format(lines.hub)}"
        for record, lines in faster
        if lines.hub and lines.hub not in known
    ]
    if hub:
        shown.append(Fold(_HUB, [Code("\n".join(hub), "With the package kernels")]))
    return shown


def _why(verdict: Verdict) -> str:
    """Return where the choice holds if not at all lengths, or why it is not the first of the exact kernels."""
    if verdict.slower_at:
        return at_length(verdict)
    is_first = verdict.named[0].record is verdict.choice
    is_sure = is_first or verdict.default_is_level or verdict.beaten_at or verdict.absent
    return "" if is_sure else ", unbeaten at all lengths"
