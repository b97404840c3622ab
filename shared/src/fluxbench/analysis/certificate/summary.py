"""The certificate in one object and in words: what was asked of the harness, what it gave, and whether that is met."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fluxbench.analysis.certificate import position, runs
from fluxbench.analysis.certificate.runs import Trials
from fluxbench.core.formatting import number, percent
from fluxbench.stats.significance import Verdict

# What is asked for of an H200, as shares; the numbers of trials below which a rate says too little.
FALSE_AT_MOST, UNDECIDED_AT_MOST, COMPARISONS = 0.01, 0.10, 200
FOUND_AT_LEAST, TRIALS = {1.0: 0.95, 2.0: 1.0}, 100
POSITION_AT_MOST = 0.002
RERUN_AT_MOST, RERUNS = 0.003, 3
NOT_MEASURED = "not measured"
AT_ONCE = (
    "These runs overlapped in time, so each had a card of its own, of the same model: what differs between cards is in "
    "these numbers."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One question, its answer, of how many trials, what is asked for, and whether that is met."""

    question: str
    answer: str
    trials: str
    target: str = "-"
    met: str = "-"


def summary(
    trials: Trials | None, reruns: Mapping[str, Any], ceilings: Mapping[str, Any], why_no_trials: str = ""
) -> dict[str, Any]:
    """Return what `summary.json` holds. Rates and differences are shares; null is what could not be measured.

    `beside` holds what the issue's keys have no place for: counts, conditions, parts of a number, and by key why it is
    null.
    """
    reasons: dict[str, str] = {}
    beside: dict[str, Any] = {"null_because": reasons}
    compared = runs.a_a(trials) if trials else []
    same = runs.tally(row for each in compared for row in each.rows)
    levels = {f"{x:g}": runs.detected(trials, x) if trials else None for x in runs.PERCENT}
    effects = [each for each in position.effects(trials) if math.isfinite(each.noise)] if trials else []
    moved = position.largest(effects)
    clocks = _clocks(trials, reruns)
    again = reruns.get("runs", 0) > 1  # of every cell
    burst, sustained = (reruns.get(f"{regime}_faster") if again else None for regime in ("burst", "sustained"))
    no_trials = why_no_trials or "two runs that passed are needed for a comparison"
    found = {
        "a_a": {
            "comparisons": same.count,
            "false_verdict_rate": same.rate(Verdict.FASTER, Verdict.SLOWER),
            "undecided_rate": same.rate(Verdict.UNDECIDED),
        },
        "detection": {
            level: {"trials": each.total.count if each else 0, "found_rate": each.rate if each else None}
            for level, each in levels.items()
        },
        "position_effect_max": moved.largest if moved else None,
        "rerun_ratio_max_difference": burst["max"] if burst else None,
        "rerun_ratio_max_difference_sustained": sustained["max"] if sustained else None,
        "clock_agreement_max_difference": max((abs(share) for _, share in clocks), default=None),
        "event_overhead_us": ceilings.get("event_us"),
        "measured_at": max((record.measured_at for record in trials.records), default=None) if trials else None,
        "fingerprint": dict(trials.fingerprint) if trials else {},
    }
    if not same.count:
        reasons["a_a"] = reasons["detection"] = no_trials
    for key, reason in (
        ("position_effect_max", no_trials),
        ("rerun_ratio_max_difference", reruns.get("reason") or "there are no results of the Flux notebook"),
        ("clock_agreement_max_difference", "no record was timed by a second clock"),
        ("event_overhead_us", ceilings.get("reason") or "the cell that measures it gave nothing"),
    ):
        if found[key] is None:
            reasons[key] = str(reason)
    beside["a_a"] = {
        "covers_truth_rate": same.covered / same.count if same.count else None,
        "half_interval_median": same.half,
        "not_compared": same.missing,
        "pairs_of_runs": len(compared),
        "device_called_moved": sum(bool(each.device and each.device.called) for each in compared),
    }
    beside["detection"] = {level: _seen(each) for level, each in levels.items() if each}
    beside["position"] = [vars(each) for each in effects]
    beside["reruns"] = {key: value for key, value in reruns.items() if key != "clocks"}
    beside["clocks"] = (
        {"records": len(clocks), "largest_at": max(clocks, key=lambda it: abs(it[1]))[0]} if clocks else {}
    )
    own = runs.again(trials) if trials else []
    beside["trials_again"] = {"ratios": len(own), "max": max(own), "median": median(own)} if own else {}
    beside["conditions"] = conditions(trials) if trials else {}
    return {**found, "beside": beside}


def _seen(each: runs.Detected) -> dict[str, Any]:
    return {
        "true_ratio": dict(each.truth),
        "found_rate_by_kernel": {base: its.rate(Verdict.SLOWER) for base, its in each.by_base.items()},
        "called_faster": each.total.verdicts[Verdict.FASTER],
        "covers_truth_rate": each.total.covered / each.total.count if each.total.count else None,
        "half_interval_median": each.total.half,
    }


def _clocks(trials: Trials | None, reruns: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return where two clocks timed the same call, and by which share they differ."""
    own = runs.clock_differences(trials) if trials else []
    return [
        *((f"{record.variant} at {record.workload.name}", share) for record, share in own),
        *((f"{each['variant']} at {each['workload']}", each["difference"]) for each in reruns.get("clocks", [])),
    ]


def conditions(trials: Trials) -> dict[str, Any]:
    """Return what the device was doing during the trials: ranges over the records, None where it does not say."""
    told = [record.burst_telemetry for record in trials.records if record.burst_telemetry]
    found: dict[str, Any] = {
        "regime": "burst",
        "device": trials.device,
        "runs": len(trials.runs),
        "runs_asked": trials.asked,
        "processes": trials.processes,
        "others": sorted({other for run in trials.runs for other in run.others}),
    }
    for key in ("sm_clock_mhz", "power_w", "temperature_c"):
        values = [value for each in told if (value := getattr(each, key)) is not None]
        found[key] = [min(values), max(values)] if values else None
    found["throttle_reasons"] = sorted({reason for each in told for reason in each.throttle_reasons})
    return found


def state(conditions: Mapping[str, Any]) -> str:
    """Return the conditions as a sentence."""
    parts = [
        f"{conditions['runs']} runs of {conditions['processes'] // max(1, conditions['runs'])} fresh processes each"
    ]
    units = (("sm_clock_mhz", "SM clock", "MHz"), ("power_w", "power", "W"), ("temperature_c", "temperature", "°C"))
    known = [(word, unit, conditions[key]) for key, word, unit in units if conditions.get(key)]
    for word, unit, ends in known:
        parts.append(f"{word} {' to '.join(dict.fromkeys(f'{end:,.0f}' for end in ends))} {unit}")
    if not known:
        parts.append("the device tells no clock, power or temperature")
    if reasons := conditions.get("throttle_reasons"):
        parts.append(f"throttle reasons seen: {', '.join(reasons)}")
    if others := conditions.get("others"):
        parts.append(f"another process used the device: {'; '.join(others)}")
    return f"Regime: burst, single calls on a device that rested. {conditions['device']}; {'; '.join(parts)}."


def lines(found: Mapping[str, Any]) -> list[Line]:
    """Return the questions that a summary answers."""
    same, beside = found["a_a"], found["beside"]
    count = same["comparisons"]
    pairs = f"{count:,} comparisons"
    made = [
        Line(
            question="A/A: the same kernel called different",
            answer=_rate(same["false_verdict_rate"]),
            trials=pairs,
            target=f"<= {FALSE_AT_MOST:.0%} of >= {COMPARISONS}",
            met=_met(same["false_verdict_rate"], lambda rate: rate <= FALSE_AT_MOST, enough=count >= COMPARISONS),
        ),
        Line(
            question="A/A: left undecided",
            answer=_rate(same["undecided_rate"]),
            trials=pairs,
            target=f"<= {UNDECIDED_AT_MOST:.0%}",
            met=_met(same["undecided_rate"], lambda rate: rate <= UNDECIDED_AT_MOST, enough=count >= COMPARISONS),
        ),
    ]
    for level, its in found["detection"].items():
        wanted = FOUND_AT_LEAST.get(float(level))
        made.append(
            Line(
                question=f"a slowdown of {level}% is found",
                answer=_rate(its["found_rate"]),
                trials=f"{its['trials']:,} trials",
                target=f">= {wanted:.0%} of >= {TRIALS}" if wanted else "-",
                met=_met(its["found_rate"], lambda rate, w=wanted: rate >= w, enough=its["trials"] >= TRIALS)
                if wanted
                else "-",
            )
        )
    moved, reruns = found["position_effect_max"], beside["reruns"]
    noise = max((each["noise"] for each in beside["position"]), default=0.0)
    made.append(
        Line(
            question="position in the order: moves a median by",
            answer=_share(moved),
            trials=f"{sum(each['count'] for each in beside['position']):,} samples, turns; noise {percent(noise, 2)}",
            target=f"<= {percent(POSITION_AT_MOST)}",
            met=_met(moved, lambda share: share <= POSITION_AT_MOST, enough=True)
            if noise < POSITION_AT_MOST / 2
            else "too few",
        )
    )
    own = beside["trials_again"]
    made.append(
        Line(
            question="these trials again: a burst ratio differs by",
            answer=_share(own.get("max")),
            trials=f"{beside['conditions'].get('runs', 0)} runs, {own.get('ratios', 0)} ratios",
        )
    )
    cards = ", several cards" if reruns.get("at_once") else ""
    for regime, key in (("burst", ""), ("sustained", "_sustained")):
        share, many = found[f"rerun_ratio_max_difference{key}"], reruns.get("runs", 0)
        its = reruns.get(f"{regime}_faster") or {"count": 0}
        made.append(
            Line(
                question=f"Flux again{cards}: a {regime} ratio differs by",
                answer=_share(share),
                trials=f"{many} run{'s' * (many != 1)}, {its['count']} ratios",
                target="-" if key else f"<= {percent(RERUN_AT_MOST)} of {RERUNS} runs",
                met="-" if key else _met(share, lambda share: share <= RERUN_AT_MOST, enough=many >= RERUNS),
            )
        )
    made.append(
        Line(
            question="two clocks, the same call: differ by",
            answer=_share(found["clock_agreement_max_difference"]),
            trials=f"{beside['clocks'].get('records', 0):,} records",
        )
    )
    event = found["event_overhead_us"]
    answer = NOT_MEASURED if event is None else f"{number(event)} µs"
    made.append(Line(question="what an event costs", answer=answer, trials="medians of 3 processes"))
    return made


def _met(value: float | None, meets: Any, *, enough: bool) -> str:
    if value is None:
        return "-"
    if not meets(value):
        return "no"
    return "yes" if enough else "too few"


def _share_of(share: float | None) -> str:
    if share in (0, 1):
        return "all" if share else "none"
    return _rate(share)


def _rate(share: float | None) -> str:
    return NOT_MEASURED if share is None else percent(share)


def _share(share: float | None) -> str:
    return NOT_MEASURED if share is None else percent(share, 2)


def verdict(found: Mapping[str, Any], made: Sequence[Line]) -> str:
    """Return the certificate in a few sentences: what A/A and slowdowns gave, and which targets are not met."""
    same = found["a_a"]
    if not same["comparisons"]:
        return f"The harness could not be tried: {found['beside']['null_because'].get('a_a', 'nothing was compared')}."
    wrong = round(same["false_verdict_rate"] * same["comparisons"])
    called = (
        f"{wrong:,} ({percent(same['false_verdict_rate'])}) were" if wrong > 1 else "one was" if wrong else "none was"
    )
    slowdowns = [
        f"one of {level}% was found in {_share_of(its['found_rate'])} of {its['trials']:,} trials"
        for level, its in found["detection"].items()
        if float(level) in FOUND_AT_LEAST
    ]
    undecided = percent(same["undecided_rate"]) if same["undecided_rate"] else "none"
    said = (
        f"In {same['comparisons']:,} comparisons of a kernel with itself {called} called different and "
        f"{undecided} stayed undecided. Of slowdowns "
        f"that were put in, {' and '.join(slowdowns)}."
    )
    not_met = [f"{line.question} {line.answer} (target {line.target})" for line in made if line.met == "no"]
    few = [line for line in made if line.met == "too few"]
    missing = [line for line in made if line.target != "-" and line.met == "-"]
    ends = [f"Not met: {'; '.join(not_met)}." if not_met else "No target is missed."]
    if few:
        ends.append(f"{len(few)} would need more trials.")
    if missing:
        ends.append(f"{len(missing)} {'was' if len(missing) == 1 else 'were'} not measured.")
    return " ".join([said, *ends])
