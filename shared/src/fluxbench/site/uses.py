"""A target -> the rows of its card that say which kernel to use for what; nothing but what its records hold."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.analysis.groups import is_launch_bound, is_replayed, ranking_regime, timing_of
from fluxbench.analysis.unbeaten import LEVEL_WITHIN, attention_kernels
from fluxbench.analysis.uses import USES, Recommendation, recommendations
from fluxbench.analysis.verdict import DEFAULT, Contender, Verdict, first_uncompiled, gathering
from fluxbench.core.formatting import interval, listed, number
from fluxbench.operations.words import describe
from fluxbench.records.schema import Record
from fluxbench.report.figures.verdict import ROUNDS, baseline_name, share, speed
from fluxbench.report.sentences import versions_of
from fluxbench.report.verdict_words import counted
from fluxbench.site.collect import Target, device_name
from fluxbench.variants import label

_DIFFERENCES = 600  # characters of what pages differ in


@dataclass(frozen=True)
class Kernel:
    """A kernel to use: its name, what must be known of it, and its speed with the interval."""

    name: str
    note: str  # such as "tie"
    number: str


@dataclass(frozen=True)
class Answer:
    """What is recommended at one workload, and the place in a page that it comes from."""

    what: str
    workload: str
    page: str | None
    section: str
    kernels: Sequence[Kernel]
    failed: str  # instead of a kernel: why there is none
    called: str  # what is the fastest without CUDA graphs, where one of these kernels is not level with it; else empty


@dataclass(frozen=True)
class Use:
    """A use with its answers; where it has none, why."""

    name: str
    answers: Sequence[Answer]
    missing: str


@dataclass(frozen=True)
class Recommended:
    """The rows of a card, and in what the pages that they come from differ; empty where they do not."""

    uses: Sequence[Use]
    differences: str


def recommended(target: Target) -> Recommended | None:
    """Return which kernel a target recommends for which use; None where it measured no use."""
    groups = {notebook.name: notebook.groups for notebook in target.notebooks if notebook.records}
    pages = {notebook.name: notebook.page for notebook in target.notebooks}
    found = {name: list(recommendations(representatives, groups)) for name, representatives in USES.items()}
    if not any(found.values()):
        return None
    every = [one for several in found.values() for one in several]
    named = _named(every)
    uses = [
        Use(name, [_answer(one, pages[one.representative.notebook], named) for one in its], _missing(name, groups))
        for name, its in found.items()
    ]
    return Recommended(uses, _differences(every))


def _named(found: Sequence[Recommendation]) -> Mapping[str, set[str]]:
    """Return the kernels that are recommended anywhere on a card, by operation."""
    named: dict[str, set[str]] = {}
    for one in found:
        if isinstance(one.verdict, Verdict):
            named.setdefault(one.workload.operation, set()).update(each.record.kernel for each in one.verdict.named)
    return named


def _answer(of: Recommendation, page: str | None, named: Mapping[str, set[str]]) -> Answer:
    verdict = of.verdict
    kernels = list(_kernels(of, verdict)) if isinstance(verdict, Verdict) else []
    failed = "no exact kernel passed" if isinstance(verdict, Verdict) else f"not ranked: {verdict}"
    return Answer(
        what=", ".join([of.representative.what, *_conditions(of), *_field(of, named)]),
        workload=f"{of.workload.name}: {describe(of.workload)}",
        page=page,
        section=of.representative.section,
        kernels=kernels,
        failed="" if isinstance(verdict, Verdict) and verdict.exact else failed,
        called=_called(of, verdict) if isinstance(verdict, Verdict) and verdict.exact else "",
    )


def _called(of: Recommendation, verdict: Verdict) -> str:
    """Return the times as called of the shortest and of the kernels that are named, where one of these is not level.

    Not where all of these run the same kernels: then it is the host's time alone that differs.
    """
    named = [one.record.variant for one in verdict.named if one.record.variant in of.called]
    if not named or max(of.called[name] for name in named) < LEVEL_WITHIN * min(of.called.values()):
        return ""
    told = dict.fromkeys((next(iter(of.called)), *named))
    ran = {attention_kernels(record) for record in of.records if record.variant in told}
    if len(ran) == 1 and all(ran):
        return ""
    times = [f"{label(name)} {number(of.called[name])} ms" for name in told]
    return (
        f"As called, without CUDA graphs: {', '.join(times)} (means of launched calls, which differ from run to run)."
    )


def _conditions(of: Recommendation) -> Iterator[str]:
    """Yield the regime of the times, and over what the speeds are, if that is not PyTorch's default."""
    if of.records:
        regime = ranking_regime(of.records)
        shown = [row.record for row in of.verdict.shown] if isinstance(of.verdict, Verdict) else []
        replayed = [is_replayed(record, regime) for record in shown]
        graphs = "replayed as CUDA graphs" if all(replayed) else "some replayed as CUDA graphs"
        yield f"{regime}, {graphs}" if any(replayed) else regime
    if of.records and isinstance(of.verdict, Verdict):
        baseline = of.verdict.baseline
        if baseline is None:
            yield "times, as no baseline passed"
        elif baseline.variant != DEFAULT:
            yield f"speed over {baseline_name(baseline)}"
        if baseline and gathering(baseline):
            yield f"{baseline_name(baseline)} first gathers the pages"


def _field(of: Recommendation, named: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield among how many exact kernels the answer is, and which that are recommended elsewhere are not there."""
    if not isinstance(of.verdict, Verdict) or not of.verdict.exact:
        return
    count = len({record.kernel for record in of.verdict.timed})
    yield f"among {count} exact kernels" if count > 1 else "one exact kernel alone"
    tried = {record.kernel for record in of.verdict.group.records_at[of.workload.name].values()}
    absent = sorted(label(kernel) for kernel in named[of.workload.operation] - tried)
    if absent:
        yield f"{listed(absent)} not measured"


def _kernels(of: Recommendation, verdict: Verdict) -> Iterator[Kernel]:
    """Yield the exact kernels, fastest first, then one that rounds more and a quantized one, where they are faster.

    A quantized one is there too where no exact one is. Where it is not known which exact one is the fastest, "no
    winner" stands in their place.
    """
    unsure = _unsure(of, verdict)
    if verdict.is_undecided:
        yield Kernel("no winner", ", ".join(unsure), "")
    else:
        for one in verdict.named:
            notes = ["tie"] * (len(verdict.named) > 1) + ["launch-bound"] * is_launch_bound(one.record) + unsure
            yield Kernel(label(one.record.variant), ", ".join(notes), _number(verdict, one))
    uncompiled = first_uncompiled(verdict)
    if uncompiled and uncompiled.speedup:
        yield Kernel(
            label(uncompiled.record.variant),
            "first of those not compiled, as no other was measured compiled",
            _number(verdict, uncompiled),
        )
    rounding = verdict.rounding
    if rounding and rounding.speedup and rounding.speedup.low > 1:
        note = f"rounds {ROUNDS[rounding.record.precision_class]}"
        yield Kernel(label(rounding.record.variant), note, _number(verdict, rounding))
    quantized = verdict.quantized
    if quantized and (verdict.is_faster or not verdict.exact):
        note = f"quantized, {share(quantized.record.rel_l2 or 0.0)} error"
        yield Kernel(label(quantized.record.variant), note, _number(verdict, quantized))


def _unsure(of: Recommendation, verdict: Verdict) -> list[str]:
    """Return the note on which kernels may be as fast as those that a verdict names, or the fastest, if any may be."""
    unranked = [label(record.variant) for record in of.point.unranked]
    if verdict.is_undecided:
        names = list(dict.fromkeys([*(label(record.variant) for record in verdict.candidates), *unranked]))
        return [f"{counted(names)} may be the fastest" if len(names) > 1 else f"{names[0]} is too uncertain to tell"]
    return [f"no winner: {listed(unranked)} may be as fast and has no rank"] if unranked else []


def _number(verdict: Verdict, of: Contender) -> str:
    """Return a kernel's speed; of the baseline, and where there is none, its time."""
    if of.speedup:
        return speed(of)
    timing = timing_of(of.record)
    time = interval(timing.median_ms, timing.ci95_ms, unit=" ms")
    return f"1×, {time}" if of.record is verdict.baseline else time


def _missing(use: str, groups: Iterable[str]) -> str:
    """Return the notebooks of a use that are not published, and those that measured nothing of it."""
    notebooks = dict.fromkeys(one.notebook for one in USES[use])
    absent = [name for name in notebooks if name not in groups]
    other = [name for name in notebooks if name in groups]
    words = ([f"not published for this device: {', '.join(absent)}"] if absent else []) + (
        [f"not measured at this use's workloads; others are in {', '.join(other)}"] if other else []
    )
    return "; ".join(words)


def _differences(found: Sequence[Recommendation]) -> str:
    """Return in which device, card, torch or method version the pages differ, each with its notebooks."""
    aspects: dict[str, Callable[[Sequence[Record]], str]] = {
        "device": device_name,
        "card": lambda records: str(records[0].fingerprint.get("card") or "unknown"),
        "torch": lambda records: versions_of(records).get("torch", "unknown"),
        "method version": lambda records: str(records[0].method_version),
    }
    differing = []
    for name, aspect in aspects.items():
        notebooks: dict[str, list[str]] = {}
        for one in found:
            if one.records:
                notebooks.setdefault(aspect(one.records), []).append(one.representative.notebook)
        if len(notebooks) > 1:
            of_each = (f"{value} ({', '.join(dict.fromkeys(names))})" for value, names in notebooks.items())
            differing.append(f"{name} {', '.join(of_each)}")
    words = (
        f"Compare numbers of one workload only, since the pages differ: {'; '.join(differing)}." if differing else ""
    )
    return textwrap.shorten(words, _DIFFERENCES, placeholder=" …")
