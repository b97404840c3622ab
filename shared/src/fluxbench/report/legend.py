"""The symbols behind a rank, a name or a time, and what explains them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fluxbench import variants
from fluxbench.analysis.groups import capped_regimes, has_time, is_launch_bound, is_replayed, ranking_regime
from fluxbench.analysis.ranking import UNCERTAIN_FROM, Ranked
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Facts, Fold, Name
from fluxbench.report.sentences import PRECISION

MANY = 8  # variants that a sentence names; of more it gives the number
TOO_UNCERTAIN = (
    "too uncertain for a rank, with 95% intervals of time and of ratio that both reach over "
    f"{UNCERTAIN_FROM:g} times the value"
)
NO_TIME = (
    "No time: in some processes a CUDA graph was replayed, in others the host launched single calls. The two are not "
    "one time."
)
_SYMBOLS = {  # a word for each, and a sentence
    "=": ("tied", "Tied: no measurable difference to another variant of the ranking."),
    "c": (
        "not converged",
        f"Not converged: the limits of time and processes came before the target precision ({PRECISION}). A table in "
        "which every row would have it leaves it out.",
    ),
    "h": (
        "launch-bound",
        "Launch-bound: in one process or more the host was barely ahead of the device. The sustained time is that of "
        "launching, and the kernel itself is faster.",
    ),
    "g": (
        "timed as CUDA graphs",
        "Several calls were replayed as one CUDA graph, so that the device does not wait for the host to launch each. "
        "Without this mark the host launched each call, which for max-autotune is a graph of torch's own.",
    ),
}


def explained(symbols: Collection[str]) -> list[Fold]:
    """Return the legend of the symbols that tables use; nothing where they use none."""
    used = {symbol: words for symbol, words in _SYMBOLS.items() if symbol in symbols}
    title = ", ".join(f"{symbol} {word}" for symbol, (word, _) in used.items())
    facts = Facts(tuple((symbol, sentence) for symbol, (_, sentence) in used.items()))
    return [Fold(f"Legend: {title}", [facts])] if used else []


def everywhere(records: Iterable[Record]) -> frozenset[str]:
    """Return the regimes in which none of several records with times converged: no row has a symbol for these."""
    capped = [frozenset(capped_regimes(record)) for record in records if record.timing]
    return frozenset.intersection(*capped) if len(capped) > 1 else frozenset()


def of_place(entry: Ranked, omitted: Collection[str]) -> str:
    """Return what stands behind a rank: `=` where it is tied, `c`, `h` and `g` of the regime that ranks."""
    return (
        "=" * (entry.tied and not entry.uncertain)
        + of_time(entry.record, ranking_regime([entry.record]), omitted).strip()
    )


def of_time(record: Record, regime: str, omitted: Collection[str]) -> str:
    """Return what stands behind a time of a record, after a space; empty where nothing does."""
    symbols = "c" * (regime in capped_regimes(record) and regime not in omitted)
    symbols += "h" * (regime == ranking_regime([record]) and is_launch_bound(record))
    symbols += "g" * is_replayed(record, regime)
    return f" {symbols}" if symbols else ""


def status(record: Record | None) -> str:
    """Return what stands in place of a time: a status, "no time" of what PASSED, or that there is no record."""
    if record is None:
        return "no record"
    return record.status.value if record.status is not Status.PASSED or has_time(record) else "no time"


def name(variant: str, *, tied: bool = False) -> Name:
    """Return the cell that names a variant, with `=` behind it where it is tied."""
    return Name(variants.label(variant), variant, "=" * tied)


def named(record: Record) -> str:
    """Return a record's variant, with `h` behind it where it is launch-bound."""
    return record.variant + " h" * is_launch_bound(record)


def label(record: Record) -> str:
    """Return the name for people of a record's variant, with `h` behind it where it is launch-bound."""
    return variants.label(record.variant) + " h" * is_launch_bound(record)
