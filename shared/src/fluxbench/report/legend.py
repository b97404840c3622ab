"""The signs behind a rank or a time, and the sentences that explain them. What holds of every row is said once instead.

`c`: the caps of time and processes came before the precision that is asked for. `h`: the host launched too slowly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fluxbench.analysis.ranking import Ranked, capped, launch_bound, timing_of
from fluxbench.records.schema import Record, Timing
from fluxbench.report.sentences import PRECISE

MANY = 8  # variants that a sentence names; of more it says how many


def everywhere(records: Iterable[Record]) -> frozenset[str]:
    """Return the regimes of which several records with times all hit the caps: no row has a sign for these."""
    found = [set(capped(record)) for record in records if record.timing]
    return frozenset.intersection(*map(frozenset, found)) if len(found) > 1 else frozenset()


def of_place(entry: Ranked, unsigned: Collection[str]) -> str:
    """Return what stands behind a rank, which is a sustained one: `=` where it is tied, `c` and `h`."""
    timing = timing_of(entry.record)
    return "=" * entry.tied + of_time(entry.record, timing, unsigned).strip()


def of_time(record: Record, timing: Timing, unsigned: Collection[str]) -> str:
    """Return what stands behind a time of a record, after a space; empty where nothing does."""
    sustained = timing is record.timing
    found = "c" * (timing.precise is False and timing.regime not in unsigned)
    found += "h" * (sustained and launch_bound(record))
    return f" {found}" if found else ""


def named(record: Record) -> str:
    """Return a record's variant, with `h` behind it where its sustained time has that sign."""
    return record.variant + " h" * launch_bound(record)


def late_note(records: Iterable[Record]) -> str:
    """Return the sentence that explains `h`, empty where none of these records has it."""
    passed = [record for record in records if record.timing]
    late = dict.fromkeys(record.variant for record in passed if launch_bound(record))
    if not late:
        return ""
    return (
        "h: in one process or more the host was hardly ahead of the device, so launching is what was timed there "
        f"(sustained), and such a time has no rank: {_which(list(late), list({r.variant for r in passed}))}."
    )


def notes(records: Iterable[Record], signed: Collection[str] = ("sustained", "burst")) -> list[str]:
    """Return a sentence for each sign that some of these records have, or that stands behind none since all would.

    `signed` are the regimes whose times have signs where this is said.
    """
    passed = [record for record in records if record.timing]
    unsigned = everywhere(passed)
    variants = list(dict.fromkeys(record.variant for record in passed))
    found: dict[str, dict[str, None]] = {}
    for record in passed:
        for regime in capped(record):
            found.setdefault(regime, {})[record.variant] = None
    has_sign = {regime for regime in found if regime in signed and regime not in unsigned}
    said = []
    for regime, its in found.items():
        which = "every row" if regime in unsigned else _which(list(its), variants)
        said.append(f"{regime} {which}" + (", without the sign" if has_sign and regime not in has_sign else ""))
    sentences = []
    if said:
        caps = f"he caps of time and processes came before the precision that is asked for ({PRECISE})"
        sentences.append(f"{'c: t' if has_sign else 'T'}{caps}: {'; '.join(said)}.")
    if late := late_note(passed):
        sentences.append(late)
    return sentences


def _which(variants: Sequence[str], of: Sequence[str]) -> str:
    if len(variants) == len(of) > 1:
        return "every variant"
    return ", ".join(variants) if len(variants) <= MANY else f"{len(variants)} of {len(of)} variants"
