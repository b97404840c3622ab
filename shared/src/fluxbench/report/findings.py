"""What the records show beyond the ranking, one sentence for each, with a link to where the page shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fluxbench.analysis import findings
from fluxbench.analysis.findings.finding import Case, Finding, Kind
from fluxbench.analysis.groups import Group, groups
from fluxbench.core.formatting import count, interval, listed, percent
from fluxbench.operations.workload import Workload
from fluxbench.report.blocks import Block, Bullets, Fold, Paragraph
from fluxbench.report.results import Results
from fluxbench.report.sentences import title
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import forms, label

SHOWN = 8  # findings of a group; the rest folds
_NAMED = 3  # cases that are listed below a sentence
_LINKS = {"latency": "latency figure", "parts": "parts figure", "energy": "energy figure", "kernels": "kernels table"}
_MODES = {
    forms.COMPILE_DEFAULT.name: "torch.compile",
    forms.COMPILE_MAX_AUTOTUNE.name: "torch.compile's max-autotune",
}
# What the numbers below a sentence are ratios of, where a case has two.
_RATIOS = {Kind.REGIMES: ("burst", "sustained"), Kind.ENERGY: ("energy", "time")}


def blocks(results: Results) -> list[Block]:
    """Return the findings of each group: those that matter most as a list, the rest folded."""
    every_group = groups(results.records)
    return [block for group in every_group for block in _of_group(group)] or [Paragraph("There are no records.")]


def _of_group(group: Group) -> list[Block]:
    every = findings.of_group(group)
    if not every:
        return [Paragraph(f"No findings ({title(group)}): the intervals support none of those that are looked for.")]
    longest = f"{group.longest.x:,} {group.axis}"
    heading = f"Findings ({title(group)}; at {longest} where no other length is named; 95% intervals in brackets):"
    first, rest = every[:SHOWN], every[SHOWN:]
    folded = Fold(f"{len(rest)} more {'findings' if len(rest) > 1 else 'finding'}", [_list("", rest)])
    return [_list(heading, first), *([folded] if rest else [])]


def _list(heading: str, listed: Sequence[Finding]) -> Bullets:
    items = [(sentence(finding), _cases(finding)) for finding in listed]
    return Bullets(heading, items, [(f"cell-{one.cell}", _LINKS.get(one.cell, "its times")) for one in listed])


def sentence(finding: Finding) -> str:
    """Return what a finding says, of the case that matters most, and of how many others."""
    return _SENTENCES[finding.kind](finding)


def _falls_off(finding: Finding) -> str:
    case = finding.cases[0]
    text = (
        f"{label(case.variant)} takes {_more(case.value)} longer per operation {_at(case.workloads)} than at "
        "neighbouring lengths"
    )
    if finding.multiple is None:
        return f"{text}."
    tokens = listed([f"{workload.shape['seq_len_k']:,}" for workload in case.workloads])
    several = "multiples" if len(case.workloads) > 1 else "a multiple"
    return f"{text}: {tokens} tokens, not {several} of {finding.multiple}."


def _slower_compiled(finding: Finding) -> str:
    case = finding.cases[0]
    slower = f"{_more(case.value)} slower{_others(finding)}"
    text = f"{_MODES.get(finding.form, 'Compiling')} makes {label(case.against)} {slower}"
    if case.part is None:
        return f"{text}."
    if case.part.name == "copies" and finding.form == forms.COMPILE_MAX_AUTOTUNE.name:
        return f"{text}: it copies the inputs into its CUDA graph's buffers."
    return f"{text}: most of the difference is {case.part.name}."


def _copies(finding: Finding) -> str:
    case = finding.cases[0]
    more = f"{_more(case.value)} slower{_others(finding)}"
    return f"Copying q, k and v to another layout makes {label(case.against)} {more}."


def _regimes(finding: Finding) -> str:
    case = finding.cases[0]
    own = [one for one in finding.cases if one.variant == case.variant]
    faster = _range([1 / one.value.value - 1 for one in own])
    slower = _range([one.second.value - 1 for one in own if one.second])
    other = label(case.against)
    text = (
        f"{label(case.variant)} is {faster} faster than {other} in single calls, but {slower} slower "
        f"under sustained load, {_at(_workloads(own))}"
    )
    more = len({one.variant for one in finding.cases}) - 1
    changes = "change" if more > 1 else "changes"
    return f"{text}; {count(more, 'other kernel')} {changes} places with {other} too." if more else f"{text}."


def _quantizing(finding: Finding) -> str:
    against = {case.against for case in finding.cases}
    other = label(finding.cases[0].against) if len(against) == 1 else "the exact kernel that is fastest in burst"
    shares = _range([case.part.share for case in finding.cases if case.part])
    slower = [case for case in finding.cases if case.slower]
    level = [case for case in finding.cases if not case.slower]
    clauses = []
    if slower:
        longer = _range([case.value.value - 1 for case in slower])
        clauses.append(f"{longer} slower than {other} {_at(_workloads(slower))}")
    if level:
        than = "" if slower else f" than {other}"
        clauses.append(f"not measurably faster{than} {_at(_workloads(level))}")
    text = f"Under sustained load {label(finding.cases[0].variant)} is {', and '.join(clauses)}"
    return f"{text}: quantizing takes {shares} of its call."


def _energy(finding: Finding) -> str:
    case = finding.cases[0]
    assert case.second is not None
    return (
        f"{label(case.variant)} is {_percent(1 / case.second.value - 1)} faster than {label(case.against)}, but takes "
        f"{_more(case.value)} more energy a call."
    )


def _launch_bound(finding: Finding) -> str:
    case, others = finding.cases[0], len(finding.cases) - 1
    name, times = label(case.variant), f"{case.value.value:.1f} times"
    if case.waited is None:
        too = f"; so {'do' if others > 1 else 'does'} {count(others, 'other')}, by less" if others else ""
        return f"{name} takes {times} as long where the host launches it as in a CUDA graph{too}."
    waited, processes = case.waited
    also = f", as {'are' if others > 1 else 'is'} {count(others, 'other')}" if others else ""
    return (
        f"{name} is launch-bound{also}: the GPU waited for the host in {waited} of {processes} "
        f"processes; back to back, a call takes {times} as long as in burst."
    )


_SENTENCES: Mapping[Kind, Callable[[Finding], str]] = {
    Kind.FALLS_OFF: _falls_off,
    Kind.SLOWER_COMPILED: _slower_compiled,
    Kind.COPIES: _copies,
    Kind.REGIMES: _regimes,
    Kind.QUANTIZING: _quantizing,
    Kind.ENERGY: _energy,
    Kind.LAUNCH_BOUND: _launch_bound,
}


def _others(finding: Finding) -> str:
    """Return by how much the other cases are slower."""
    others = [case.value.value - 1 for case in finding.cases[1:]]
    return f", and {len(others)} other{'s' if len(others) > 1 else ''} by {_range(others)}" if others else ""


def _workloads(cases: Sequence[Case]) -> list[Workload]:
    """Return the workloads of all cases, smallest x first."""
    return sorted({one for case in cases for one in case.workloads}, key=lambda workload: workload.x)


def _at(workloads: Sequence[Workload]) -> str:
    """Return "at 320 and 448 text tokens"."""
    return f"at {listed([f'{workload.x:,}' for workload in workloads])} {workloads[0].x_unit}"


def _more(ratio: Estimate) -> str:
    return _percent(ratio.value - 1)


def _percent(share: float) -> str:
    return percent(share, 0 if share >= 0.0995 else 1)


def _range(shares: Sequence[float]) -> str:
    """Return the smallest and the largest share: "4.1 to 15%"; one where both read the same."""
    low, high = _percent(min(shares)), _percent(max(shares))
    return high if low == high else f"{low.removesuffix('%')} to {high}"


def _cases(finding: Finding) -> str:
    """Return the ids of a finding's first cases, with their ratios."""
    listed = [_case(finding, case) for case in finding.cases[:_NAMED]]
    more = [f"{len(finding.cases) - _NAMED} more in findings.csv"] if len(finding.cases) > _NAMED else []
    return "; ".join([*listed, *more])


def _case(finding: Finding, case: Case) -> str:
    who = f"{case.variant} / {case.against}" if case.against else case.variant
    where = f" {_at(case.workloads)}" if {one.workloads for one in finding.cases} != {case.workloads} else ""
    first, second = _RATIOS.get(finding.kind, ("", ""))
    ratios = [(first, case.value), *([(second, case.second)] if case.second else [])]
    numbers = (f"{name} {interval(one.value, (one.low, one.high))}".strip() for name, one in ratios)
    return f"{who}{where}: {', '.join(numbers)}"
