"""The symbols behind a rank or a time, and the sentences that explain them.

`=`: tied. `c`: not converged, the limits of time and processes came before the target precision. `h`: launch-bound, the
host was barely ahead of the device. `g`: CUDA graphs were timed, since launching takes nearly as long. A symbol that
every row would have is left out, and one sentence says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fluxbench.analysis.groups import capped_regimes, is_launch_bound, launched_ms, ranking_regime
from fluxbench.analysis.ranking import Ranked
from fluxbench.core.formatting import number
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.report.sentences import PRECISION

MANY = 8  # variants that a sentence names; of more it gives the number


def everywhere(records: Iterable[Record]) -> frozenset[str]:
    """Return the regimes in which none of several records with times converged: no row has a symbol for these."""
    capped = [frozenset(capped_regimes(record)) for record in records if record.timing]
    return frozenset.intersection(*capped) if len(capped) > 1 else frozenset()


def of_place(entry: Ranked, omitted: Collection[str]) -> str:
    """Return what stands behind a rank: `=` where it is tied, `c`, `h` and `g` of the regime that ranks."""
    return "=" * entry.tied + of_time(entry.record, ranking_regime([entry.record]), omitted).strip()


def of_time(record: Record, regime: str, omitted: Collection[str]) -> str:
    """Return what stands behind a time of a record, after a space; empty where nothing does."""
    symbols = "c" * (regime in capped_regimes(record) and regime not in omitted)
    symbols += "h" * (regime == ranking_regime([record]) and is_launch_bound(record))
    symbols += "g" * (regime == SUSTAINED and launched_ms(record) is not None)
    return f" {symbols}" if symbols else ""


def named(record: Record) -> str:
    """Return a record's variant, with `h` behind it where it is launch-bound."""
    return record.variant + " h" * is_launch_bound(record)


def launch_bound_note(records: Iterable[Record]) -> str:
    """Return the sentence that explains `h`, empty where none of these records has it."""
    timed = [record for record in records if record.timing]
    launch_bound = dict.fromkeys(record.variant for record in timed if is_launch_bound(record))
    if not launch_bound:
        return ""
    which = _which(list(launch_bound), list(dict.fromkeys(record.variant for record in timed)))
    return (
        "h: launch-bound, in one process or more the host was barely ahead of the device, so its sustained time, by "
        f"which it is ranked, is that of launching, and the kernel is faster: {which}."
    )


def replayed_note(records: Iterable[Record]) -> str:
    """Return the sentence that explains `g`, with the times at each variant's longest; empty where none has it."""
    longest: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: record.workload.x):
        if launched_ms(record) is not None:
            longest[record.variant] = record
    if not longest:
        return ""
    times = "; ".join(f"{name} {number(launched_ms(record) or 0.0)} ms" for name, record in longest.items())
    return (
        "g: launching a call takes nearly as long as the call or longer, so sustained calls are replayed as CUDA "
        f"graphs. A call that the host launches, back to back, takes: {times}."
    )


def notes(records: Iterable[Record], shown: Collection[str] = (SUSTAINED, BURST)) -> list[str]:
    """Return a sentence for each symbol that some of these records have, or that is left out since all would have it.

    `shown` are the regimes whose times have symbols where this is shown.
    """
    timed = [record for record in records if record.timing]
    omitted = everywhere(timed)
    variants = list(dict.fromkeys(record.variant for record in timed))
    capped: dict[str, dict[str, None]] = {}
    for record in timed:
        for regime in capped_regimes(record):
            capped.setdefault(regime, {})[record.variant] = None
    with_symbol = {regime for regime in capped if regime in shown and regime not in omitted}
    parts = []
    for regime in (SUSTAINED, BURST):
        if not (of_regime := capped.get(regime)):
            continue
        which = "every row" if regime in omitted else _which(list(of_regime), variants)
        parts.append(
            f"{regime} {which}" + (", without the symbol" if with_symbol and regime not in with_symbol else "")
        )
    sentences = []
    if parts:
        limits = f"ot converged, the limits of time and processes came before the target precision ({PRECISION})"
        sentences.append(f"{'c: n' if with_symbol else 'N'}{limits}: {'; '.join(parts)}.")
    if note := launch_bound_note(timed):
        sentences.append(note)
    if note := replayed_note(timed):
        sentences.append(note)
    return sentences


def _which(variants: Sequence[str], of: Sequence[str]) -> str:
    if len(variants) == len(of) > 1:
        return "every variant"
    return ", ".join(variants) if len(variants) <= MANY else f"{len(variants)} of {len(of)} variants"
