"""The one place where a flag becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from fluxbench.analysis.failures import FlagRange
from fluxbench.analysis.groups import flags_of, is_partly_replayed, ranking_regime, timing_of
from fluxbench.core.formatting import number, reason
from fluxbench.records.schema import BURST, Flag, Record
from fluxbench.records.status import FlagKind

# {value} and {detail} are the flag's, see `FlagKind`.
_WORDS = {
    FlagKind.NOT_SETTLED: "the speed did not settle in {value}",
    FlagKind.DISCARDED: "{value} of the samples were out of the regime ({detail}), and discarded",
    FlagKind.KEPT_OUT_OF_REGIME: "{value} of the samples were out of the regime ({detail}), and kept as few are left",
    FlagKind.CUPTI_DIFFERS: "the CUPTI cross-check differs by {value}",
    FlagKind.NO_CUPTI: "no CUPTI cross-check: the profiler recorded no kernels",
    FlagKind.NOT_PROFILED: "which kernels ran is not known of {value}",
    FlagKind.LAUNCH_BOUND: "launch-bound, the host was barely ahead of the device in {value}",
    FlagKind.REPLAYED: "timed as CUDA graphs; a call that the host launches takes {value}",
    FlagKind.NOT_REPLAYED: "the host launched calls in {value} (no CUDA graph: {detail})",
    FlagKind.OTHER_REFERENCE: "the ratio excludes {value}, in which another variant was the reference",
    FlagKind.SLEPT: "the machine slept for {value} during the measurement",
    FlagKind.NO_TELEMETRY: "clock, power and temperature are unknown: the driver does not report them",
    FlagKind.NO_ENERGY: "energy is unknown: the driver counts none, or too coarsely",
    FlagKind.EARLY: "not finished: measured in one process, and not checked on all kinds of inputs yet",
    FlagKind.SHARED_DEVICE: "another process used the device: {detail}",
    FlagKind.FASTER_THAN_ROOFLINE: "{value} is faster than the roofline",
    FlagKind.WORKS_ASIDE: "the kernel works outside of its calls, by {value} of their time",
    FlagKind.SKIPS_WORK: "the kernel skips work: on repeated inputs it takes {value} of the time on new ones",
}  # fmt: skip
_OF_PROCESSES = (
    FlagKind.NOT_SETTLED, FlagKind.NOT_PROFILED, FlagKind.LAUNCH_BOUND, FlagKind.NOT_REPLAYED, FlagKind.OTHER_REFERENCE,
)  # fmt: skip
_UNKNOWN = {
    FlagKind.DISCARDED: "some",
    FlagKind.KEPT_OUT_OF_REGIME: "some",
    FlagKind.SKIPS_WORK: "part",
    FlagKind.WORKS_ASIDE: "part",
}


def words(flag: Flag, processes: int) -> str:
    """Return what a flag says of a record that was measured in so many processes."""
    return _sentence(flag.kind, flag.regime, flag.detail, _value(flag.kind, flag.value, processes))


def range_words(flags: FlagRange) -> str:
    """Return what several flags of one kind say, with their smallest and largest value."""
    texts = dict.fromkeys(_value(flags.kind, value, 0) for value in flags.values or (None,))
    return _sentence(flags.kind, flags.regime, flags.detail, " to ".join(texts))


def not_converged_words(regime: str) -> str:
    """Return that the precision that is asked for was not reached in a regime."""
    return f"{regime}: not converged, the limits of time and processes came before the target precision"


def all_words(record: Record) -> Iterable[str]:
    """Yield what each flag of a record says, and why a PASSED one has no time all the same."""
    processes = timing_of(record).processes if record.timing else 0
    yield from (words(flag, processes) for flag in flags_of(record))
    if is_partly_replayed(record):
        yield why_no_time(record)


def why_no_time(record: Record) -> str:
    """Return why a record has no time: its status and its reason, or that its processes timed two things."""
    refused = record.flagged(FlagKind.NOT_REPLAYED, regime=ranking_regime([record]))
    if not refused or not is_partly_replayed(record):
        return f"{record.status.value}: {reason(record.reason)}"
    processes = timing_of(record).processes
    several = "some" if refused.value is None else f"{processes - refused.value:.0f} of {processes}"
    why = f" ({refused.detail})" if refused.detail else ""
    return f"no time: a CUDA graph was replayed in {several} processes, in the others the host launched calls{why}"


def _sentence(kind: FlagKind, regime: str | None, detail: str | None, value: str) -> str:
    sentence = _WORDS[kind].format(value=value, detail=" ".join((detail or "unknown").split()))
    if kind is FlagKind.NOT_REPLAYED and regime == BURST:
        sentence += ", each timed with two events, which take up to 3 µs"
    if kind is FlagKind.LAUNCH_BOUND and detail:  # of old records
        sentence += f" (no CUDA graph: {' '.join(detail.split())})"
    return f"{regime}: {sentence}" if regime else sentence


def _value(kind: FlagKind, value: float | None, processes: int) -> str:
    """Return the value of a flag with its unit."""
    if kind in _OF_PROCESSES:
        if value is None:
            return "some processes"
        return f"all {value:.0f} processes" if value == processes else f"{value:.0f} of {processes} processes"
    if value is None:
        return _UNKNOWN.get(kind, "an unknown time")
    if kind is FlagKind.CUPTI_DIFFERS:
        return f"{100 * value:+.1f}%"
    if kind in (FlagKind.DISCARDED, FlagKind.KEPT_OUT_OF_REGIME, FlagKind.SKIPS_WORK, FlagKind.WORKS_ASIDE):
        return f"{value:.1%}"
    return f"{value:.1f} s" if kind is FlagKind.SLEPT else f"{number(value)} ms"
