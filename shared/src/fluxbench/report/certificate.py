"""What a showing cell of the certificate calls: its trials, runs and rates, judged and drawn as text.

The trials are measured by `certificate_trials`, an event's cost by `bench.ceilings`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from fluxbench.analysis.certificate import position
from fluxbench.analysis.certificate import reruns as certificate_reruns
from fluxbench.analysis.certificate import runs as certificate_runs
from fluxbench.analysis.certificate import summary as certificate_summary
from fluxbench.analysis.certificate.runs import Tally, Trials
from fluxbench.analysis.comparison import Row
from fluxbench.core.formatting import percent, utc
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.records import schema as records
from fluxbench.records.schema import RecordError
from fluxbench.report.tables.text import grid, prose
from fluxbench.show import input_json, inputs
from fluxbench.stats.significance import Verdict


def summary() -> None:
    """Print the certificate, its verdict first, and write `summary.json`."""
    trials = _trials()
    why = str((input_json("trials.json") or {}).get("reason") or "")
    found = certificate_summary.summary(trials, input_json("reruns.json") or {}, input_json("ceilings.json") or {}, why)
    records.write_text(Path("summary.json"), json.dumps(found, indent=1, allow_nan=False) + "\n")
    print(summary_text(found))


def summary_text(found: dict[str, object]) -> str:
    """Return what a summary says: the verdict, the table of questions, the conditions, and what has no number."""
    made = certificate_summary.lines(found)
    beside = found["beside"]
    assert isinstance(beside, dict)
    rows = [(line.question, line.answer, line.trials, line.target, line.met) for line in made]
    parts = [
        prose(certificate_summary.verdict(found, made)),
        grid(("question", "answer", "of", "target, H200", "met"), rows, left=(0, 2, 3, 4)),
    ]
    if beside["conditions"]:
        when = f"Measured {utc(str(found['measured_at']))}." if found["measured_at"] else ""
        parts.append(prose(certificate_summary.state(beside["conditions"]), when))
    parts += [prose(f"No number for {key}: {reason}.") for key, reason in beside["null_because"].items()]
    return "\n\n".join(parts)


def agreement() -> None:
    """Print how often a kernel is called different from itself, by kernel and workload."""
    print(agreement_text(_needed()))


def agreement_text(trials: Trials) -> str:
    """Return the A/A comparisons as a table with what they are."""
    compared = certificate_runs.a_a(trials)
    rows = [row for each in compared for row in each.rows]
    cases: dict[tuple[str, str], list[Row]] = {
        (base, at): [] for base in trials.bases for at in dict.fromkeys(row.workload for row in rows)
    }
    for row in rows:
        cases[trials.forms[row.variant].base, row.workload].append(row)
    table = [(base, at, *_tallied(certificate_runs.tally(its))) for (base, at), its in cases.items()]
    table.append(("all", "", *_tallied(certificate_runs.tally(rows))))
    moved = sum(bool(each.device and each.device.called) for each in compared)
    header = ("kernel", "workload", "compared", "called", "undecided", "95% holds 1", "half of 95%")
    return "\n\n".join([
        grid(header, table, left=(0, 1)),
        prose(
            f"{len(compared)} pairs of {len(trials.runs)} runs ({trials.processes} fresh processes); in each pair "
            f"{len(certificate_runs.unslowed(trials))} variants that did not change, judged as one table. Pairs share "
            "runs, so that the comparisons are not independent: the runs are. Burst times, net of the sentinel.",
            f"The sentinel itself was called moved in {moved} of the pairs.",
            _missing(certificate_runs.tally(rows)),
        ),
    ])  # fmt: skip


def detection() -> None:
    """Print how often a slowdown that was put in is found, by its size and kernel."""
    print(detection_text(_needed()))


def detection_text(trials: Trials) -> str:
    """Return what became of each slowdown as a table with what a trial is, and the truth that it rests on."""
    table: list[tuple[str, ...] | str] = []
    levels = {level: certificate_runs.detected(trials, level) for level in certificate_runs.PERCENT}
    for level, each in levels.items():
        for base, its in each.by_base.items():
            seen = f"{each.truth[base]:.4f}" if base in each.truth else "-"
            table.append((f"{level:g}%", base, seen, *_found(its)))
        table.append((f"{level:g}%", "all", "", *_found(each.total)))
    header = ("put in", "kernel", "true ratio", "trials", "found", "called faster", "95% holds it", "half of 95%")
    twins = [
        f"{base} {median(ratios):.4f}"
        for base in trials.bases
        if (ratios := certificate_runs.put_in(trials, base, 0.0, twin=True))
    ]
    rows = max((len(each.rows) for each in certificate_runs.a_a(trials)), default=0)
    return "\n\n".join([
        grid(header, table, left=(0, 1)),
        prose(
            "A trial: one run before, another after; after, one kernel of the table is slower, all others are as they "
            f"were. The row of that kernel at one workload is found where it is told slower. {len(trials.runs)} runs "
            f"({trials.processes} fresh processes), each before and after each other: trials share runs. A table has "
            f"{rows} rows; in a longer one a single change must be clearer to be told.",
            "The true ratio is that of the slowed form to `plus_0` within a process, the median over all: not what was "
            "asked for, but what was put in.",
            f"The same of the twin, into which nothing was put: {', '.join(twins)}." if twins else "",
            _missing(levels[certificate_runs.PERCENT[0]].total),
        ),
    ])  # fmt: skip


def order() -> None:
    """Print how far medians depend on the place in an order."""
    print(order_text(_needed()))


def order_text(trials: Trials) -> str:
    """Return both effects of position as a table with what they are."""
    table = [
        (
            each.kind,
            each.base,
            f"{each.count:,}",
            *("-" if third is None else f"{100 * third:+.3f}%" for third in each.thirds),
            percent(each.noise, 3),
        )
        for each in position.effects(trials)
    ]
    return "\n\n".join([
        grid(("position", "kernel", "count", *position.THIRDS, "noise"), table, left=(0, 1)),
        prose(
            "By how much the median of each third of an order lies off the median of all. Of a call in its round: each "
            "sample over the median of its own turn. Of a turn in its process: each turn's median over that of all "
            "processes. All forms and workloads of a kernel are pooled. Noise: the standard error of such a median. "
            "Burst."
        ),
    ])  # fmt: skip


def reruns() -> None:
    """Print how far fresh runs of the Flux notebook differ, from its results on this machine; write `reruns.json`."""
    try:
        root = Settings.load().root
    except SetupError as error:
        sys.exit(f"fluxbench: {error}")
    found = certificate_reruns.summary(certificate_reruns.at_hand(root, hardware.detect()))
    records.write_text(Path("reruns.json"), json.dumps(found, indent=1) + "\n")
    print(reruns_text(found))


def reruns_text(found: dict[str, object]) -> str:
    """Return how far the runs differ as a table with which runs these are."""
    table = []
    for regime in certificate_reruns.REGIMES:
        for which, words in (("faster", "under"), ("slower", "from")):
            its = found[f"{regime}_{which}"]
            if isinstance(its, dict):
                where = f"{its['variant']} at {its['workload']}"
                spans = percent(its["median"], 2), percent(its["max"], 2)
                table.append((regime, f"{words} {found['fast_ms']:g} ms", f"{its['count']}", *spans, where))
    header = ("regime", "variants that take", "ratios", "differ by, median", "at most", "at")
    compared, cells = found["compared"], found["cells"]
    assert isinstance(compared, dict)
    assert isinstance(cells, dict)
    parts = [grid(header, table, left=(0, 1, 5))] if table else []
    if compared["rows"]:
        parts.append(
            prose(
                f"{compared['pairs']} pairs of these runs as `fluxbench diff` compares them, {compared['rows']} rows: "
                f"{compared['called']} called changed, {compared['undecided']} undecided; under sustained load "
                f"{compared['called_sustained']} called changed. The sentinel was called moved in "
                f"{compared['device_moved']} of the pairs."
            )
        )
    if late := found.get("late"):
        parts.append(prose(f"Sustained ratios that are of launching in some run are left out: {late}."))
    if found.get("at_once"):
        parts.append(prose(certificate_summary.AT_ONCE))
    if found["reason"]:
        parts.append(prose(f"No difference of burst ratios under {found['fast_ms']:g} ms: {found['reason']}."))
    if once := found.get("once"):
        assert isinstance(once, list)
        parts.append(prose(f"Left out, with one run alone: {', '.join(once)}."))
    runs = [f"  {cell}: {', '.join(utc(when) for when in its)}" for cell, its in cells.items()]
    return "\n\n".join([*parts, "\n".join(["Runs of the same fingerprint, the newest first:", *(runs or ["  none"])])])


def clocks() -> None:
    """Print how two clocks agree on the same calls of the trials."""
    print(clocks_text(_needed()))


def clocks_text(trials: Trials) -> str:
    """Return how far the two clocks differ as a table, by kernel."""
    found = certificate_runs.clock_differences(trials)
    table = []
    for base in trials.bases:
        shares = [abs(share) for record, share in found if trials.forms[record.variant].base == base]
        if shares:
            table.append((base, f"{len(shares)}", percent(median(shares), 2), percent(max(shares), 2)))
    if not table:
        return "No record was timed by a second clock: the profiler recorded no kernels."
    said = (
        "Events (on a CPU: the monotonic clock) against the profiler's times of the kernels in the same call. What two "
        "events span must lie between the kernels' sum and the span from the first one's begin to the last one's end; "
        "this is by how much it does not. Burst, the first process of each run."
    )
    return "\n\n".join([grid(("kernel", "records", "differ by, median", "at most"), table), prose(said)])


def _tallied(tally: Tally) -> tuple[str, ...]:
    undecided = f"{tally.verdicts[Verdict.UNDECIDED]}"
    return f"{tally.count}", f"{tally.called}", undecided, _of(tally.covered, tally.count), _half(tally)


def _found(tally: Tally) -> tuple[str, ...]:
    faster = f"{tally.verdicts[Verdict.FASTER]}"
    found = _of(tally.verdicts[Verdict.SLOWER], tally.count)
    return f"{tally.count}", found, faster, _of(tally.covered, tally.count), _half(tally)


def _of(part: int, count: int) -> str:
    return percent(part / count) if count else "-"


def _half(tally: Tally) -> str:
    return "-" if tally.half is None else f"±{percent(tally.half, 2)}"


def _missing(tally: Tally) -> str:
    return f"{tally.missing} rows could not be compared: a variant was not measured there." if tally.missing else ""


def _trials() -> Trials | None:
    for folder in inputs():
        if (folder / "trials.json").is_file():
            try:
                return certificate_runs.read((folder / "trials.json").read_text(encoding="utf-8"))
            except RecordError as error:
                sys.exit(f"fluxbench: {error}; run the cell that wrote it again")
    return None


def _needed() -> Trials:
    trials = _trials()
    if trials is None:
        sys.exit("fluxbench: this cell must have needs=trials, for trials.json; add it to the cell's first line")
    return trials
