"""The verdict in words: a few sentences of fixed clauses, and what they hold for."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.failures import missing_libraries
from fluxbench.analysis.groups import Group, is_replayed, ranking_regime
from fluxbench.analysis.launching import is_launching
from fluxbench.analysis.ranking import is_vague
from fluxbench.analysis.unbeaten import original
from fluxbench.analysis.verdict import DEFAULT, Verdict
from fluxbench.core.formatting import listed, reason
from fluxbench.operations.words import describe
from fluxbench.records.schema import SUSTAINED, Record
from fluxbench.records.status import Status
from fluxbench.report.figures.verdict import ROUNDS, baseline_name, share
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import label

NAMED = 3  # level kernels that a sentence names before it counts the rest
_WITH_REASON = 2  # libraries without a time that are named with the reason
_REASON = 80  # characters of one that is not shortened


def sentence(verdict: Verdict) -> str:
    """Return the verdict in fixed clauses."""
    if verdict.incomparable:
        return f"No verdict: not all of these can be compared, since {verdict.incomparable}."
    parts = [_exact(verdict), _without_default(verdict), _uncompiled(verdict), _elsewhere(verdict)]
    parts.append(_leaders_elsewhere(verdict))
    return " ".join(filter(None, [*parts, _rounding(verdict), _quantized(verdict)]))


def unavailable(verdict: Verdict) -> str:
    """Return which libraries the verdict is without, as they are unavailable, and why; empty where nothing is exact."""
    missing = missing_libraries(verdict.group) if verdict.exact else []
    if len(missing) > _WITH_REASON:
        names = counted([label(record.kernel) for record in missing])
        return f"{names} have no time here; the table of what did not pass says why."
    return " ".join(f"{label(record.kernel)} has no time here: {_short_reason(record)}." for record in missing)


def _short_reason(record: Record) -> str:
    """Return the first sentence of why something did not pass, without what to do, which follows a semicolon.

    A long one goes without what another library said, which follows the last colon.
    """
    first = reason(record.reason).partition("; ")[0].partition(". ")[0].rstrip(".")
    return first if len(first) <= _REASON else first.rpartition(": ")[0] or first


def caption(verdict: Verdict, device_name: str) -> str:
    """Return what the chart shows, and of which device and shape."""
    what = f"Speed over {baseline_name(verdict.baseline)}" if verdict.baseline else "Speed"
    ranking = ranking_regime(row.record for row in verdict.shown)
    regime = "under sustained load" if ranking == SUSTAINED else "in burst"
    regime += ", replayed as CUDA graphs" * all(is_replayed(row.record, ranking) for row in verdict.shown)
    exact = [one.record for one in verdict.exact]
    loaded = [
        f" {label(record.variant)} is {label(other.variant)}, loaded in another way."
        for record in exact
        if (other := original(record, exact))
    ]
    excludes = any(one.speedup and not one.speedup.low <= 1 <= one.speedup.high for one in verdict.named)
    corrected = " The verdict is corrected for the number of kernels, and an interval is not: so it may exclude 1."
    where = f"{device_name}, {describe(verdict.workload, parts=False)}"
    so = f"{''.join(loaded)}{corrected * (excludes and verdict.default_is_level)}"
    return f"{what} {regime}, 95% intervals: {where}.{so}"


def _exact(verdict: Verdict) -> str:
    exact = [one.record for one in verdict.named]
    if not exact:
        return "No exact kernel has a time here; the table of what did not pass says why."
    if verdict.tried == 1:
        return f"No choice of kernels: {_names(exact)} is the only exact one that is measured at this workload."
    unsure_too = verdict.named_unsure
    if verdict.is_undecided:
        return _undecided(verdict, verdict.candidates)
    if verdict.default_is_level:
        others = [record for record in exact if record.kernel != DEFAULT]
        level = f" {_names(others)} {'ties' if len(others) == 1 else 'tie'} with it." if others else ""
        faster = f" {_names(unsure_too)} may be faster or slower: too uncertain to tell." if unsure_too else ""
        return f"{_no_gain(verdict)}{level}{faster}"
    which = f"{_names(exact)} tie as fastest of {_field(verdict)}"
    if len(exact) == 1:
        fastest = "faster" if len(_kernels(verdict)) == 2 else "fastest"
        is_alone = len(verdict.timed) == 1
        what = "only exact kernel with a time" if is_alone else f"{fastest} of {_field(verdict)}"
        which = f"{_names(exact)} is the {what}"
    unsure = f" {_names(unsure_too)} may be as fast: too uncertain to tell." if unsure_too else ""
    if not verdict.baseline or any(one.speedup is None for one in verdict.named):  # the baseline is one of them
        return f"{which}.{unsure}"
    return f"{which}{_gains(verdict, verdict.baseline)}.{unsure}"


def _gains(verdict: Verdict, baseline: Record) -> str:
    """Return how much faster than the baseline the exact kernels are, those of which it is known.

    A kernel of another cell may beat the baseline, and none of these; or one is far ahead, but its interval is wide.
    """
    speedups = {one.record.variant: one.speedup for one in verdict.named if one.speedup}
    known = {name: one for name, one in speedups.items() if one.low > 1 and not is_vague(one.value, one.high)}
    if not known:
        return f"; how much faster than {baseline_name(baseline)} is too uncertain to tell"
    gains = f"{gain_over(baseline, [*known.values()])}{_gathers(baseline)}"
    if len(known) == len(speedups):
        return f": {gains}"
    rest = [one.record for one in verdict.named if one.record.variant not in known]
    which = _names([one.record for one in verdict.named if one.record.variant in known])
    return f": {which} {'is' if len(known) == 1 else 'are'} {gains}; of {_names(rest)} that is too uncertain to tell"


def _without_default(verdict: Verdict) -> str:
    """Return why PyTorch's default has no time where another kernel stands in for it."""
    stands_in = verdict.baseline is None or verdict.baseline.kernel != DEFAULT
    if not (verdict.exact and stands_in) or verdict.tried == 1:
        return ""
    if record := verdict.group.find(DEFAULT, verdict.workload):
        return f"PyTorch's default {_without_time(record.status)}{at_length(verdict)}."
    is_compared = len(verdict.timed) > 1 and not verdict.is_undecided
    where = at_length(verdict) if DEFAULT in verdict.group.variants else " here"
    return f"PyTorch's default was not measured{where}." if is_compared else ""


def _leaders_elsewhere(verdict: Verdict) -> str:
    """Return which kernels nothing beats at another length, and that were not measured at this one."""
    names = [label(kernel) for kernel in verdict.unmeasured]
    return f"{counted(names)} {'was' if len(names) == 1 else 'were'} not measured{at_length(verdict)}." if names else ""


def _without_time(status: Status | None) -> str:
    """Return that something has no time, of a record of this status; None: it has no record."""
    if status is None:
        return "was not measured"
    return "ran out of memory" if status is Status.OUT_OF_MEMORY else "has no time"


def _gathers(baseline: Record) -> str:
    """Return that the baseline gathers the pages of a cache within its call, unlike a kernel that reads them."""
    gathering = analysis.gathering(baseline)
    return f", which first gathers the pages ({share(gathering)} of its device time)" if gathering else ""


def _uncompiled(verdict: Verdict) -> str:
    """Return which kernel to use where the first one is the only one that was compiled."""
    if not (first := analysis.first_uncompiled(verdict)):
        return ""
    gain = "none is measurably faster"
    if first.speedup:
        gain = f"{label(first.record.variant)} comes first, {_gain([first.speedup])}"
    fuses = " Compiling a layer also fuses its norms and rotary embedding."
    is_layer = verdict.workload.operation.startswith("layer")
    return f"No other kernel was measured compiled; of those not compiled {gain}.{fuses * is_layer}"


def _no_gain(verdict: Verdict) -> str:
    if len(verdict.timed) == 1:
        return "PyTorch's default is the only exact kernel with a time."
    default = baseline_name(verdict.baseline) if verdict.baseline else "PyTorch's default"
    return f"Of {_field(verdict)} none is measurably faster than {default}."


def _undecided(verdict: Verdict, records: Sequence[Record]) -> str:
    """Return which kernels may be the fastest, and whether launching is what their times contain."""
    which = f"Too uncertain to tell which of {_field(verdict)} is the fastest: candidates are {_names(records)}."
    if len(records) == 1:
        others = "the other exact ones are slower" if len(verdict.timed) > 1 else "no other exact one has a time"
        which = f"{_names(records)} is too uncertain for a rank; {others}."
    launched = [record for record in records if not is_replayed(record, ranking_regime([record]))]
    return which + " The device waits for the host in some of these calls." * any(map(is_launching, launched))


def _kernels(verdict: Verdict) -> set[str]:
    return {record.kernel for record in verdict.timed}


def _field(verdict: Verdict) -> str:
    """Return among how many exact kernels a verdict is; of one kernel among how many of its forms.

    Where what it says of the baseline does not hold at all lengths, this names the length.
    """
    kernels = len(_kernels(verdict))
    holds_everywhere = verdict.level_at in (0, len(verdict.group.workloads)) and not verdict.slower_at
    among = f"{kernels} exact kernels" if kernels > 1 else f"{len(verdict.timed)} exact forms"
    return f"{among} measured here{'' if holds_everywhere else at_length(verdict)}"


def at_length(verdict: Verdict) -> str:
    """Return at which length or size the kernels are compared, as the end of a clause."""
    return f" at {verdict.workload.x:,} {verdict.group.axis}"


def _lengths(group: Group) -> str:
    return f"{len(group.workloads)} {'lengths' if group.axis.endswith('tokens') else 'sizes'}"


def _elsewhere(verdict: Verdict) -> str:
    if not verdict.choice:
        return ""
    every, choice = _lengths(verdict.group), label(verdict.choice.variant)
    baseline = baseline_name(verdict.baseline) if verdict.baseline else ""
    others = verdict.beaten_at if verdict.beaten_at > verdict.slower_at else 0
    has_gain = all(one.speedup for one in verdict.exact)
    is_level_elsewhere = has_gain and not verdict.slower_at and verdict.level_at > sum(verdict.absent.values())

    def at(number: int, what: str) -> str:
        return f"At {number} of the {every} {what}." if number else ""

    return " ".join(
        filter(
            None,
            [
                at(verdict.level_at * is_level_elsewhere, "no exact kernel is measurably faster"),
                at(verdict.slower_at, f"{choice} is measurably slower than {baseline}"),
                _beaten_once(verdict) or at(others, f"another exact kernel or form is faster than {choice}"),
                *(at(count, f"{choice} {_without_time(status)}") for status, count in verdict.absent.items()),
            ],
        )
    )


def _beaten_once(verdict: Verdict) -> str:
    """Return which kernels are faster than the choice where they are so at one length alone."""
    found = verdict.beaten_once
    if found is None or verdict.choice is None or verdict.slower_at:
        return ""
    workload, records = found
    be = "is" if len(records) == 1 else "are"
    at = f"{workload.x:,} {verdict.group.axis}"
    return f"At {at} {_names(records)} {be} faster than {label(verdict.choice.variant)}."


def _rounding(verdict: Verdict) -> str:
    if not verdict.rounding or not verdict.rounding.speedup:
        return ""
    record, speedup = verdict.rounding.record, verdict.rounding.speedup
    name = f"{label(record.variant)}, which rounds {ROUNDS[record.precision_class]},"
    if speedup.low > 1:
        return f"{name} is {_gain([speedup])}."
    if speedup.high < 1:
        longer = 1 / speedup.value
        return f"{name} takes {f'{longer:.1f} times as long' if longer >= 2 else f'{100 * (longer - 1):.0f}% longer'}."
    return f"{name} is neither measurably faster nor slower."


def _quantized(verdict: Verdict) -> str:
    if not verdict.quantized:
        return ""
    record = verdict.quantized.record
    name, error = label(record.variant), f"{share(record.rel_l2 or 0.0)} relative error"
    if not verdict.exact:
        return f"Of the quantized kernels {name} is the fastest, with {error}."
    if verdict.is_faster:
        speedup = verdict.quantized.speedup
        return f"{name} is {_gain([speedup]) if speedup else 'faster than these'}, with {error}."
    return f"The fastest quantized kernel, {name}, has {error} and is not measurably faster."


def _names(records: Sequence[Record]) -> str:
    return counted([label(record.variant) for record in records])


def counted(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, of which some of many are counted."""
    return listed(names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} others"])


def gain_over(baseline: Record, speedups: Sequence[Estimate]) -> str:
    """Return "4% faster than PyTorch's default", or "2.3 times as fast as" it."""
    gain = _gain(speedups)
    return f"{gain} {'than' if gain.endswith('faster') else 'as'} {baseline_name(baseline)}"


def _gain(speedups: Sequence[Estimate]) -> str:
    """Return "4% faster", "4 to 7% faster", or from a factor of two on "2.3 times as fast"."""
    low, high = min(one.value for one in speedups), max(one.value for one in speedups)
    if high >= 2:
        return f"{_span(f'{low:.1f}', f'{high:.1f}')} times as fast"
    whole = {f"{100 * (each - 1):.0f}" for each in (low, high)}
    digits = 1 if low < 1.01 or (len(whole) > 1 and high - low < 0.01) else 0  # 5.4 and 5.5%, not 5 to 6%
    return f"{_span(f'{100 * (low - 1):.{digits}f}', f'{100 * (high - 1):.{digits}f}')}% faster"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
